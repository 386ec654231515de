//! Engines that share a store, which fails as it is told to.

mod abandoned;

mod leased_and_async;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use tollgate_core::compose;
use tollgate_core::limit::Quota;
use tollgate_core::quota_lease::LeasedBucket;
use tollgate_core::{Nanos, Outcome};
use tollgate_policy::model::{Consistency, LimitRule, OnStoreFailure};
use tollgate_store::quota_lease::{LeaseGrant, LeaseRequest};
use tollgate_store::{
    Clock as _, IdentifiedLimit, Lender, LimitId, ManualClock, MemoryStore, QuotaCheck,
    RemoteStore, Store as _, StoreError, StoreErrorKind, StoreFuture, StoreKey, StoreReply,
};

use crate::testing::poll_once;
use crate::testing::{TestCaller, TestEngine, engine, limit, per_second, places, quota};
use crate::{Breaker, Fleet, FleetEngine, ProbeOutcome};
use tollgate_engine::{CheckMode, CheckOptions, DenialReason, Engine, Verdict};
use tollgate_policy::attributes::Attribute;
use tollgate_policy::model::Algorithm;

/// How a store fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    /// Nothing arrives.
    Gone,
    /// Calls are carried out and not answered.
    ReplyLost,
}

/// A store in another place, of several parts, by the key's last byte.
#[derive(Debug)]
struct FlakyRemote {
    states: MemoryStore<Arc<ManualClock>>,
    faults: Mutex<Vec<Fault>>,
    calls: AtomicU64,
    /// How long a question is on its way.
    delay: AtomicU64,
    /// Whether calls are carried out, and the reply is not there yet.
    is_slow: AtomicBool,
    clock: Arc<ManualClock>,
}

impl FlakyRemote {
    fn new(clock: &Arc<ManualClock>, parts: usize) -> Arc<Self> {
        Arc::new(Self {
            states: MemoryStore::with_clock(1_000, Arc::clone(clock)).unwrap(),
            faults: Mutex::new(vec![Fault::None; parts]),
            calls: AtomicU64::new(0),
            delay: AtomicU64::new(0),
            is_slow: AtomicBool::new(false),
            clock: Arc::clone(clock),
        })
    }

    fn fail(&self, fault: Fault) {
        self.faults.lock().unwrap().fill(fault);
    }

    fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    fn decide_now(
        &self,
        checks: &[QuotaCheck<'_>],
        answers: &mut [StoreReply],
    ) -> Result<compose::Verdict, StoreError> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let faults = self.faults.lock().unwrap().clone();
        let of = |check: &QuotaCheck<'_>| faults[self.partition_of(&check.key, None)];
        if checks.iter().any(|check| of(check) == Fault::Gone) {
            return Err(StoreError::new(StoreErrorKind::Unreachable, "gone"));
        }
        let delay = self.delay.load(Ordering::Relaxed);
        self.clock.advance(Nanos::from_millis(delay));
        let verdict = self.states.decide(checks, answers)?;
        if checks.iter().any(|check| of(check) == Fault::ReplyLost) {
            return Err(StoreError::new(
                StoreErrorKind::ConnectionLost,
                "the reply was lost",
            ));
        }
        Ok(verdict)
    }
}

impl RemoteStore for FlakyRemote {
    fn partition_count(&self) -> usize {
        self.faults.lock().unwrap().len()
    }

    fn partition_of(&self, key: &StoreKey<'_>, place: Option<&StoreKey<'_>>) -> usize {
        let bytes = place.unwrap_or(key).single().unwrap_or_default();
        usize::from(*bytes.last().unwrap_or(&0)) % self.partition_count()
    }

