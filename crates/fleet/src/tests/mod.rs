//! Engines that share a store with injected faults.

mod abandoned;
mod cached_denials;
mod leased_and_async;
mod missed_deadlines;
mod outages;
mod partitions;
mod tiers;

use crate::testing::poll_once;
use crate::testing::{TestCaller, TestEngine, engine, limit, per_second, places, quota};
use crate::{Breaker, Fleet, FleetEngine, ProbeOutcome};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use tollgate_core::compose;
use tollgate_core::limit::Quota;
use tollgate_core::quota_lease::LeasedBucket;
use tollgate_core::{Nanos, Outcome};
use tollgate_engine::{CheckMode, CheckOptions, DenialReason, Engine, Verdict};
use tollgate_policy::attributes::Attribute;
use tollgate_policy::model::Algorithm;
use tollgate_policy::model::{Consistency, LimitRule, OnStoreFailure};
use tollgate_store::quota_lease::{LeaseGrant, LeaseRequest};
use tollgate_store::{
    Clock as _, IdentifiedLimit, LeaseBroker, LimitId, ManualClock, MemoryStore, QuotaCheck,
    RemoteStore, Store as _, StoreError, StoreErrorKind, StoreFuture, StoreKey, StoreReply,
};

/// A fault of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    /// No call arrives.
    Gone,
    /// Calls are carried out, but replies are lost.
    ReplyLost,
}

/// A remote store with several partitions, selected by the key's last byte.
#[derive(Debug)]
struct FlakyRemote {
    states: MemoryStore<Arc<ManualClock>>,
    faults: Mutex<Vec<Fault>>,
    calls: AtomicU64,
    /// The latency of a call.
    delay: AtomicU64,
    /// Whether calls are carried out but their replies are held back.
    is_slow: AtomicBool,
    clock: Arc<ManualClock>,
}

impl FlakyRemote {
    fn new(clock: &Arc<ManualClock>, partitions: usize) -> Arc<Self> {
        Arc::new(Self {
            states: MemoryStore::with_clock(1_000, Arc::clone(clock)).unwrap(),
            faults: Mutex::new(vec![Fault::None; partitions]),
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
        replies: &mut [StoreReply],
    ) -> Result<compose::BatchOutcome, StoreError> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let faults = self.faults.lock().unwrap().clone();
        let fault_of = |check: &QuotaCheck<'_>| faults[self.partition_of(&check.key, None)];
        if checks.iter().any(|check| fault_of(check) == Fault::Gone) {
            return Err(StoreError::new(StoreErrorKind::Unreachable, "gone"));
        }
        let delay = self.delay.load(Ordering::Relaxed);
        self.clock.advance(Nanos::from_millis(delay));
        let verdict = self.states.decide(checks, replies)?;
        if checks
            .iter()
            .any(|check| fault_of(check) == Fault::ReplyLost)
        {
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

    fn partition_of(&self, key: &StoreKey<'_>, slot_key: Option<&StoreKey<'_>>) -> usize {
        let bytes = slot_key.unwrap_or(key).single().unwrap_or_default();
        usize::from(*bytes.last().unwrap_or(&0)) % self.partition_count()
    }

    fn decide<'a>(
        &'a self,
        _slot_keys: &'a [Option<StoreKey<'a>>],
        checks: &'a [QuotaCheck<'a>],
        replies: &'a mut [StoreReply],
    ) -> StoreFuture<'a, compose::BatchOutcome> {
        let decided = self.decide_now(checks, replies);
        if self.is_slow.load(Ordering::Relaxed) {
            return Box::pin(std::future::pending());
        }
        Box::pin(std::future::ready(decided))
    }

    fn probe(&self, partition: usize) -> StoreFuture<'_, ()> {
        let fault = self.faults.lock().unwrap()[partition];
        Box::pin(std::future::ready(match fault {
            Fault::None => Ok(()),
            _ => Err(StoreError::new(StoreErrorKind::Unreachable, "gone")),
        }))
    }

    fn erase<'a>(
        &'a self,
        _: Option<StoreKey<'a>>,
        key: StoreKey<'a>,
        limit: &'a IdentifiedLimit,
    ) -> StoreFuture<'a, bool> {
        let erased = self.states.erase(&key, limit);
        Box::pin(std::future::ready(Ok(erased)))
    }

    fn is_connected(&self) -> bool {
        self.faults.lock().unwrap().contains(&Fault::None)
    }
}

