//! Permits in the store of a fleet: their leases are renewed as long as the request goes on, a bounded number in each round.

use std::future::ready;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use tollgate_core::{Nanos, Timestamp, compose};
use tollgate_engine::CheckOptions;
use tollgate_fleet::Fleet;
use tollgate_policy::attributes::{Attribute, Attributes};
use tollgate_policy::source::SourceFormat;
use tollgate_store::{
    IdentifiedLimit, ManualClock, MemoryStore, QuotaCheck, RemoteStore, Store as _, StoreError,
    StoreErrorKind, StoreFuture, StoreKey, StoreReply,
};

use super::{MAX_RENEWALS_PER_ROUND, OpenRequest};
use crate::metrics::Transport;
use crate::secret::Secret;
use crate::service::RateLimitService;

/// A store that all nodes share.
#[derive(Debug)]
struct SharedStore {
    states: MemoryStore<Arc<ManualClock>>,
    calls: AtomicUsize,
    is_gone: AtomicBool,
}

impl RemoteStore for SharedStore {
    fn partition_count(&self) -> usize {
        1
    }

    fn partition_of(&self, _: &StoreKey<'_>, _: Option<&StoreKey<'_>>) -> usize {
        0
    }

    fn decide<'a>(
        &'a self,
        _: &'a [Option<StoreKey<'a>>],
        checks: &'a [QuotaCheck<'a>],
        replies: &'a mut [StoreReply],
    ) -> StoreFuture<'a, compose::BatchOutcome> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        Box::pin(ready(match self.is_gone.load(Ordering::Relaxed) {
            true => Err(StoreError::new(StoreErrorKind::Unreachable, "gone")),
            false => self.states.decide(checks, replies),
        }))
    }

    fn probe(&self, _: usize) -> StoreFuture<'_, ()> {
        Box::pin(ready(Ok(())))
    }

    fn erase<'a>(
        &'a self,
        _: Option<StoreKey<'a>>,
        key: StoreKey<'a>,
        limit: &'a IdentifiedLimit,
    ) -> StoreFuture<'a, bool> {
        Box::pin(ready(Ok(self.states.erase(&key, limit))))
    }

    fn is_connected(&self) -> bool {
        true
    }
}

struct Anybody;

impl Attributes for Anybody {
    fn get(&self, _: &Attribute) -> Option<&[u8]> {
        None
    }
}

/// Everything here is ready at the first poll.
fn now_or_never<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("it waits"),
    }
}

type Node = Arc<RateLimitService<Arc<ManualClock>>>;

struct TestFleet {
    clock: Arc<ManualClock>,
    store: Arc<SharedStore>,
    nodes: [Node; 2],
}

impl TestFleet {
    fn new(policy: &str) -> Self {
        let clock = Arc::new(ManualClock::at(Timestamp::from_secs(1_700_000_000)));
        let store = Arc::new(SharedStore {
            states: MemoryStore::with_clock(10_000, Arc::clone(&clock)).unwrap(),
            calls: AtomicUsize::new(0),
            is_gone: AtomicBool::new(false),
        });
        let policy = tollgate_policy::load(policy, "p.yaml", SourceFormat::Yaml).unwrap();
        let secret = Secret::random();
        let nodes = [(); 2].map(|()| {
            let service = RateLimitService::new(&policy, 10_000, Arc::clone(&clock), secret);
            let service = service.unwrap();
            let fleet = Fleet::new(Arc::<SharedStore>::clone(&store), service.now());
            fleet.set_nodes(2);
            assert!(service.join(&Arc::new(fleet)));
            Arc::new(service)
        });
        Self {
            clock,
            store,
            nodes,
        }
    }

    /// A request at a node, if it is admitted.
    fn begin(&self, node: usize) -> Option<Box<OpenRequest<Arc<ManualClock>>>> {
        let node = &self.nodes[node];
        let checked = node.check(Transport::Http, &Anybody, CheckOptions::default());
        let mut verdict = now_or_never(checked);
        let mut request = verdict
            .is_admitted()
            .then(|| node.open_request(&mut verdict))??;
        request.start();
        Some(request)
    }

    /// One round of maintenance at a node. Returns how many calls it made.
    fn round(&self, node: usize) -> usize {
        let before = self.store.calls.load(Ordering::Relaxed);
        let node = &self.nodes[node];
        now_or_never(async {
            node.renew_fleet_permits().await;
            if let Some(engine) = node.fleet_engine() {
                engine.cancel_abandoned().await;
            }
        });
        self.store.calls.load(Ordering::Relaxed) - before
    }
}

#[test]
fn i14_a_permit_of_a_fleet_is_renewed_while_its_request_goes_on_and_released_once() {
    let fleet = TestFleet::new("limits: [{ name: one, concurrency: 1, lease: 60s }]");
    let request = fleet.begin(0).expect("a permit is free");
    for _ in 0..30 {
        fleet.clock.advance(Nanos::from_secs(19));
        fleet.round(0);
        assert!(fleet.begin(1).is_none(), "the other node must wait");
    }
    assert_eq!(fleet.nodes[0].held_permits(), (1, 0));
    drop(request);
    fleet.round(0);
    assert_eq!(fleet.nodes[0].held_permits(), (0, 0));
    assert!(fleet.begin(1).is_some());
}

/// The control: without rounds the lease expires, and the other node gets the permit.
#[test]
fn a_permit_that_nobody_renews_expires() {
    let fleet = TestFleet::new("limits: [{ name: one, concurrency: 1, lease: 60s }]");
    let _request = fleet.begin(0).expect("a permit is free");
    fleet.clock.advance(Nanos::from_secs(61));
    assert!(fleet.begin(1).is_some());
}

#[test]
fn a_round_renews_a_bounded_number_of_leases_and_the_next_one_goes_on() {
    let fleet = TestFleet::new("limits: [{ name: many, concurrency: 1000, lease: 60s }]");
    let requests: Vec<_> = (0..600).map_while(|_| fleet.begin(0)).collect();
    assert_eq!(requests.len(), 600);
    assert_eq!(fleet.round(0), 0, "nothing is due");
    fleet.clock.advance(Nanos::from_secs(21));
    let calls = [0; 4].map(|node| fleet.round(node));
    let rest = 600 - 2 * MAX_RENEWALS_PER_ROUND;
    assert_eq!(
        calls,
        [MAX_RENEWALS_PER_ROUND, MAX_RENEWALS_PER_ROUND, rest, 0]
    );
    drop(requests);
}

/// The lease outlives a short outage, because two attempts may fail.
#[test]
fn i14_a_permit_survives_a_store_that_is_gone_for_less_than_its_lease() {
    let fleet = TestFleet::new("limits: [{ name: one, concurrency: 1, lease: 60s }]");
    let request = fleet.begin(0).expect("a permit is free");
    fleet.store.is_gone.store(true, Ordering::Relaxed);
    fleet.clock.advance(Nanos::from_secs(21));
    fleet.round(0);
    fleet.store.is_gone.store(false, Ordering::Relaxed);
    fleet.nodes[0]
        .fleet()
        .unwrap()
        .breakers()
        .iter()
        .for_each(|breaker| {
            assert!(breaker.is_closed(), "one failure does not open it");
        });
    fleet.clock.advance(Nanos::from_secs(21));
    fleet.round(0);
    fleet.clock.advance(Nanos::from_secs(30));
    assert!(fleet.begin(1).is_none(), "renewed after the outage");
    drop(request);
}