    fn decide<'a>(
        &'a self,
        _places: &'a [Option<StoreKey<'a>>],
        checks: &'a [QuotaCheck<'a>],
        answers: &'a mut [StoreReply],
    ) -> StoreFuture<'a, compose::Verdict> {
        let decided = self.decide_now(checks, answers);
        if self.is_slow.load(Ordering::Relaxed) {
            return Box::pin(std::future::pending());
        }
        Box::pin(std::future::ready(decided))
    }

    fn probe(&self, part: usize) -> StoreFuture<'_, ()> {
        let fault = self.faults.lock().unwrap()[part];
        Box::pin(std::future::ready(match fault {
            Fault::None => Ok(()),
            _ => Err(StoreError::new(StoreErrorKind::Unreachable, "gone")),
        }))
    }

    fn erase<'a>(
        &'a self,
        _: Option<StoreKey<'a>>,
        key: StoreKey<'a>,
        ruled: &'a IdentifiedLimit,
    ) -> StoreFuture<'a, bool> {
        let erased = self.states.erase(&key, ruled);
        Box::pin(std::future::ready(Ok(erased)))
    }

    fn is_connected(&self) -> bool {
        self.faults.lock().unwrap().contains(&Fault::None)
    }
}

/// Books of leased limits, in the same place.
#[derive(Debug, Default)]
struct BrokerLedger {
    of: Mutex<HashMap<(LimitId, Vec<u8>), LeasedBucket>>,
    is_gone: AtomicBool,
    errands: AtomicU64,
}

#[derive(Debug)]
struct LedgerBroker(Arc<BrokerLedger>, Arc<ManualClock>);

impl Lender for LedgerBroker {
    fn lend<'a>(
        &'a self,
        _place: Option<StoreKey<'a>>,
        key: StoreKey<'a>,
        ruled: &'a IdentifiedLimit,
        errand: LeaseRequest<'a>,
    ) -> StoreFuture<'a, LeaseGrant> {
        let Self(books, clock) = self;
        books.errands.fetch_add(1, Ordering::Relaxed);
        if books.is_gone.load(Ordering::Relaxed) {
            let gone = StoreError::new(StoreErrorKind::Unreachable, "gone");
            return Box::pin(std::future::ready(Err(gone)));
        }
        let Quota::TokenBucket(bucket) = ruled.limit.quota() else {
            panic!("only buckets are lent");
        };
        let who = (ruled.id, key.single().unwrap().to_vec());
        let mut of = books.of.lock().unwrap();
        let granted = of
            .entry(who)
            .or_default()
            .handle(bucket, clock.now(), &errand);
        Box::pin(std::future::ready(Ok(granted)))
    }
}

/// A node, the clock that all have, and what it shares.
struct FleetTest {
    engine: TestEngine,
    fleet: Fleet,
    clock: Arc<ManualClock>,
    remote: Arc<FlakyRemote>,
}

impl FleetTest {
    fn new(limits: Vec<LimitRule>) -> Self {
        Self::in_parts(limits, 1)
    }

    fn in_parts(limits: Vec<LimitRule>, parts: usize) -> Self {
        let (engine, clock) = engine(limits);
        let remote = FlakyRemote::new(&clock, parts);
        Self::sharing(engine, clock, remote)
    }

    fn sharing(engine: TestEngine, clock: Arc<ManualClock>, remote: Arc<FlakyRemote>) -> Self {
        let fleet = Fleet::new(Arc::clone(&remote) as _, engine.store().now());
        Self {
            engine,
            fleet,
            clock,
            remote,
        }
    }

    /// Another node with the same limits.
    fn other_node(&self, limits: Vec<LimitRule>) -> Self {
        let store = MemoryStore::with_clock(1_000, Arc::clone(&self.clock)).unwrap();
        let engine = Engine::new(crate::testing::rules(limits), store).unwrap();
        Self::sharing(engine, Arc::clone(&self.clock), Arc::clone(&self.remote))
    }

    /// A node that borrows there.
    fn with_broker(
        limits: Vec<LimitRule>,
        books: &Arc<BrokerLedger>,
        clock: &Arc<ManualClock>,
    ) -> Self {
        let store = MemoryStore::with_clock(1_000, Arc::clone(clock)).unwrap();
        let engine = Engine::new(crate::testing::rules(limits), store).unwrap();
        let remote = FlakyRemote::new(clock, 1);
        let fleet = Fleet::new(Arc::clone(&remote) as _, engine.store().now());
        let lender = LedgerBroker(Arc::clone(books), Arc::clone(clock));
        Self {
            engine,
            fleet: fleet.with_lease_broker(Arc::new(lender)),
            clock: Arc::clone(clock),
            remote,
        }
    }

