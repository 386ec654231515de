//! What a slot's state is worth keeping, by limit: how much of its quota a key has used, and whether it is being denied.
//!
//! When a table is full the slot that goes is the one whose loss forgives the least. A slot does not say by which tier of
//! its limit its key is decided, so a state is measured by the largest tier; one that the smallest tier would deny goes only
//! when nothing else is left. Must not know: keys, slots, how the state came about.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tollgate_core::Timestamp;
use tollgate_core::limit::Limit;
use tollgate_core::token_bucket::Tat;

use super::limit_map::LimitMap;
use crate::contract::LimitId;

/// The most tiers of one limit that are told apart. A further one takes the place of the last.
pub(super) const MAX_TIERS: usize = 256;

/// Usage is measured in parts of this.
const FULL_USE: u64 = 1 << 32;

/// The full quota of a limit that was forgotten and stays so.
const REMOVED: u64 = u64::MAX;

/// What is known of every limit by number. A limit that is not known any more is worth nothing: its slots are free.
#[derive(Debug)]
pub(super) struct EvictionPriorities {
    limits: LimitMap<LimitPriority>,
    /// What entries are made of that are not a single quota. Whoever changes an entry holds the lock.
    tiers: Mutex<BTreeMap<u16, LimitTiers>>,
}

/// One limit, all of its tiers together.
#[derive(Debug, Default)]
struct LimitPriority {
    /// A full quota of the largest tier; zero for a limit that is not known yet, [`GONE`] for one that is gone.
    full: AtomicU64,
    /// The use above which no tier admits even one more unit.
    denied_above: AtomicU64,
    /// The use above which some tier does not.
    some_tier_denies_above: AtomicU64,
    /// How long after its first word's instant a state still counts, the longest of all tiers.
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
    known: Vec<TierScale>,
    /// Whether a snapshot told of them: the first that is learnt from a quota in force takes their place.
    is_restored: bool,
}

/// What a state is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum EvictionPriority {
    /// Nothing: the state has expired or its limit is gone.
    Free,
    /// So much of the quota is used; losing the state forgives that much.
    Used(u64),
    /// So much of the largest tier's quota is used, and a key of the smallest would be denied.
    DeniedBySomeTier(u64),
    /// The key is being denied; losing the state would admit it.
    Denied,
}

impl EvictionPriorities {
    pub(super) fn new() -> Self {
        Self {
            limits: LimitMap::new(),
            tiers: Mutex::default(),
        }
    }

    /// Makes a limit known, or a further tier of one. Nothing is allocated for the first: a key that moves in may bring it.
    pub(super) fn add_tier(&self, id: LimitId, limit: &Limit) {
        let measure = TierScale::new(limit);
        self.change(id, |entry, tiers| match tiers {
            None if entry.full.load(Ordering::Relaxed) == 0 => {
                entry.set([measure]);
                None
            }
            tiers => Some(entry.tiers(tiers).with(measure)),
        });
    }

    /// Makes a limit's quota known in the place of another, which counts no more. Other tiers stay as they are.
    pub(super) fn replace_tier(&self, id: LimitId, old: &Limit, new: &Limit) {
        let [old, new] = [old, new].map(TierScale::new);
        self.change(id, |entry, tiers| {
            let mut tiers = entry.tiers(tiers);
            tiers.known.retain(|known| *known != old);
            Some(tiers.with(new))
        });
    }

    /// Makes a limit known unless it is already, or was forgotten: states of a limit that nobody announced are worth
    /// keeping too.
    pub(super) fn add_if_unknown(&self, id: LimitId, limit: &Limit) {
        let entry = self.limits.get(id.0.get());
        if entry.is_none_or(|entry| entry.full.load(Ordering::Relaxed) == 0) {
            self.add_tier(id, limit);
        }
    }

