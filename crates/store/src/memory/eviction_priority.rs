//! Eviction priorities: how much of its quota a key has used, and whether it is being denied.
//!
//! When a table is full, it evicts the state whose loss refunds the least. A slot does not record the tier of its key,
//! so usage is measured by the limit's largest tier. A state that the smallest tier would deny is evicted only if no
//! other state is left. Must not know: keys, slots, how the state came about.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tollgate_core::Timestamp;
use tollgate_core::limit::Limit;
use tollgate_core::token_bucket::Tat;

use super::limit_map::LimitMap;
use crate::contract::LimitId;

/// The most tiers of one limit that are kept. A further tier replaces the last.
pub(super) const MAX_TIERS: usize = 256;

/// Usage is a fraction of this.
const FULL_USE: u64 = 1 << 32;

/// The full quota of a removed limit. It is never added again.
const REMOVED: u64 = u64::MAX;

/// The usage scale of every limit, by id. States of unknown limits have no priority: their slots are free.
#[derive(Debug)]
pub(super) struct EvictionPriorities {
    limits: LimitMap<LimitPriority>,
    /// The tiers of limits that have more than one. Changes of `limits` hold this lock.
    tiers: Mutex<BTreeMap<u16, LimitTiers>>,
}

/// The usage scale of one limit over all of its tiers.
#[derive(Debug, Default)]
struct LimitPriority {
    /// The full quota of the largest tier; 0 for an unknown limit, [`REMOVED`] for a removed one.
    full: AtomicU64,
    /// Above this use no tier admits one more unit.
    denied_above: AtomicU64,
    /// Above this use the smallest tier denies.
    some_tier_denies_above: AtomicU64,
    /// How long after the instant in its first word a state still counts; the maximum over all tiers.
    tail: AtomicU64,
    /// What one unit owes in the bucket that stands in for a window, in nanoseconds, the most of all tiers.
    interval: AtomicU64,
    /// How many units of the window that bucket does not admit at once, the fewest of all tiers.
    spare: AtomicU64,
}

/// How the use of one tier is read from the words of a state, and what stands in for it in a sketch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TierScale {
    /// The use that equals the whole quota.
    pub(super) full: u64,
    /// The use above which not even one more unit is admitted.
    pub(super) denied_above: u64,
    /// How long after the instant in its first word a state still counts, in nanoseconds.
    pub(super) tail: u64,
    /// What one unit owes in [`Limit::stricter_bucket`], in nanoseconds; zero if there is none.
    pub(super) interval: u64,
    /// How many units of the limit that bucket does not admit at once.
    pub(super) spare: u64,
}

/// The tiers of one limit.
#[derive(Clone, Debug, Default)]
struct LimitTiers {
    scales: Vec<TierScale>,
    /// Whether they come from a snapshot. The first tier that is added replaces them.
    is_restored: bool,
}

/// The priority of a state; a higher one is kept longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum EvictionPriority {
    /// The state has expired, or its limit was removed.
    Free,
    /// The used fraction of the quota. Evicting the state refunds that much.
    Used(u64),
    /// The used fraction of the largest tier's quota. A key of the smallest tier would be denied.
    DeniedBySomeTier(u64),
    /// The key is being denied. Evicting the state would admit it.
    Denied,
}

impl EvictionPriorities {
    pub(super) fn new() -> Self {
        Self {
            limits: LimitMap::new(),
            tiers: Mutex::default(),
        }
    }

    /// Adds a limit, or a further tier of one. Allocates nothing for the first tier, because it may be added on the
    /// request path.
    pub(super) fn add_tier(&self, id: LimitId, limit: &Limit) {
        let scale = TierScale::new(limit);
        self.change(id, |entry, tiers| match tiers {
            None if entry.full.load(Ordering::Relaxed) == 0 => {
                entry.set([scale]);
                None
            }
            tiers => Some(entry.tiers(tiers).with(scale)),
        });
    }

    /// Replaces one quota of a limit by another. Other tiers stay.
    pub(super) fn replace_tier(&self, id: LimitId, old: &Limit, new: &Limit) {
        let [old, new] = [old, new].map(TierScale::new);
        self.change(id, |entry, tiers| {
            let mut tiers = entry.tiers(tiers);
            tiers.scales.retain(|scale| *scale != old);
            Some(tiers.with(new))
        });
    }

    /// Adds a limit unless it is known or was removed. So states of limits that were never announced are kept too.
    pub(super) fn add_if_unknown(&self, id: LimitId, limit: &Limit) {
        let entry = self.limits.get(id.0.get());
        if entry.is_none_or(|entry| entry.full.load(Ordering::Relaxed) == 0) {
            self.add_tier(id, limit);
        }
    }