    fn ask(&self, who: &str) -> Verdict {
        self.ask_for(who, CheckMode::Charge)
    }

    fn ask_for(&self, who: &str, mode: CheckMode) -> Verdict {
        let caller = TestCaller::named(who);
        poll_once(self.node().check(&caller, CheckOptions::new(mode))).unwrap()
    }

    fn node(&self) -> FleetEngine<'_, MemoryStore<Arc<ManualClock>>> {
        FleetEngine::new(&self.engine, &self.fleet)
    }

    fn admitted(&self, who: &str, asked: usize) -> usize {
        (0..asked).filter(|_| self.ask(who).is_admitted()).count()
    }

    fn fleet(&self) -> &Fleet {
        &self.fleet
    }

    fn tend(&self) -> ProbeOutcome {
        poll_once(self.fleet().probe_unavailable(|| self.engine.store().now())).unwrap()
    }
}

fn per_hour(units: u64) -> LimitRule {
    limit(
        "hourly",
        quota(Algorithm::TokenBucket, &[(units, Nanos::HOUR)]),
    )
}

#[test]
fn two_nodes_have_one_quota() {
    let one = FleetTest::new(vec![per_hour(10)]);
    let two = one.other_node(vec![per_hour(10)]);
    assert_eq!(one.admitted("alice", 7), 7);
    assert_eq!(two.admitted("alice", 7), 3);
    let verdict = one.ask("alice");
    assert!(!verdict.is_admitted() && !verdict.degraded().store);
}

/// Design decision 9: the denied are not asked about again, so a flood costs the store nothing.
#[test]
fn s_35_a_flood_of_the_denied_does_not_reach_the_store() {
    let rig = FleetTest::new(vec![per_hour(10)]);
    assert_eq!(rig.admitted("alice", 1_000), 10);
    assert_eq!(rig.remote.calls(), 10, "the last admission left nothing");
    assert_eq!(rig.fleet().totals().cached_denials, 990);
    let denied = rig.ask("alice");
    let state = denied.limits().first().unwrap();
    assert_eq!((state.status.limit, state.status.remaining), (10, 0));
    assert_eq!(state.retry_after(), Some(Nanos::from_secs(360)));
    rig.clock.advance(Nanos::from_secs(360));
    assert!(rig.ask("alice").is_admitted(), "and not a moment too long");
}

/// The promise: traffic at a hundred times the limit makes no more calls than admitted requests on every node, and one for
/// each key, node and second.
#[test]
fn s_35_at_a_hundred_times_the_limit_the_store_is_asked_about_what_is_admitted() {
    const LIMIT: u64 = 20;
    const KEYS: u64 = 10;
    const SECONDS: u64 = 5;
    let limits = || vec![limit("burst", per_second(LIMIT))];
    let first = FleetTest::new(limits());
    let nodes = [
        first.other_node(limits()),
        first.other_node(limits()),
        first,
    ];
    let mut admitted = 0;
    // A millisecond at a time, two of each key's hundred times twenty: on one node after the other.
    for milli in 0..SECONDS * 1_000 {
        for ask in 0..KEYS * 2 {
            let node = &nodes[usize::try_from((milli + ask) % 3).unwrap()];
            let who = format!("caller {}", ask % KEYS);
            admitted += u64::from(node.ask(&who).is_admitted());
        }
        nodes[0].clock.advance(Nanos::from_nanos(1_000_000));
    }
    let calls = nodes[0].remote.calls();
    assert!(admitted >= KEYS * LIMIT * SECONDS, "{admitted}");
    assert!(admitted <= KEYS * LIMIT * (SECONDS + 1), "{admitted}");
    assert!(
        calls <= admitted * 3 + KEYS * 3 * SECONDS,
        "{calls} calls for {admitted} admitted"
    );
}

