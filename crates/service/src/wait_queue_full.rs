//! Decides requests that would have to wait while the wait queue is full.
//!
//! Each limit that makes a request wait decides by its `on_store_failure`: `open` admits it, `closed` refuses it with 503,
//! `local` refuses it as the limit would without a queue. Nothing is charged. Must not know: sockets, how requests are
//! decided.

use tollgate_core::Outcome;
use tollgate_engine::Verdict;
use tollgate_store::Clock;

use crate::decision::Refusal;
use crate::metrics::DegradationCause;
use crate::service::RateLimitService;

/// The decision on a request that would have to wait while the wait queue is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitQueueFull {
    /// It is admitted without a wait.
    LetThrough,
    /// It is refused.
    Refused(Refusal),
}

impl<C: Clock> RateLimitService<C> {
    /// The decision on a request by the verdict of a peek, if it would have to wait and the queue is full.
    pub fn wait_queue_full(&self, peeked: &Verdict) -> Option<WaitQueueFull> {
        if !self.saturation().is_full() || !matches!(peeked.outcome(), Outcome::Wait(_)) {
            return None;
        }
        Some(self.decide_without_wait(peeked))
    }

    /// The decision on a request that would have to wait, whether or not the queue is full. It is counted.
    pub fn decide_without_wait(&self, peeked: &Verdict) -> WaitQueueFull {
        match Refusal::wait_queue_full(peeked) {
            None => {
                self.saturation().count_let_through();
                WaitQueueFull::LetThrough
            }
            Some(refusal) => {
                self.saturation().count_refused();
                WaitQueueFull::Refused(refusal)
            }
        }
    }

    /// Records that the service is overloaded.
    pub fn record_saturation(&self) {
        self.metrics()
            .record_degradation(DegradationCause::Saturation, self.now());
    }
}
