//! What a slot's state is worth keeping, by limit: how much of its quota a key has used, and whether it is being denied.
//!
//! When a table is full the slot that goes is the one whose loss forgives the least. Must not know: keys, slots, how the
//! state came about.

use std::sync::atomic::{AtomicU64, Ordering};

use tollgate_core::Timestamp;
use tollgate_core::limit::{Limit, Quota};

use crate::contract::LimitId;

/// How many limits there can be: their numbers have two bytes. A model makes thousands of stores and needs few.
const LIMITS: usize = if cfg!(loom) { 16 } else { 1 << 16 };

/// Usage is measured in parts of this.
const WHOLE: u64 = 1 << 32;

/// The full quota of a limit that was forgotten and stays so.
const GONE: u64 = u64::MAX;

/// What is known of every limit by number. A limit that is not known any more is worth nothing: its slots are free.
#[derive(Debug)]
pub(super) struct Worths {
    limits: Box<[Entry]>,
}

/// One limit, in its state's own measure: debt in nanoseconds for buckets, a count for windows.
#[derive(Debug, Default)]
struct Entry {
    /// A full quota; zero for a limit that is not known yet, [`GONE`] for one that is gone.
    full: AtomicU64,
    /// The use above which not even one more unit is admitted.
    denied_above: AtomicU64,
    /// How long after its first word's instant a state still counts: two windows for a sliding counter, which stores
    /// when its window began; nothing for the rest, which store when they end.
    tail: AtomicU64,
}

/// What a state is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Worth {
    /// Nothing: the state has expired or its limit is gone.
    Nothing,
    /// So much of the quota is used; losing the state forgives that much.
    Used(u64),
    /// The key is being denied; losing the state would admit it.
    Denied,
}

impl Worths {
    pub(super) fn new() -> Self {
        let mut limits = Vec::new();
        limits.resize_with(LIMITS, Entry::default);
        Self {
            limits: limits.into_boxed_slice(),
        }
    }

    /// Makes a limit known. Called again for a changed quota or another tier, the larger one counts.
    pub(super) fn learn(&self, id: LimitId, limit: &Limit) {
        let Some(entry) = self.limits.get(usize::from(id.0.get())) else {
            return;
        };
        let (full, denied_above, tail) = measure(limit);
        entry
            .denied_above
            .fetch_max(denied_above, Ordering::Relaxed);
        entry.tail.fetch_max(tail, Ordering::Relaxed);
        entry
            .full
            .fetch_max(full.clamp(1, GONE - 1), Ordering::Relaxed);
    }

    /// Makes a limit known unless it is already, or was forgotten: states of a limit that nobody announced are worth
    /// keeping too.
    pub(super) fn know(&self, id: LimitId, limit: &Limit) {
        let entry = self.limits.get(usize::from(id.0.get()));
        if entry.is_some_and(|entry| entry.full.load(Ordering::Relaxed) == 0) {
            self.learn(id, limit);
        }
    }

    /// Forgets a limit: its slots are free from now on.
    pub(super) fn forget(&self, id: LimitId) {
        if let Some(entry) = self.limits.get(usize::from(id.0.get())) {
            entry.full.store(GONE, Ordering::Relaxed);
        }
    }

    /// What a state of one or two words is worth under the limit of this number.
    pub(super) fn of<const W: usize>(&self, limit: u16, state: [u64; W], now: Timestamp) -> Worth {
        let Some(entry) = self.limits.get(usize::from(limit)) else {
            return Worth::Nothing;
        };
        let full = entry.full.load(Ordering::Relaxed);
        let tail = entry.tail.load(Ordering::Relaxed);
        let [first, second] = [state.first(), state.get(1)].map(Option::<&u64>::copied);
        let until = first.unwrap_or(0).saturating_add(tail);
        if full == 0 || full == GONE || until <= now.as_nanos() {
            return Worth::Nothing;
        }
        let used = match second {
            None => until.saturating_sub(now.as_nanos()),
            Some(count) if tail == 0 => count,
            Some(counts) => (counts >> 32).saturating_add(counts & 0xffff_ffff),
        };
        if used > entry.denied_above.load(Ordering::Relaxed) {
            return Worth::Denied;
        }
        let part = u128::from(used).wrapping_mul(u128::from(WHOLE)) / u128::from(full);
        Worth::Used(u64::try_from(part).unwrap_or(u64::MAX))
    }
}

fn measure(limit: &Limit) -> (u64, u64, u64) {
    let bucket = |units: u64, interval: u64| {
        let full = units.saturating_mul(interval);
        (full, full.saturating_sub(interval), 0)
    };
    let count = |units: u64, tail| (units, units.saturating_sub(1), tail);
    match limit.quota() {
        Quota::TokenBucket(quota) => {
            let (full, interval) = (quota.refill().as_nanos(), quota.interval().as_nanos());
            (full, full.saturating_sub(interval), 0)
        }
        Quota::LeakyBucket(quota) => bucket(quota.limit(), quota.interval().as_nanos()),
        Quota::FixedWindow(quota) => count(quota.limit(), 0),
        Quota::SlidingCounter(quota) => {
            count(quota.limit(), quota.window().as_nanos().saturating_mul(2))
        }
        Quota::SlidingLog(quota) => count(quota.limit(), 0),
        Quota::Concurrency(quota) => count(quota.limit(), 0),
        _ => (1, 0, 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::num::NonZeroU16;
    use tollgate_core::{Nanos, Rate, SlidingCounter, TokenBucket};

    const ID: LimitId = LimitId(NonZeroU16::MIN);

    #[test]
    fn a_state_is_worth_what_losing_it_would_forgive() {
        let worths = Worths::new();
        let anything = worths.of(1, [u64::MAX >> 1], Timestamp::EPOCH);
        assert_eq!(anything, Worth::Nothing, "no such limit");
        let quota = TokenBucket::at(Rate::per_second(1))
            .burst(4)
            .build()
            .unwrap();
        worths.learn(ID, &quota.into());
        let (now, second) = (Timestamp::from_secs(100), 1_000_000_000);
        let of = |ahead| worths.of(1, [now.as_nanos() + ahead], now);
        assert_eq!(of(0), Worth::Nothing);
        assert_eq!(of(second), Worth::Used(WHOLE / 4));
        assert_eq!(of(3 * second), Worth::Used(WHOLE / 4 * 3));
        assert_eq!(of(3 * second + 1), Worth::Denied);
        worths.forget(ID);
        worths.know(ID, &quota.into());
        let forgotten = worths.of(1, [now.as_nanos() + second], now);
        assert_eq!(
            forgotten,
            Worth::Nothing,
            "a straggler does not bring it back"
        );
    }

    #[test]
    fn windows_are_worth_their_counts_until_they_end() {
        let worths = Worths::new();
        let minute = SlidingCounter::of(100, Nanos::MINUTE).build().unwrap();
        worths.learn(ID, &minute.into());
        let at = Timestamp::from_secs;
        let state = [60_000_000_000, (10 << 32) | 15];
        assert_eq!(worths.of(1, state, at(100)), Worth::Used(WHOLE / 4));
        assert_eq!(worths.of(1, state, at(179)), Worth::Used(WHOLE / 4));
        assert_eq!(worths.of(1, state, at(180)), Worth::Nothing);
    }

    #[test]
    fn the_order_of_worth_is_the_order_of_staying() {
        assert!(Worth::Nothing < Worth::Used(1));
        assert!(Worth::Used(1) < Worth::Used(2));
        assert!(Worth::Used(u64::MAX) < Worth::Denied);
    }
}