/// The broker's accounting of leased limits.
#[derive(Debug, Default)]
struct BrokerLedger {
    buckets: Mutex<HashMap<(LimitId, Vec<u8>), LeasedBucket>>,
    is_gone: AtomicBool,
    requests: AtomicU64,
}

#[derive(Debug)]
struct LedgerBroker(Arc<BrokerLedger>, Arc<ManualClock>);

impl LeaseBroker for LedgerBroker {
    fn grant_lease<'a>(
        &'a self,
        _place: Option<StoreKey<'a>>,
        key: StoreKey<'a>,
        limit: &'a IdentifiedLimit,
        request: LeaseRequest<'a>,
    ) -> StoreFuture<'a, LeaseGrant> {
        let Self(ledger, clock) = self;
        ledger.requests.fetch_add(1, Ordering::Relaxed);
        if ledger.is_gone.load(Ordering::Relaxed) {
            let gone = StoreError::new(StoreErrorKind::Unreachable, "gone");
            return Box::pin(std::future::ready(Err(gone)));
        }
        let Quota::TokenBucket(bucket) = limit.limit.quota() else {
            panic!("only buckets can be leased");
        };
        let user = (limit.id, key.single().unwrap().to_vec());
        let mut buckets = ledger.buckets.lock().unwrap();
        let grant = buckets
            .entry(user)
            .or_default()
            .handle(bucket, clock.now(), &request);
        Box::pin(std::future::ready(Ok(grant)))
    }
}

/// A node, the common clock, and the shared store.
struct FleetTest {
    engine: TestEngine,
    fleet: Fleet,
    clock: Arc<ManualClock>,
    remote: Arc<FlakyRemote>,
}

impl FleetTest {
    fn new(limits: Vec<LimitRule>) -> Self {
        Self::with_partitions(limits, 1)
    }

    fn with_partitions(limits: Vec<LimitRule>, partitions: usize) -> Self {
        let (engine, clock) = engine(limits);
        let remote = FlakyRemote::new(&clock, partitions);
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

    /// A node with a lease broker.
    fn with_broker(
        limits: Vec<LimitRule>,
        ledger: &Arc<BrokerLedger>,
        clock: &Arc<ManualClock>,
    ) -> Self {
        let store = MemoryStore::with_clock(1_000, Arc::clone(clock)).unwrap();
        let engine = Engine::new(crate::testing::rules(limits), store).unwrap();
        let remote = FlakyRemote::new(clock, 1);
        let fleet = Fleet::new(Arc::clone(&remote) as _, engine.store().now());
        let broker = LedgerBroker(Arc::clone(ledger), Arc::clone(clock));
        Self {
            engine,
            fleet: fleet.with_lease_broker(Arc::new(broker)),
            clock: Arc::clone(clock),
            remote,
        }
    }

    fn check(&self, user: &str) -> Verdict {
        self.check_with(user, CheckMode::Charge)
    }

    fn check_with(&self, user: &str, mode: CheckMode) -> Verdict {
        let caller = TestCaller::named(user);
        poll_once(self.fleet_engine().check(&caller, CheckOptions::new(mode))).unwrap()
    }

    fn fleet_engine(&self) -> FleetEngine<'_, MemoryStore<Arc<ManualClock>>> {
        FleetEngine::new(&self.engine, &self.fleet)
    }

    fn admitted(&self, user: &str, requests: usize) -> usize {
        (0..requests)
            .filter(|_| self.check(user).is_admitted())
            .count()
    }

    fn fleet(&self) -> &Fleet {
        &self.fleet
    }

    fn probe(&self) -> ProbeOutcome {
        poll_once(self.fleet().probe_unavailable(|| self.engine.store().now())).unwrap()
    }
}

fn per_hour(units: u64) -> LimitRule {
    limit(
        "hourly",
        quota(Algorithm::TokenBucket, &[(units, Nanos::HOUR)]),
    )
}
