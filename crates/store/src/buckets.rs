//! A first state in memory: one token bucket limit, many keys, a fixed number of bytes.
//!
//! A set-associative table of short locked groups. It never grows, sweeps or resizes: a bucket whose instant has passed
//! is a full bucket, so its slot is free. Must not know: what a key means, how a decision is worded.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use tollgate_core::token_bucket::Tat;
use tollgate_core::{Nanos, Outcome, Status, Timestamp, TokenBucket};

use crate::clock::Clock;
use crate::error::InvalidSize;
use crate::fingerprint::Secret;
use crate::group::{Group, SLOTS_PER_GROUP, Slot};
use crate::key::{Key, KeyTooLong};

/// The most keys that a table can be made for.
pub(crate) const MAX_KEYS: usize = 1 << 30;

/// Slots for each key asked for. Keys spread over groups unevenly; with as many slots as keys one key in seven would
/// find its group full, with twice as many fewer than one in a hundred does.
const SLOTS_PER_KEY: usize = 2;

/// The buckets of one limit, one for each key in use.
///
/// ```
/// use tollgate_core::{Nanos, Outcome, Rate, Timestamp, TokenBucket};
/// use tollgate_store::{Buckets, ManualClock};
///
/// let quota = TokenBucket::at(Rate::per_second(10)).burst(1).build()?;
/// let buckets = Buckets::new(quota, 1_000, ManualClock::at(Timestamp::from_secs(1)))?;
///
/// assert_eq!(buckets.decide(b"alice", 1)?.outcome, Outcome::Allow);
/// let retry_after = Nanos::from_millis(100);
/// assert_eq!(buckets.decide(b"alice", 1)?.outcome, Outcome::Deny { retry_after });
/// assert_eq!(buckets.decide(b"bob", 1)?.outcome, Outcome::Allow);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Buckets<C> {
    quota: TokenBucket,
    clock: C,
    secret: Secret,
    groups: Box<[Mutex<Group>]>,
    forgiven: AtomicU64,
}

/// The answer to one request, all from one state at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Whether it was admitted.
    pub outcome: Outcome,
    /// What is left afterwards.
    pub status: Status,
    /// Time until one more unit is there. Zero if something remains, or if nothing is ever admitted.
    pub more_after: Nanos,
}

impl<C: Clock> Buckets<C> {
    /// A table for about `keys` keys in use at the same time. All of its memory is taken now, about 50 bytes a key.
    ///
    /// # Errors
    /// The number must be 1 to [`MAX_KEYS`], and there must be memory for it.
    pub fn new(quota: TokenBucket, keys: usize, clock: C) -> Result<Self, InvalidSize> {
        let invalid = |reason| InvalidSize { keys, reason };
        if keys == 0 {
            return Err(invalid("it must be at least 1"));
        }
        if keys > MAX_KEYS {
            return Err(invalid("it must be at most 1073741824"));
        }
        let count = keys.saturating_mul(SLOTS_PER_KEY).div_ceil(SLOTS_PER_GROUP);
        let mut groups = Vec::new();
        if groups.try_reserve_exact(count).is_err() {
            return Err(invalid("there is not enough memory for it"));
        }
        groups.resize_with(count, Mutex::default);
        Ok(Self {
            quota,
            clock,
            secret: Secret::default(),
            groups: groups.into_boxed_slice(),
            forgiven: AtomicU64::new(0),
        })
    }

    /// Spends `cost` units of `key`'s bucket, or none. A cost of zero looks without spending.
    ///
    /// # Errors
    /// The key is too long.
    pub fn decide(&self, key: &[u8], cost: u64) -> Result<Decision, KeyTooLong> {
        Key::of(key)?;
        let fingerprint = self.secret.fingerprint(key);
        let Some(group) = self.groups.get(fingerprint.group(self.groups.len())) else {
            // A group's number is always in bounds. Were it not, a denial is safe where a panic is not.
            return Ok(self.describe(0, Timestamp::EPOCH, Outcome::Never));
        };
        // A panic while the lock was held left whole slots behind: each is written in one assignment.
        let mut group = group.lock().unwrap_or_else(PoisonError::into_inner);
        // Read under the lock, so that the instants a group sees never go back. An older one read before the lock was
        // taken could find its slot already reused, and would mint what it cannot see.
        let now = self.clock.now();

        let tat = group.tat(fingerprint);
        let transition = self.quota.decide(tat, now, cost);
        if let Some(tat) = transition.next
            && group.put(Slot { fingerprint, tat }, now)
        {
            self.forgiven.fetch_add(1, Ordering::Relaxed);
        }
        let tat = transition.next.unwrap_or(tat);
        Ok(self.describe(tat, now, transition.outcome))
    }

