//! The decision counters of each limit.
//!
//! Must not know: how threads count without contention, who reads the counters.

use crate::sharded_counters::ShardedCounters;

/// An event that is counted for a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitEvent {
    /// The limit admitted the request, and so did all others.
    Allowed,
    /// The limit denied the request.
    Denied,
    /// The limit is in shadow and would have denied the request.
    WouldDeny,
    /// The limit delayed the request.
    Waited,
    /// The limit admitted the request and had at most a fifth left.
    NearLimit,
    /// The store did not answer.
    Error,
    /// The store's overflow sketch decided.
    Overflow,
    /// All limits admitted the request, and the limit's spillover quota was charged, or the request borrowed from other shares.
    SpilledOver,
}

/// What a limit has decided since the process started, under all its quotas.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct LimitTotals {
    /// Requests that this limit admitted, and all others too.
    pub allowed: u64,
    /// Requests that this limit denied.
    pub denied: u64,
    /// Requests that this limit would have denied, were it enforced.
    pub would_deny: u64,
    /// Admitted requests that this limit delayed.
    pub waited: u64,
    /// Admitted requests that left at most a fifth of the quota.
    pub near_limit: u64,
    /// Requests for which the store did not answer.
    pub errors: u64,
    /// Requests decided by the store's overflow sketch, which may deny too much.
    pub overflow: u64,
    /// Admitted requests that were charged to the spillover quota, or that borrowed from other shares.
    pub spilled_over: u64,
}

/// The counters of one limit, one for each [`LimitEvent`].
#[derive(Debug, Default)]
pub struct LimitCounters(ShardedCounters<8>);

impl LimitCounters {
    /// Counters at zero.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Counts one event.
    pub fn count(&self, event: LimitEvent) {
        self.0.add(event as usize, 1);
    }

    /// The current totals.
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
            spilled_over,
        ] = self.0.read();
        LimitTotals {
            allowed,
            denied,
            would_deny,
            waited,
            near_limit,
            errors,
            overflow,
            spilled_over,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every event has its own counter.
    #[test]
    fn every_event_has_its_own_counter() {
        let counters = LimitCounters::new();
        let events = [
            LimitEvent::Allowed,
            LimitEvent::Denied,
            LimitEvent::WouldDeny,
            LimitEvent::Waited,
            LimitEvent::NearLimit,
            LimitEvent::Error,
            LimitEvent::Overflow,
            LimitEvent::SpilledOver,
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
            spilled_over: 8,
        };
        assert_eq!(counters.read(), expected);
    }
}
