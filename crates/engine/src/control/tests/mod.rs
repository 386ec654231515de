//! Operator changes while requests are decided.

mod adjustments;
mod blocks;
mod invalid_requests;
mod overrides;
mod register_sync;
mod resets;
mod saved_state;
mod switches;

use super::{
    Attribution, Block, Halt, MAX_BLOCKS, MAX_EVENTS, OperatorChange, OperatorError, OperatorState,
    Switch,
};
use crate::testing::{
    START, TestCaller, TestEngine, engine, key, limit, per_second, places, policy, quota, rules,
};
use crate::{DenialReason, Engine, StateStore, Verdict};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use tollgate_core::compose::BatchOutcome;
use tollgate_core::{Nanos, Outcome, Timestamp};
use tollgate_policy::model::{
    Algorithm, Amount, LimitRule, Located, Mode, Penalty, Percent, Policy, QuotaSpec,
};
use tollgate_policy::rules::Rules;
use tollgate_store::register::NodeId;
use tollgate_store::{
    IdentifiedLimit, ManualClock, MemoryStore, QuotaCheck, Store, StoreError, StoreErrorKind,
    StoreKey, StoreReply,
};
use tollgate_testkit::register::ModelRegister;

const OPERATOR: Attribution<'_> = Attribution {
    who: "ada",
    why: "a test",
};

fn admitted(engine: &TestEngine, user: &str, times: u64) -> u64 {
    let caller = TestCaller::named(user);
    (0..times)
        .map(|_| u64::from(engine.decide(&caller).is_admitted()))
        .sum()
}

fn remaining(engine: &TestEngine, user: &str) -> u64 {
    engine.peek(&TestCaller::named(user)).limits()[0]
        .status
        .remaining
}

/// A store that can be made to fail.
struct FlakyStore {
    inner: MemoryStore<ManualClock>,
    is_down: AtomicBool,
}

impl Store for FlakyStore {
    fn decide(
        &self,
        checks: &[QuotaCheck<'_>],
        replies: &mut [StoreReply],
    ) -> Result<BatchOutcome, StoreError> {
        if self.is_down.load(Ordering::Relaxed) {
            return Err(StoreError::new(StoreErrorKind::Unreachable, "down"));
        }
        self.inner.decide(checks, replies)
    }
}

impl StateStore for FlakyStore {
    fn now(&self) -> Timestamp {
        self.inner.now()
    }

    fn erase(&self, key: &StoreKey<'_>, limit: &IdentifiedLimit) -> bool {
        self.inner.erase(key, limit)
    }
}

fn flaky_engine(limits: Vec<LimitRule>) -> Engine<FlakyStore> {
    let inner = MemoryStore::with_clock(100, ManualClock::at(START)).unwrap();
    let store = FlakyStore {
        inner,
        is_down: AtomicBool::new(false),
    };
    Engine::new(rules(limits), store).unwrap()
}
