//! What each limit has decided so far, in numbers that only grow.
//!
//! Must not know: how threads count without waiting for each other, what is done with the numbers.

use crate::sharded_counters::ShardedCounters;

/// What can be counted of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitEvent {
    /// The limit admitted the request, and so did all others.
    Allowed,
    /// The limit refused the request.
    Denied,
    /// The limit would have refused the request, had it been enforced.
    WouldDeny,
    /// The limit made the request wait.
    Waited,
    /// The limit admitted the request and had no more than a fifth left.
    NearLimit,
    /// The store did not answer.
    Error,
    /// The store's overflow decided.
    Overflow,
}

/// What a limit has decided since the process began, whatever its quota was meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct LimitTotals {
    /// Requests that it admitted and that were admitted.
    pub allowed: u64,
    /// Requests that it refused.
    pub denied: u64,
    /// Requests that it would have refused, had it been enforced.
    pub would_deny: u64,
    /// Requests that it made wait, among those it admitted.
    pub waited: u64,
    /// Requests that it admitted and that left no more than a fifth of it.
    pub near_limit: u64,
    /// Requests on which the store did not answer.
    pub errors: u64,
    /// Requests that were decided by the store's overflow, which may deny too much.
    pub overflow: u64,
}

/// The counters of one limit, one for each [`Event`].
#[derive(Debug, Default)]
pub struct LimitCounters(ShardedCounters<7>);

impl LimitCounters {
    /// Nothing was counted yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Counts one request.
    pub fn count(&self, event: LimitEvent) {
        self.0.add(event as usize, 1);
    }

    /// What was counted so far.
    #[must_use]
    pub fn read(&self) -> LimitTotals {
        let [
            allowed,
            denied,
            would_deny,
            waited,
            near_limit,
            errors,
            overflow,
        ] = self.0.read();
        LimitTotals {
            allowed,
            denied,
            would_deny,
            waited,
            near_limit,
            errors,
            overflow,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every event has a number of its own, and each is read where it was counted.
    #[test]
    fn what_is_counted_is_read() {
        let counters = LimitCounters::new();
        let events = [
            LimitEvent::Allowed,
            LimitEvent::Denied,
            LimitEvent::WouldDeny,
            LimitEvent::Waited,
            LimitEvent::NearLimit,
            LimitEvent::Error,
            LimitEvent::Overflow,
        ];
        for (index, event) in events.into_iter().enumerate() {
            (0..=index).for_each(|_| counters.count(event));
        }
        let expected = LimitTotals {
            allowed: 1,
            denied: 2,
            would_deny: 3,
            waited: 4,
            near_limit: 5,
            errors: 6,
            overflow: 7,
        };
        assert_eq!(counters.read(), expected);
    }
}