    /// The quota that every key has.
    #[must_use]
    pub const fn quota(&self) -> &TokenBucket {
        &self.quota
    }

    /// How many buckets that were still in use have been given up for others. Each forgave a key what it owed, so
    /// where this grows the table is too small.
    #[must_use]
    pub fn forgiven(&self) -> u64 {
        self.forgiven.load(Ordering::Relaxed)
    }

    fn describe(&self, tat: Tat, now: Timestamp, outcome: Outcome) -> Decision {
        let status = self.quota.status(tat, now);
        let more_after = match self.quota.decide(tat, now, 1).outcome {
            Outcome::Deny { retry_after } => retry_after,
            Outcome::Allow | Outcome::Wait(_) | Outcome::Never => Nanos::ZERO,
        };
        Decision {
            outcome,
            status,
            more_after,
        }
    }
}

impl<C> fmt::Debug for Buckets<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buckets")
            .field("quota", &self.quota)
            .field("groups", &self.groups.len())
            .field("forgiven", &self.forgiven)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;
    use crate::key::MAX_KEY_LEN;
    use std::sync::Arc;
    use tollgate_core::Rate;

    const START: Timestamp = Timestamp::from_secs(1_700_000_000);

    /// 10/s with a burst of 20, the demonstration limit.
    fn table(keys: usize) -> (Buckets<Arc<ManualClock>>, Arc<ManualClock>) {
        let quota = TokenBucket::at(Rate::per_second(10)).burst(20);
        let clock = Arc::new(ManualClock::at(START));
        let buckets = Buckets::new(quota.build().unwrap(), keys, Arc::clone(&clock));
        (buckets.unwrap(), clock)
    }

    fn admits<C: Clock>(buckets: &Buckets<C>, key: &str, cost: u64) -> bool {
        let decision = buckets.decide(key.as_bytes(), cost).unwrap();
        decision.outcome.is_admitted()
    }

    /// A table of one group, so that every key meets every other.
    fn one_group() -> (Buckets<Arc<ManualClock>>, Arc<ManualClock>) {
        let (buckets, clock) = table(SLOTS_PER_GROUP / SLOTS_PER_KEY);
        assert_eq!(buckets.groups.len(), 1);
        (buckets, clock)
    }

    #[test]
    fn exactly_the_limit_is_admitted_whatever_the_number_of_threads() {
        let (buckets, _clock) = table(100);
        let admitted = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..100 {
                        let n = u64::from(admits(&buckets, "alice", 1));
                        admitted.fetch_add(n, Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(admitted.into_inner(), 20);
    }

    #[test]
    fn a_decision_tells_one_coherent_story() {
        let (buckets, clock) = table(100);
        let first = buckets.decide(b"alice", 20).unwrap();
        assert_eq!(first.outcome, Outcome::Allow);
        assert_eq!(first.status.remaining, 0);
        assert_eq!(first.status.reset_after, Nanos::from_secs(2));
        assert_eq!(first.more_after, Nanos::from_millis(100));

        clock.advance(Nanos::from_millis(30));
        let second = buckets.decide(b"alice", 1).unwrap();
        let retry_after = Nanos::from_millis(70);
        assert_eq!(second.outcome, Outcome::Deny { retry_after });
        assert_eq!(second.more_after, retry_after);

        let never = buckets.decide(b"bob", 21).unwrap();
        assert_eq!(never.outcome, Outcome::Never);
        assert_eq!(
            (never.status.remaining, never.more_after),
            (20, Nanos::ZERO)
        );
    }

    #[test]
    fn looking_and_being_denied_store_nothing() {
        let (buckets, _clock) = one_group();
        for n in 0..1_000 {
            assert!(admits(&buckets, &format!("looker-{n}"), 0));
            assert!(!admits(&buckets, &format!("asker-{n}"), 21));
        }
        let group = buckets.groups[0].lock().unwrap();
        assert!(group.slots.iter().all(|slot| slot.tat == 0));
    }

    #[test]
    fn a_bucket_that_is_full_again_gives_its_slot_to_the_next_key() {
        let (buckets, clock) = one_group();
        for round in 0..100 {
            for n in 0..SLOTS_PER_GROUP {
                assert!(admits(&buckets, &format!("{round}-{n}"), 20));
            }
            clock.advance(Nanos::from_secs(2));
        }
        assert_eq!(buckets.forgiven(), 0, "nobody owed anything any more");
    }

    #[test]
    fn one_nanosecond_before_it_is_full_a_bucket_is_still_in_use() {
        let (buckets, clock) = one_group();
        for n in 0..SLOTS_PER_GROUP {
            assert!(admits(&buckets, &n.to_string(), 20));
        }
        clock.set(START.after(Nanos::from_nanos(1_999_999_999)));
        assert!(admits(&buckets, "late", 1));
        assert_eq!(buckets.forgiven(), 1);
    }

    #[test]
    fn the_victim_is_the_smallest_debt() {
        let (buckets, _clock) = one_group();
        for n in 1..=8 {
            assert!(admits(&buckets, &format!("owes-{n}"), n));
        }
        assert!(admits(&buckets, "newcomer", 10));
        assert_eq!(buckets.forgiven(), 1);
        let remaining = |key: &str| buckets.decide(key.as_bytes(), 0).unwrap().status.remaining;
        assert_eq!(remaining("owes-1"), 20, "forgiven");
        for n in 2..=8 {
            assert_eq!(remaining(&format!("owes-{n}")), 20 - n);
        }
        assert_eq!(remaining("newcomer"), 10);
    }

    #[test]
    fn a_denied_key_stays_denied_while_fresh_keys_flood_the_table() {
        let (buckets, _clock) = table(64);
        assert!(admits(&buckets, "abuser", 20));
        for n in 0..100_000 {
            assert!(admits(&buckets, &format!("fresh-{n}"), 1));
            if n % 100 == 0 {
                assert!(!admits(&buckets, "abuser", 1), "let off after {n}");
            }
        }
        assert!(buckets.forgiven() > 99_000);
    }

    #[test]
    fn memory_is_what_was_chosen_at_the_start() {
        assert!(size_of::<Mutex<Group>>() <= 200, "25 bytes a slot");
        let (buckets, _clock) = table(1_000);
        let groups = buckets.groups.len();
        assert_eq!(groups, 250);
        for n in 0..50_000 {
            assert!(admits(&buckets, &n.to_string(), 1));
        }
        assert_eq!(buckets.groups.len(), groups);
    }

    #[test]
    fn a_table_for_so_many_keys_rarely_forgives_when_so_many_are_in_use() {
        let (buckets, _clock) = table(10_000);
        for n in 0..10_000 {
            assert!(admits(&buckets, &n.to_string(), 20));
        }
        assert!(buckets.forgiven() < 200, "{}", buckets.forgiven());
    }

    #[test]
    fn keys_at_the_longest_are_limited_and_longer_ones_are_errors() {
        let (buckets, _clock) = table(100);
        let longest = [b'x'; MAX_KEY_LEN];
        assert!(buckets.decide(&longest, 20).unwrap().outcome.is_admitted());
        assert!(!buckets.decide(&longest, 1).unwrap().outcome.is_admitted());
        let error = buckets.decide(&[b'x'; MAX_KEY_LEN + 1], 1).unwrap_err();
        assert_eq!(
            error.to_string(),
            "key: 1025 bytes are too long: the longest key has 1024"
        );
    }

    #[test]
    fn a_clock_that_goes_back_mints_nothing() {
        let (buckets, clock) = table(100);
        assert!(admits(&buckets, "alice", 20));
        clock.set(Timestamp::from_secs(1));
        assert!(!admits(&buckets, "alice", 1));
        clock.advance(Nanos::from_millis(100));
        assert!(admits(&buckets, "alice", 1), "and locks nobody out either");
        assert!(!admits(&buckets, "alice", 1));
    }

    #[test]
    fn a_lock_that_somebody_panicked_under_still_limits() {
        struct Broken(ManualClock, std::sync::atomic::AtomicBool);
        impl Clock for Broken {
            fn now(&self) -> Timestamp {
                assert!(!self.1.load(Ordering::SeqCst), "the clock broke");
                self.0.now()
            }
        }
        let quota = TokenBucket::at(Rate::per_second(10)).burst(20);
        let clock = Broken(ManualClock::at(START), false.into());
        let buckets = Buckets::new(quota.build().unwrap(), 4, clock).unwrap();
        assert!(admits(&buckets, "alice", 19));
        buckets.clock.1.store(true, Ordering::SeqCst);
        let panicked = std::thread::scope(|s| s.spawn(|| admits(&buckets, "alice", 1)).join());
        assert!(panicked.is_err() && buckets.groups[0].is_poisoned());
        buckets.clock.1.store(false, Ordering::SeqCst);
        assert!(admits(&buckets, "alice", 1));
        assert!(!admits(&buckets, "alice", 1));
    }

    #[test]
    fn impossible_sizes_are_refused_with_the_reason() {
        let quota = TokenBucket::at(Rate::per_second(10)).build().unwrap();
        let error = |keys| {
            let clock = ManualClock::at(START);
            let refused = Buckets::new(quota, keys, clock).map(|_| ()).unwrap_err();
            refused.to_string()
        };
        assert_eq!(error(0), "keys: 0 is not valid: it must be at least 1");
        assert_eq!(
            error(MAX_KEYS + 1),
            "keys: 1073741825 is not valid: it must be at most 1073741824"
        );
    }
}