    /// Removes a limit: its slots are free from now on.
    pub(super) fn remove(&self, id: LimitId) {
        let mut all = self.lock();
        all.remove(&id.0.get());
        if let Some(entry) = self.limits.get_or_default(id.0.get()) {
            entry.full.store(REMOVED, Ordering::Relaxed);
        }
    }

    /// Restores a limit's tiers from a snapshot. The first `add_tier` replaces them.
    pub(super) fn restore(&self, id: LimitId, scales: Vec<TierScale>) {
        let restored = LimitTiers {
            scales,
            is_restored: true,
        };
        self.change(id, |_, _| Some(restored));
    }

    /// All known limits with their tiers, in ascending order.
    pub(super) fn all(&self) -> Vec<(u16, Vec<TierScale>)> {
        let all = self.lock();
        let mut limits = Vec::new();
        for (id, entry) in self.limits.iter() {
            let scales = entry.tiers(all.get(&id).cloned()).scales;
            if !scales.is_empty() {
                limits.push((id, scales));
            }
        }
        limits
    }

    /// The priority of a state of one or two words under the limit with this id.
    pub(super) fn priority_of<const W: usize>(
        &self,
        limit: u16,
        state: [u64; W],
        now: Timestamp,
    ) -> EvictionPriority {
        let Some(entry) = self.limits.get(limit) else {
            return EvictionPriority::Free;
        };
        let full = entry.full.load(Ordering::Relaxed);
        let (until, used) = entry.read(state, now);
        if full == 0 || full == REMOVED || until <= now.as_nanos() {
            return EvictionPriority::Free;
        }
        if used > entry.denied_above.load(Ordering::Relaxed) {
            return EvictionPriority::Denied;
        }
        let part = u128::from(used).wrapping_mul(u128::from(FULL_USE)) / u128::from(full);
        let part = u64::try_from(part).unwrap_or(u64::MAX);
        if used > entry.some_tier_denies_above.load(Ordering::Relaxed) {
            return EvictionPriority::DeniedBySomeTier(part);
        }
        EvictionPriority::Used(part)
    }

    /// What a state of one or two words owes as the state of the bucket that stands in for its limit: as much as whichever
    /// tier owes most, so that the bucket admits no more than the state would have.
    pub(super) fn debt_of<const W: usize>(
        &self,
        limit: u16,
        state: [u64; W],
        now: Timestamp,
    ) -> Tat {
        let Some(entry) = self.limits.get(limit) else {
            return 0;
        };
        let (until, used) = entry.read(state, now);
        if W == 1 {
            // The instant itself: what a state remembers after it is not owed.
            return until.saturating_sub(entry.tail.load(Ordering::Relaxed));
        }
        if until <= now.as_nanos() {
            return until;
        }
        let [interval, spare] =
            [&entry.interval, &entry.spare].map(|word| word.load(Ordering::Relaxed));
        window_debt(now, until, used, spare, interval)
    }