#[test]
fn s_01_without_the_store_half_of_the_quota_is_divided_among_the_nodes() {
    let rig = FleetTest::new(vec![per_hour(100)]);
    rig.fleet().set_nodes(5);
    rig.remote.fail(Fault::Gone);
    let verdict = rig.ask("alice");
    assert!(verdict.is_admitted() && verdict.degraded().store);
    assert_eq!(rig.admitted("alice", 100), 9);
    assert_eq!(rig.admitted("bob", 100), 10);
    let denied = rig.ask("alice");
    assert_eq!(denied.reason(), Some(DenialReason::Rate));
    assert!(matches!(denied.outcome(), Outcome::Deny { .. }));
    assert!(denied.degraded().store);
}

#[test]
fn s_01_after_a_few_failures_the_store_is_left_alone() {
    let rig = FleetTest::new(vec![per_hour(1_000_000)]);
    rig.remote.fail(Fault::Gone);
    assert_eq!(rig.admitted("alice", 1_000), 1_000);
    assert!(rig.remote.calls() <= 5, "{}", rig.remote.calls());
    assert!(rig.fleet().is_degraded());
    assert_eq!(rig.fleet().totals().openings, 1);
}

/// I-01: what the store admitted before it went away is not given a second time from the whole of this node's share.
#[test]
fn what_the_store_admitted_counts_when_it_goes_away() {
    let rig = FleetTest::new(vec![per_hour(100)]);
    rig.fleet().set_nodes(2);
    assert_eq!(rig.admitted("alice", 60), 60);
    rig.remote.fail(Fault::Gone);
    let local = rig.admitted("alice", 100);
    assert_eq!(
        local, 10,
        "of 25, in the proportion of what was left: 40 of 100"
    );
}

#[test]
fn s_02_when_it_is_back_it_hears_what_was_admitted_without_it() {
    let rig = FleetTest::new(vec![per_hour(100)]);
    rig.remote.fail(Fault::Gone);
    assert_eq!(rig.admitted("alice", 1_000), 50);
    rig.remote.fail(Fault::None);
    assert_eq!(
        rig.tend(),
        ProbeOutcome {
            unavailable: 1,
            recovered: 0
        },
        "not within the first second"
    );
    rig.clock.advance(Nanos::from_secs(1));
    assert_eq!(
        rig.tend(),
        ProbeOutcome {
            unavailable: 0,
            recovered: 1
        }
    );
    assert_eq!(rig.fleet().totals().replayed, 1);
    assert_eq!(rig.admitted("alice", 1_000), 50, "a hundred in all");
    assert!(!rig.ask("bob").degraded().store);
}

/// I-02: whether a call was carried out whose answer was lost, nobody knows. It is not made again, and not told again.
#[test]
fn s_08_a_lost_reply_is_decided_here_and_counted_once_there() {
    let rig = FleetTest::new(vec![per_hour(100)]);
    rig.remote.fail(Fault::ReplyLost);
    let verdict = rig.ask("alice");
    assert!(verdict.is_admitted() && verdict.degraded().store);
    assert_eq!(rig.remote.calls(), 1);
    rig.remote.fail(Fault::None);
    rig.tend();
    assert_eq!(rig.admitted("alice", 1_000), 99);
}

#[test]
fn limits_say_what_they_decide_without_the_store() {
    let with = |on_store_failure| LimitRule {
        on_store_failure,
        ..per_hour(10)
    };
    let open = FleetTest::new(vec![with(OnStoreFailure::Open)]);
    open.remote.fail(Fault::Gone);
    assert_eq!(open.admitted("alice", 100), 100);
    assert!(open.ask("alice").degraded().store);
    let closed = FleetTest::new(vec![with(OnStoreFailure::Closed)]);
    closed.remote.fail(Fault::Gone);
    let verdict = closed.ask("alice");
    assert!(!verdict.is_admitted() && verdict.degraded().store);
    assert_eq!(verdict.reason(), Some(DenialReason::Capacity));
    assert_eq!(verdict.status(), Some(503));
}

