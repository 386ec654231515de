//! A shared store whose calls and replies a test can lose.

use std::num::NonZeroU16;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tollgate_core::compose::BatchOutcome;
use tollgate_core::{Nanos, Rate, Timestamp, TokenBucket};
use tollgate_store::{
    IdentifiedLimit, LimitId, ManualClock, MemoryStore, Op, QuotaCheck, RemoteStore, Store as _,
    StoreError, StoreErrorKind, StoreFuture, StoreKey, StoreReply,
};

pub(super) const START: Timestamp = Timestamp::from_secs(1_700_000_000);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Answered,
    CallLost,
    ReplyLost,
}

#[derive(Debug)]
pub(super) struct FakeRemote {
    memory: MemoryStore<Arc<ManualClock>>,
    pub(super) fate: Mutex<Fate>,
    pub(super) calls: AtomicUsize,
    /// Counts by this limit instead of the requested one: a store that forgives debt.
    pub(super) forgiving_limit: Option<IdentifiedLimit>,
}

impl FakeRemote {
    pub(super) fn new(clock: &Arc<ManualClock>) -> Self {
        Self {
            memory: MemoryStore::with_clock(1_000, Arc::clone(clock)).unwrap(),
            fate: Mutex::new(Fate::Answered),
            calls: AtomicUsize::new(0),
            forgiving_limit: None,
        }
    }

    pub(super) fn set_fate(&self, fate: Fate) {
        *self.fate.lock().unwrap() = fate;
    }

    fn decide_now(
        &self,
        checks: &[QuotaCheck<'_>],
        replies: &mut [StoreReply],
    ) -> Result<BatchOutcome, StoreError> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let lost = || StoreError::new(StoreErrorKind::TimedOut, "injected error");
        let fate = *self.fate.lock().unwrap();
        if fate == Fate::CallLost {
            return Err(lost());
        }
        let limit = |check: &QuotaCheck<'_>| self.forgiving_limit.unwrap_or(*check.limit);
        let others: Vec<IdentifiedLimit> = checks.iter().map(limit).collect();
        let checks: Vec<QuotaCheck<'_>> = checks
            .iter()
            .zip(&others)
            .map(|(check, limit)| QuotaCheck { limit, ..*check })
            .collect();
        let verdict = self.memory.decide(&checks, replies)?;
        match fate {
            Fate::ReplyLost => Err(lost()),
            _ => Ok(verdict),
        }
    }
}

impl RemoteStore for FakeRemote {
    fn partition_count(&self) -> usize {
        1
    }

    fn partition_of(&self, _key: &StoreKey<'_>, _slot_key: Option<&StoreKey<'_>>) -> usize {
        0
    }

    fn decide<'a>(
        &'a self,
        _slot_keys: &'a [Option<StoreKey<'a>>],
        checks: &'a [QuotaCheck<'a>],
        replies: &'a mut [StoreReply],
    ) -> StoreFuture<'a, BatchOutcome> {
        Box::pin(async move { self.decide_now(checks, replies) })
    }

    fn probe(&self, _partition: usize) -> StoreFuture<'_, ()> {
        Box::pin(async { Ok(()) })
    }

    fn erase<'a>(
        &'a self,
        _slot_key: Option<StoreKey<'a>>,
        key: StoreKey<'a>,
        limit: &'a IdentifiedLimit,
    ) -> StoreFuture<'a, bool> {
        Box::pin(async move { Ok(self.memory.erase(&key, limit)) })
    }

    fn is_connected(&self) -> bool {
        true
    }
}

pub(super) fn bucket(per_second: u64, burst: u64) -> IdentifiedLimit {
    let bucket = TokenBucket::builder(Rate::new(per_second, Nanos::SECOND)).burst(burst);
    IdentifiedLimit {
        id: LimitId(NonZeroU16::MIN),
        limit: bucket.build().unwrap().into(),
    }
}

pub(super) fn check(limit: &IdentifiedLimit, cost: u64) -> QuotaCheck<'_> {
    QuotaCheck {
        key: StoreKey::new(b"everyone").unwrap(),
        limit,
        op: Op::Spend(cost),
    }
}