    /// Changes a limit and its tiers. A removed limit stays removed.
    fn change(
        &self,
        id: LimitId,
        change: impl FnOnce(&LimitPriority, Option<LimitTiers>) -> Option<LimitTiers>,
    ) {
        let mut all = self.lock();
        let Some(entry) = self.limits.get_or_default(id.0.get()) else {
            return;
        };
        if entry.full.load(Ordering::Relaxed) == REMOVED {
            return;
        }
        let number = id.0.get();
        if let Some(tiers) = change(entry, all.remove(&number)) {
            entry.set(tiers.scales.iter().copied());
            if tiers.scales.len() > 1 || tiers.is_restored {
                all.insert(number, tiers);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u16, LimitTiers>> {
        // Code under the lock does not panic, and every change rebuilds the entry.
        self.tiers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LimitPriority {
    /// Until when a state counts, and what it has used of its quota.
    fn read<const W: usize>(&self, state: [u64; W], now: Timestamp) -> (u64, u64) {
        let tail = self.tail.load(Ordering::Relaxed);
        let [first, second] = [state.first(), state.get(1)].map(Option::<&u64>::copied);
        let until = first.unwrap_or(0).saturating_add(tail);
        let used = match second {
            None => until.saturating_sub(now.as_nanos()),
            Some(count) if tail == 0 => count,
            Some(counts) => (counts >> 32).saturating_add(counts & 0xffff_ffff),
        };
        (until, used)
    }

    fn set(&self, tiers: impl IntoIterator<Item = TierScale>) {
        let widest = |all: (TierScale, u64), next: TierScale| {
            let (largest, least) = all;
            let largest = TierScale {
                full: largest.full.max(next.full),
                denied_above: largest.denied_above.max(next.denied_above),
                tail: largest.tail.max(next.tail),
                interval: largest.interval.max(next.interval),
                spare: largest.spare.min(next.spare),
            };
            (largest, least.min(next.denied_above))
        };
        let alone = tiers.into_iter().map(|tier| (tier, tier.denied_above));
        let Some((largest, least)) = alone.reduce(|all, (next, _)| widest(all, next)) else {
            return;
        };
        self.denied_above
            .store(largest.denied_above, Ordering::Relaxed);
        self.some_tier_denies_above.store(least, Ordering::Relaxed);
        self.tail.store(largest.tail, Ordering::Relaxed);
        self.interval.store(largest.interval, Ordering::Relaxed);
        self.spare.store(largest.spare, Ordering::Relaxed);
        self.full.store(largest.full, Ordering::Relaxed);
    }

    /// The tiers. A single tier is stored in the entry itself.
    fn tiers(&self, several: Option<LimitTiers>) -> LimitTiers {
        let single = || TierScale {
            full: self.full.load(Ordering::Relaxed),
            denied_above: self.denied_above.load(Ordering::Relaxed),
            tail: self.tail.load(Ordering::Relaxed),
            interval: self.interval.load(Ordering::Relaxed),
            spare: self.spare.load(Ordering::Relaxed),
        };
        several.unwrap_or_else(|| match single() {
            TierScale {
                full: 0 | REMOVED, ..
            } => LimitTiers::default(),
            single => LimitTiers {
                scales: vec![single],
                is_restored: false,
            },
        })
    }
}

impl LimitTiers {
    fn with(mut self, scale: TierScale) -> Self {
        if std::mem::take(&mut self.is_restored) {
            self.scales.clear();
        }
        if !self.scales.contains(&scale) {
            self.scales.truncate(MAX_TIERS - 1);
            self.scales.push(scale);
        }
        self
    }
}

/// The debt of a window that ends at `until` and has `used` units, as a state of the bucket that is stricter than the window.
/// A unit costs `interval` there, and `spare` units of the window are not in its burst. Until the window ends the bucket then
/// admits no more than the window has left; after that the window itself would owe nothing.
pub(super) fn window_debt(now: Timestamp, until: u64, used: u64, spare: u64, interval: u64) -> Tat {
    let owed = |from: u64, units: u64| from.saturating_add(units.saturating_mul(interval));
    owed(now.as_nanos(), used).min(owed(until, used.saturating_sub(spare)))
}

impl TierScale {
    /// The limit's scale with a full quota that is not zero and not [`REMOVED`].
    fn new(limit: &Limit) -> Self {
        let scale = limit.usage_scale();
        let bucket = limit.stricter_bucket();
        Self {
            full: scale.full.clamp(1, REMOVED - 1),
            denied_above: scale.denied_above,
            tail: scale.tail,
            interval: bucket.map_or(0, |bucket| bucket.interval().as_nanos()),
            spare: scale
                .full
                .saturating_sub(bucket.map_or(0, |bucket| bucket.limit())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::num::NonZeroU16;
    use tollgate_core::{Nanos, Rate, SlidingCounter, TokenBucket};

    const ID: LimitId = LimitId(NonZeroU16::MIN);

    #[test]
    fn the_priority_of_a_state_is_what_its_loss_would_refund() {
        let priorities = EvictionPriorities::new();
        let anything = priorities.priority_of(1, [u64::MAX >> 1], Timestamp::EPOCH);
        assert_eq!(anything, EvictionPriority::Free, "no such limit");
        let quota = TokenBucket::builder(Rate::per_second(1))
            .burst(4)
            .build()
            .unwrap();
        priorities.add_tier(ID, &quota.into());
        let (now, second) = (Timestamp::from_secs(100), 1_000_000_000);
        let of = |ahead| priorities.priority_of(1, [now.as_nanos() + ahead], now);
        assert_eq!(of(0), EvictionPriority::Free);
        assert_eq!(of(second), EvictionPriority::Used(FULL_USE / 4));
        assert_eq!(of(3 * second), EvictionPriority::Used(FULL_USE / 4 * 3));
        assert_eq!(of(3 * second + 1), EvictionPriority::Denied);
        priorities.remove(ID);
        priorities.add_if_unknown(ID, &quota.into());
        let removed = priorities.priority_of(1, [now.as_nanos() + second], now);
        assert_eq!(
            removed,
            EvictionPriority::Free,
            "a late request does not add it again"
        );
    }

    fn bucket(burst: u64) -> Limit {
        let bucket = TokenBucket::builder(Rate::per_second(1)).burst(burst);
        bucket.build().unwrap().into()
    }

    /// The priority of a key that has used this many units of a bucket.
    fn used(priorities: &EvictionPriorities, units: u64) -> EvictionPriority {
        priorities.priority_of(1, [units * 1_000_000_000], Timestamp::EPOCH)
    }

    /// Regression: the largest quota that a limit had ever had counted. After the quota was lowered, a denied key
    /// seemed to have used little and was evicted first.
    #[test]
    fn a_replaced_quota_no_longer_counts_and_keys_that_the_lower_one_denies_are_denied() {
        let priorities = EvictionPriorities::new();
        priorities.add_tier(ID, &bucket(100));
        assert_eq!(used(&priorities, 10), EvictionPriority::Used(FULL_USE / 10));
        priorities.replace_tier(ID, &bucket(100), &bucket(10));
        assert_eq!(used(&priorities, 10), EvictionPriority::Denied);
        assert_eq!(used(&priorities, 5), EvictionPriority::Used(FULL_USE / 2));
        priorities.replace_tier(ID, &bucket(10), &bucket(100));
        assert_eq!(used(&priorities, 10), EvictionPriority::Used(FULL_USE / 10));
    }

    #[test]
    fn tiers_count_until_they_are_replaced_themselves() {
        let priorities = EvictionPriorities::new();
        priorities.add_tier(ID, &bucket(10));
        priorities.add_tier(ID, &bucket(100));
        priorities.add_tier(ID, &bucket(100));
        assert_eq!(
            used(&priorities, 9),
            EvictionPriority::Used(FULL_USE * 9 / 100)
        );
        assert_eq!(
            used(&priorities, 50),
            EvictionPriority::DeniedBySomeTier(FULL_USE / 2)
        );
        assert_eq!(used(&priorities, 100), EvictionPriority::Denied);
        priorities.replace_tier(ID, &bucket(10), &bucket(20));
        assert_eq!(
            used(&priorities, 15),
            EvictionPriority::Used(FULL_USE * 15 / 100)
        );
        priorities.replace_tier(ID, &bucket(100), &bucket(20));
        assert_eq!(
            used(&priorities, 20),
            EvictionPriority::Denied,
            "both tiers are the same"
        );
        priorities.remove(ID);
        priorities.replace_tier(ID, &bucket(20), &bucket(30));
        assert_eq!(
            used(&priorities, 20),
            EvictionPriority::Free,
            "it was removed"
        );
    }

    #[test]
    fn scales_of_a_snapshot_count_until_a_quota_is_added() {
        let (priorities, again) = (EvictionPriorities::new(), EvictionPriorities::new());
        priorities.add_tier(ID, &bucket(10));
        priorities.add_tier(ID, &bucket(100));
        for (id, scales) in priorities.all() {
            again.restore(LimitId(NonZeroU16::new(id).unwrap()), scales);
        }
        assert_eq!(
            used(&again, 50),
            EvictionPriority::DeniedBySomeTier(FULL_USE / 2)
        );
        assert_eq!(priorities.all(), again.all());
        again.add_if_unknown(ID, &bucket(20));
        assert_eq!(
            used(&again, 50),
            EvictionPriority::DeniedBySomeTier(FULL_USE / 2)
        );
        again.add_tier(ID, &bucket(20));
        assert_eq!(used(&again, 20), EvictionPriority::Denied);
        for burst in 0..2_000 {
            again.add_tier(ID, &bucket(burst + 1));
        }
        assert_eq!(again.all()[0].1.len(), MAX_TIERS);
    }

    #[test]
    fn the_priority_of_a_window_is_its_count_until_it_ends() {
        let priorities = EvictionPriorities::new();
        let minute = SlidingCounter::builder(100, Nanos::MINUTE).build().unwrap();
        priorities.add_tier(ID, &minute.into());
        let at = Timestamp::from_secs;
        let state = [60_000_000_000, (10 << 32) | 15];
        assert_eq!(
            priorities.priority_of(1, state, at(100)),
            EvictionPriority::Used(FULL_USE / 4)
        );
        assert_eq!(
            priorities.priority_of(1, state, at(179)),
            EvictionPriority::Used(FULL_USE / 4)
        );
        assert_eq!(
            priorities.priority_of(1, state, at(180)),
            EvictionPriority::Free
        );
    }

    #[test]
    fn priorities_are_ordered_by_how_long_a_state_is_kept() {
        assert!(EvictionPriority::Free < EvictionPriority::Used(1));
        assert!(EvictionPriority::Used(1) < EvictionPriority::Used(2));
        assert!(EvictionPriority::Used(u64::MAX) < EvictionPriority::DeniedBySomeTier(1));
        assert!(EvictionPriority::DeniedBySomeTier(u64::MAX) < EvictionPriority::Denied);
    }
}