/// I-11: what this node charged for itself is given back when the store refuses, and the other way round.
#[test]
fn i_11_a_refused_request_spends_nothing_on_either_tier() {
    let narrow = LimitRule {
        local: Some(per_second(5)),
        ..limit("narrow", quota(Algorithm::TokenBucket, &[(2, Nanos::HOUR)]))
    };
    let rig = FleetTest::new(vec![narrow]);
    assert_eq!(rig.admitted("alice", 100), 2);
    rig.engine.control().clear_cached_denials();
    let denied = rig.ask("alice");
    let local = denied
        .limits()
        .iter()
        .find(|state| state.status.limit == 5)
        .unwrap();
    assert_eq!(local.status.remaining, 3, "two were spent, not three");
    // Beyond the local bucket nothing reaches the store.
    let wide = LimitRule {
        local: Some(per_second(5)),
        ..limit("wide", quota(Algorithm::TokenBucket, &[(200, Nanos::HOUR)]))
    };
    let rig = FleetTest::new(vec![wide]);
    assert_eq!(rig.admitted("alice", 100), 5);
    assert_eq!(rig.remote.calls(), 5);
}

#[test]
fn s_17_only_the_part_that_is_away_is_missing() {
    let rig = FleetTest::in_parts(vec![per_hour(100)], 2);
    rig.remote.faults.lock().unwrap()[0] = Fault::Gone;
    // Keys end with the name's last letter: b is even, a is odd.
    assert_eq!(rig.admitted("b", 1_000), 50);
    assert_eq!(rig.admitted("a", 1_000), 100);
    assert!(!rig.ask("a").degraded().store && rig.ask("b").degraded().store);
    let closed: Vec<bool> = rig
        .fleet()
        .breakers()
        .iter()
        .map(Breaker::is_closed)
        .collect();
    assert_eq!(closed, [false, true]);
}

/// I-14: places that were given without the store return without it, and those that it gave return to it.
#[test]
fn i_14_places_return_to_whoever_gave_them() {
    let rig = FleetTest::new(vec![limit("at once", places(4))]);
    let mut shared = rig.ask("alice");
    rig.remote.fail(Fault::Gone);
    let mut here = [rig.ask("alice"), rig.ask("alice")];
    assert!(here.iter().all(Verdict::is_admitted), "half of four");
    assert!(!rig.ask("alice").is_admitted());
    let [one, _] = &mut here;
    let ticket = one.take_ticket().unwrap();
    poll_once(rig.node().respond(ticket, &200))
        .unwrap()
        .unwrap();
    assert!(rig.ask("alice").is_admitted());
    rig.remote.fail(Fault::None);
    rig.clock.advance(Nanos::from_secs(1));
    rig.tend();
    assert_eq!(rig.admitted("alice", 10), 3);
    let ticket = shared.take_ticket().unwrap();
    poll_once(rig.node().respond(ticket, &200))
        .unwrap()
        .unwrap();
    assert_eq!(rig.admitted("alice", 10), 1);
}

#[test]
fn s_03_a_store_that_is_not_there_at_the_start_is_away_until_it_is_seen() {
    let (engine, clock) = engine(vec![per_hour(100)]);
    let remote = FlakyRemote::new(&clock, 1);
    remote.fail(Fault::Gone);
    let rig = FleetTest::sharing(engine, clock, remote);
    assert!(rig.fleet().is_degraded());
    assert_eq!(rig.admitted("alice", 1_000), 50);
    assert_eq!(rig.remote.calls(), 0);
    rig.remote.fail(Fault::None);
    rig.clock.advance(Nanos::from_secs(1));
    assert_eq!(rig.tend().recovered, 1);
    assert_eq!(rig.admitted("alice", 1_000), 50);
}

