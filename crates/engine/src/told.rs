//! What callers may be told of the quota that decided: which one it was, its window, and when there is more.
//!
//! A limit may be decided by one of many quotas, and two of them may admit the same number in different times; so
//! whoever decides says which it was. Must not know: how anything is written down.

use tollgate_core::limit::{Limit, Quota};
use tollgate_core::{Nanos, Status, TokenBucket, Unit, Window};

use crate::verdict::Reason;

/// What is told of a quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Told {
    /// Its place in the meter's list; beyond any list if it was made for this request.
    pub(crate) listed: u16,
    pub(crate) unit: Unit,
    pub(crate) window: Nanos,
    pub(crate) more_after: Nanos,
    /// Why it refuses, if it does.
    pub(crate) reason: Reason,
}

/// No place in any list: meters have fewer quotas.
pub(crate) const UNLISTED: u16 = u16::MAX;

impl Told {
    /// Of a check that has no quota, which is never asked.
    pub(crate) const NOTHING: Self = Self {
        listed: UNLISTED,
        unit: Unit::Requests,
        window: Nanos::ZERO,
        more_after: Nanos::ZERO,
        reason: Reason::Rate,
    };

    /// Of a quota after what it answered. `capacity` is the debt that it admits of its own, where waits were added to what
    /// decided.
    pub(crate) fn of(
        listed: Option<usize>,
        limit: &Limit,
        capacity: Option<Nanos>,
        status: &Status,
    ) -> Self {
        let (window, reason) = match capacity {
            Some(capacity) => (capacity, of_length(capacity)),
            None => window_and_reason(limit),
        };
        let more_after = match bucket(limit) {
            // What is owed, less what may be owed while one more is admitted.
            Some(bucket) if status.remaining == 0 => status
                .reset_after
                .saturating_add(bucket.interval())
                .saturating_sub(window),
            // Windows give everything back together, and when a place is free nobody knows.
            _ => Nanos::ZERO,
        };
        Self {
            listed: listed
                .and_then(|index| u16::try_from(index).ok())
                .unwrap_or(UNLISTED),
            unit: limit.unit(),
            window,
            more_after,
            reason,
        }
    }
}

/// The time in which the whole quota is given, zero where there is no one such time; and why it refuses.
fn window_and_reason(limit: &Limit) -> (Nanos, Reason) {
    let length = match limit.quota() {
        Quota::TokenBucket(quota) => quota.refill(),
        Quota::LeakyBucket(quota) => quota.as_tokens().refill(),
        Quota::FixedWindow(quota) => match quota.window() {
            Window::Epoch(length) | Window::FirstHit(length) => length,
            // Months have no one length, and the shortest calendar window is a day.
            _ => return (Nanos::ZERO, Reason::Quota),
        },
        Quota::SlidingLog(quota) => quota.window(),
        Quota::SlidingCounter(quota) => quota.window(),
        Quota::Concurrency(_) => return (Nanos::ZERO, Reason::Concurrency),
        _ => return (Nanos::ZERO, Reason::Rate),
    };
    (length, of_length(length))
}

/// A quota is what takes a day or longer to come back as a whole.
fn of_length(length: Nanos) -> Reason {
    if length >= Nanos::DAY {
        Reason::Quota
    } else {
        Reason::Rate
    }
}

const fn bucket(limit: &Limit) -> Option<&TokenBucket> {
    match limit.quota() {
        Quota::TokenBucket(bucket) => Some(bucket),
        Quota::LeakyBucket(bucket) => Some(bucket.as_tokens()),
        _ => None,
    }
}
