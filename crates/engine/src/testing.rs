//! Shared test helpers: an engine on a manual clock. Must not know: any one test.

use std::sync::Arc;

use tollgate_core::Timestamp;
use tollgate_policy::attributes::Attributes;
use tollgate_policy::model::LimitRule;
use tollgate_policy::rules::Rules;
use tollgate_store::{ManualClock, MemoryStore};

pub(crate) use tollgate_testkit::seeded_rng::SeededRng;
pub(crate) use tollgate_testkit::test_requests::{
    TestCaller, key, limit, matching, per_second, places, policy, quota, rules,
};

use crate::{CheckMode, CheckOptions, Engine, StateStore, Verdict};

pub(crate) const START: Timestamp = Timestamp::from_secs(1_700_000_000);

pub(crate) type TestEngine = Engine<MemoryStore<Arc<ManualClock>>>;

/// An engine on a clock that stops at [`START`].
pub(crate) fn engine(limits: Vec<LimitRule>) -> (TestEngine, Arc<ManualClock>) {
    engine_with(rules(limits))
}

pub(crate) fn engine_with(rules: Rules) -> (TestEngine, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::at(START));
    let store = MemoryStore::with_clock(1_000, Arc::clone(&clock)).unwrap();
    (Engine::new(rules, store).unwrap(), clock)
}

impl<S: StateStore> Engine<S> {
    pub(crate) fn decide_with_cost(&self, request: &dyn Attributes, cost: u64) -> Verdict {
        self.check(request, CheckOptions::default().with_cost(cost))
    }

    pub(crate) fn peek_with_cost(&self, request: &dyn Attributes, cost: u64) -> Verdict {
        self.check(request, CheckOptions::new(CheckMode::Peek).with_cost(cost))
    }

    pub(crate) fn reserve(&self, request: &dyn Attributes, estimate: u64) -> Verdict {
        let reserve = CheckOptions::new(CheckMode::Reserve);
        self.check(request, reserve.with_cost(estimate))
    }

    pub(crate) fn refund(&self, request: &dyn Attributes, units: u64) -> Verdict {
        let refund = CheckOptions::new(CheckMode::Refund);
        self.check(request, refund.with_cost(units))
    }
}