#[test]
fn looking_charges_nobody() {
    let rig = FleetTest::new(vec![per_hour(10)]);
    for _ in 0..100 {
        assert!(rig.ask_for("alice", CheckMode::Peek).is_admitted());
    }
    assert_eq!(rig.admitted("alice", 100), 10);
    rig.remote.fail(Fault::Gone);
    for _ in 0..100 {
        assert!(rig.ask_for("bob", CheckMode::Peek).is_admitted());
    }
    assert_eq!(rig.admitted("bob", 100), 5);
}

#[test]
fn a_reset_reaches_the_store_that_is_shared() {
    let colocated = LimitRule {
        colocate: Some(Attribute::parse("header.user").unwrap().into()),
        ..per_hour(10)
    };
    let rig = FleetTest::new(vec![colocated]);
    assert_eq!(rig.admitted("alice", 100), 10);
    let erased = |name| poll_once(rig.node().erase("hourly", &[name])).unwrap();
    assert_eq!(erased("bob"), Ok(false));
    assert_eq!(erased("alice"), Ok(true));
    assert_eq!(
        rig.admitted("alice", 100),
        10,
        "nothing is remembered of it either"
    );
}

/// I-04: nobody is told of an error because the store is away, not even who only puts something right.
#[test]
fn i_04_corrections_and_refunds_are_no_errors_without_the_store() {
    let rig = FleetTest::new(vec![limit("at once", places(4)), per_hour(10)]);
    let mut held = rig.ask("alice");
    let mut charged = rig.ask_for("alice", CheckMode::Reserve);
    rig.remote.fail(Fault::Gone);
    let ticket = held.take_ticket().unwrap();
    poll_once(rig.node().respond(ticket, &200))
        .unwrap()
        .unwrap();
    let ticket = charged.take_ticket().unwrap();
    poll_once(rig.node().settle(ticket, 0)).unwrap().unwrap();
    assert!(rig.ask_for("alice", CheckMode::Refund).is_admitted());
}

/// Found by the judge of histories: what was remembered counted from when the store was asked, so whoever was told from
/// memory how long to wait came back a round trip too early, and was denied again.
#[test]
fn i_03_whoever_waits_as_long_as_was_remembered_is_admitted() {
    let rig = FleetTest::new(vec![per_hour(10)]);
    assert_eq!(rig.admitted("alice", 9), 9);
    rig.remote.delay.store(7, Ordering::Relaxed);
    assert_eq!(rig.admitted("alice", 1), 1);
    let calls = rig.remote.calls();
    let denied = rig.ask("alice");
    let state = denied.limits().first().unwrap();
    assert_eq!(rig.remote.calls(), calls, "it was remembered");
    rig.clock.advance(state.retry_after().unwrap());
    rig.remote.delay.store(0, Ordering::Relaxed);
    assert!(rig.ask("alice").is_admitted());
}

/// I-11, found in review: what a node admitted in the place of one part was told to the store although another part refused
/// the request.
#[test]
fn i_11_the_store_is_not_told_of_what_another_part_refused() {
    // Keys end with what they are of: `b` lies in the first part, `a` in the second.
    let by = |name, header: &str, units| LimitRule {
        key: tollgate_testkit::test_requests::key(&[header]),
        ..limit(name, quota(Algorithm::TokenBucket, &[(units, Nanos::HOUR)]))
    };
    let limits = vec![by("wide", "header.b", 100), by("narrow", "header.a", 1)];
    let rig = FleetTest::in_parts(limits, 2);
    let caller = TestCaller::default()
        .with("header.a", "a")
        .with("header.b", "b");
    let ask = || poll_once(rig.node().check(&caller, CheckOptions::default())).unwrap();
    assert!(ask().is_admitted());
    rig.remote.faults.lock().unwrap()[0] = Fault::Gone;
    for _ in 0..20 {
        rig.engine.control().clear_cached_denials();
        assert!(!ask().is_admitted());
    }
    assert!(!rig.fleet().breakers()[0].is_closed());
    rig.remote.faults.lock().unwrap()[0] = Fault::None;
    rig.clock.advance(Nanos::from_secs(1));
    rig.tend();
    assert_eq!(rig.fleet().totals().replayed, 0);
}