    /// Forgets a limit: its slots are free from now on.
    pub(super) fn remove(&self, id: LimitId) {
        let mut all = self.lock();
        all.remove(&id.0.get());
        if let Some(entry) = self.limits.get_or_default(id.0.get()) {
            entry.full.store(REMOVED, Ordering::Relaxed);
        }
    }

    /// What a snapshot says of a limit, until its quotas are learnt.
    pub(super) fn restore(&self, id: LimitId, measures: Vec<TierScale>) {
        let restored = LimitTiers {
            known: measures,
            is_restored: true,
        };
        self.change(id, |_, _| Some(restored));
    }

    /// All limits that are known, in ascending order, with their tiers.
    pub(super) fn all(&self) -> Vec<(u16, Vec<TierScale>)> {
        let all = self.lock();
        let mut limits = Vec::new();
        for (id, entry) in self.limits.iter() {
            let known = entry.tiers(all.get(&id).cloned()).known;
            if !known.is_empty() {
                limits.push((id, known));
            }
        }
        limits
    }

    /// What a state of one or two words is worth under the limit of this number.
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
        if W == 1 || until <= now.as_nanos() {
            return until;
        }
        let interval = entry.interval.load(Ordering::Relaxed);
        let excess = used.saturating_sub(entry.spare.load(Ordering::Relaxed));
        let owed = |from: u64, units: u64| from.saturating_add(units.saturating_mul(interval));
        // Until the window ends the bucket must not admit more than the window has left; after that nothing is owed.
        owed(now.as_nanos(), used).min(owed(until, excess))
    }

    /// Changes a limit's entry, and its tiers if it has several. What is gone stays gone.
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
            entry.set(tiers.known.iter().copied());
            if tiers.known.len() > 1 || tiers.is_restored {
                all.insert(number, tiers);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u16, LimitTiers>> {
        // Nothing under the lock panics, and an entry is made anew with every change.
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

    /// The tiers, which the entry itself knows if there is only one.
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
                known: vec![single],
                is_restored: false,
            },
        })
    }
}

impl LimitTiers {
    fn with(mut self, measure: TierScale) -> Self {
        if std::mem::take(&mut self.is_restored) {
            self.known.clear();
        }
        if !self.known.contains(&measure) {
            self.known.truncate(MAX_TIERS - 1);
            self.known.push(measure);
        }
        self
    }
}

impl TierScale {
    /// The limit's scale, with a full quota that can be divided by and is none of the marks.
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
    fn a_state_is_worth_what_losing_it_would_forgive() {
        let worths = EvictionPriorities::new();
        let anything = worths.priority_of(1, [u64::MAX >> 1], Timestamp::EPOCH);
        assert_eq!(anything, EvictionPriority::Free, "no such limit");
        let quota = TokenBucket::builder(Rate::per_second(1))
            .burst(4)
            .build()
            .unwrap();
        worths.add_tier(ID, &quota.into());
        let (now, second) = (Timestamp::from_secs(100), 1_000_000_000);
        let of = |ahead| worths.priority_of(1, [now.as_nanos() + ahead], now);
        assert_eq!(of(0), EvictionPriority::Free);
        assert_eq!(of(second), EvictionPriority::Used(FULL_USE / 4));
        assert_eq!(of(3 * second), EvictionPriority::Used(FULL_USE / 4 * 3));
        assert_eq!(of(3 * second + 1), EvictionPriority::Denied);
        worths.remove(ID);
        worths.add_if_unknown(ID, &quota.into());
        let forgotten = worths.priority_of(1, [now.as_nanos() + second], now);
        assert_eq!(
            forgotten,
            EvictionPriority::Free,
            "a straggler does not bring it back"
        );
    }

    fn bucket(burst: u64) -> Limit {
        let bucket = TokenBucket::builder(Rate::per_second(1)).burst(burst);
        bucket.build().unwrap().into()
    }

    /// A key's worth that has used so many units of a bucket.
    fn used(worths: &EvictionPriorities, units: u64) -> EvictionPriority {
        worths.priority_of(1, [units * 1_000_000_000], Timestamp::EPOCH)
    }

