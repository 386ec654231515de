//! Shared test helpers: requests, policies, and an engine on a manual clock. Must not know: any one test.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use tollgate_core::Timestamp;
use tollgate_engine::Engine;
use tollgate_policy::model::LimitRule;
use tollgate_store::{ManualClock, MemoryStore};

pub(crate) use tollgate_testkit::seeded_rng::SeededRng;
pub(crate) use tollgate_testkit::test_requests::{
    TestCaller, limit, per_second, places, quota, rules,
};

pub(crate) const START: Timestamp = Timestamp::from_secs(1_700_000_000);

pub(crate) type TestEngine = Engine<MemoryStore<Arc<ManualClock>>>;

/// An engine on a clock that stops at [`START`].
pub(crate) fn engine(limits: Vec<LimitRule>) -> (TestEngine, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::at(START));
    let store = MemoryStore::with_clock(1_000, Arc::clone(&clock)).unwrap();
    (Engine::new(rules(limits), store).unwrap(), clock)
}

/// The output of a future that is ready at its first poll.
pub(crate) fn poll_once<T>(future: impl Future<Output = T>) -> Option<T> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}