    /// The larger of all quotas that a limit had ever had used to count, so after a quota was lowered a key that it denied
    /// seemed to be in little debt, and was the first to be forgiven.
    #[test]
    fn a_replaced_quota_counts_no_more_and_whom_the_lower_one_denies_is_denied() {
        let worths = EvictionPriorities::new();
        worths.add_tier(ID, &bucket(100));
        assert_eq!(used(&worths, 10), EvictionPriority::Used(FULL_USE / 10));
        worths.replace_tier(ID, &bucket(100), &bucket(10));
        assert_eq!(used(&worths, 10), EvictionPriority::Denied);
        assert_eq!(used(&worths, 5), EvictionPriority::Used(FULL_USE / 2));
        worths.replace_tier(ID, &bucket(10), &bucket(100));
        assert_eq!(used(&worths, 10), EvictionPriority::Used(FULL_USE / 10));
    }

    #[test]
    fn tiers_count_until_they_are_replaced_themselves() {
        let worths = EvictionPriorities::new();
        worths.add_tier(ID, &bucket(10));
        worths.add_tier(ID, &bucket(100));
        worths.add_tier(ID, &bucket(100));
        assert_eq!(used(&worths, 9), EvictionPriority::Used(FULL_USE * 9 / 100));
        assert_eq!(
            used(&worths, 50),
            EvictionPriority::DeniedBySomeTier(FULL_USE / 2)
        );
        assert_eq!(used(&worths, 100), EvictionPriority::Denied);
        worths.replace_tier(ID, &bucket(10), &bucket(20));
        assert_eq!(
            used(&worths, 15),
            EvictionPriority::Used(FULL_USE * 15 / 100)
        );
        worths.replace_tier(ID, &bucket(100), &bucket(20));
        assert_eq!(
            used(&worths, 20),
            EvictionPriority::Denied,
            "both tiers are the same"
        );
        worths.remove(ID);
        worths.replace_tier(ID, &bucket(20), &bucket(30));
        assert_eq!(used(&worths, 20), EvictionPriority::Free, "it is gone");
    }

    #[test]
    fn what_a_snapshot_says_counts_until_a_quota_is_learnt() {
        let (worths, again) = (EvictionPriorities::new(), EvictionPriorities::new());
        worths.add_tier(ID, &bucket(10));
        worths.add_tier(ID, &bucket(100));
        for (id, measures) in worths.all() {
            again.restore(LimitId(NonZeroU16::new(id).unwrap()), measures);
        }
        assert_eq!(
            used(&again, 50),
            EvictionPriority::DeniedBySomeTier(FULL_USE / 2)
        );
        assert_eq!(worths.all(), again.all());
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
    fn windows_are_worth_their_counts_until_they_end() {
        let worths = EvictionPriorities::new();
        let minute = SlidingCounter::builder(100, Nanos::MINUTE).build().unwrap();
        worths.add_tier(ID, &minute.into());
        let at = Timestamp::from_secs;
        let state = [60_000_000_000, (10 << 32) | 15];
        assert_eq!(
            worths.priority_of(1, state, at(100)),
            EvictionPriority::Used(FULL_USE / 4)
        );
        assert_eq!(
            worths.priority_of(1, state, at(179)),
            EvictionPriority::Used(FULL_USE / 4)
        );
        assert_eq!(
            worths.priority_of(1, state, at(180)),
            EvictionPriority::Free
        );
    }

    #[test]
    fn the_order_of_worth_is_the_order_of_staying() {
        assert!(EvictionPriority::Free < EvictionPriority::Used(1));
        assert!(EvictionPriority::Used(1) < EvictionPriority::Used(2));
        assert!(EvictionPriority::Used(u64::MAX) < EvictionPriority::DeniedBySomeTier(1));
        assert!(EvictionPriority::DeniedBySomeTier(u64::MAX) < EvictionPriority::Denied);
    }
}
