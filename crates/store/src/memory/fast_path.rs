//! The fast path for the most common batch: every check spends from a token bucket, and every key has a slot.
//!
//! It decides exactly as [`Batch`](super::batch::Batch) does and locks in the same order, but has no insert locks, no
//! shards and no variable states. For any other batch it returns `None`, with nothing locked and nothing changed. Must
//! not know: other operations and algorithms.

use tollgate_core::compose::BatchOutcome;
use tollgate_core::limit::Quota;
use tollgate_core::{Receipt, TokenBucket};

use super::MemoryStore;
use super::group::Slot;
use super::hash::{KeyHash, StateHash};
use super::lock_bit::BitGuard;
use crate::clock::Clock;
use crate::contract::{LimitId, MAX_CHECKS, Op, QuotaCheck, ReplyNote, StoreReply};

/// The slots of at most N keys, not locked yet.
struct SlotLookup<'a, const N: usize> {
    /// Slot and tag of each check.
    slots: [Option<(Slot<'a, 1>, u64)>; N],
    /// The slots' addresses, with the index of the check in the lowest bits, so that sorting moves single words. Unused
    /// elements are `u64::MAX`.
    order: [u64; N],
}

/// Bits for the index of a check.
const INDEX_BITS: u32 = MAX_CHECKS.ilog2();

/// The locked states of the checks. Other threads see changes when a guard is dropped. Small, because it is written
/// between locking one bit and the next.
type LockedStates<'a, const N: usize> = [Option<BitGuard<'a>>; N];

/// Decides at most N checks, or returns `None` if the batch path must decide.
#[inline]
pub(super) fn spend_all<const N: usize, C: Clock>(
    store: &MemoryStore<C>,
    checks: &[QuotaCheck<'_>],
    answers: &mut [StoreReply],
) -> Option<BatchOutcome> {
    let mut found = SlotLookup::<N>::new();
    // Most limits of a request have the same key. It is hashed once.
    let mut last: Option<(&[u8], KeyHash)> = None;
    for (index, check) in checks.iter().enumerate() {
        as_bucket_spend(check)?;
        let key_hash = match (last, check.key.single()) {
            (Some((known, key_hash)), Some(part)) if std::ptr::eq(known, part) => key_hash,
            (_, part) => {
                let key_hash = store.hash_seed.hash_key(&check.key);
                last = part.map(|part| (part, key_hash));
                key_hash
            }
        };
        found.find(store, key_hash.for_limit(check.limit.id), index)?;
    }
    let mut locked: LockedStates<'_, N> = [const { None }; N];
    found.lock(checks.len(), &mut locked)?;
    let now = store.now();
    let mut outcome = BatchOutcome::default();
    let mut before = [0; N];
    for (((check, locked), before), answer) in checks
        .iter()
        .zip(&mut locked)
        .zip(&mut before)
        .zip(&mut *answers)
    {
        let (quota, cost) = as_bucket_spend(check)?;
        let state = locked.as_mut()?;
        *before = state.value();
        let transition = quota.decide(*before, now, cost);
        outcome.add(transition.outcome);
        if let Some(next) = transition.next {
            state.set(next);
        }
        answer.outcome = transition.outcome;
        answer.receipt = transition.receipt;
        answer.note = ReplyNote::Plain;
    }
    let is_admitted = outcome.is_admitted();
    for (((check, locked), before), answer) in
        checks.iter().zip(&mut locked).zip(before).zip(answers)
    {
        let (quota, _) = as_bucket_spend(check)?;
        let state = locked.as_mut()?;
        if !is_admitted && answer.outcome.is_admitted() {
            state.set(before);
            answer.receipt = Receipt::default();
        }
        answer.status = quota.status(state.value(), now);
    }
    Some(outcome)
}

/// Spends the same cost from at most N buckets of one key, or returns `None` if the batch path must decide. It computes
/// only the outcome.
#[inline]
pub(super) fn spend_each<const N: usize, C: Clock>(
    store: &MemoryStore<C>,
    key_hash: KeyHash,
    buckets: &[(LimitId, TokenBucket)],
    cost: u64,
) -> Option<BatchOutcome> {
    let mut found = SlotLookup::<N>::new();
    for (index, (limit, _)) in buckets.iter().enumerate() {
        found.find(store, key_hash.for_limit(*limit), index)?;
    }
    let mut locked: LockedStates<'_, N> = [const { None }; N];
    found.lock(buckets.len(), &mut locked)?;
    let now = store.now();
    let mut outcome = BatchOutcome::default();
    // The states before a charge. A denying bucket may correct its state; that is kept in any case.
    let mut charged = [None; N];
    for (((_, quota), locked), charged) in buckets.iter().zip(&mut locked).zip(&mut charged) {
        let state = locked.as_mut()?;
        let before = state.value();
        let transition = quota.decide(before, now, cost);
        outcome.add(transition.outcome);
        if let Some(next) = transition.next {
            state.set(next);
            *charged = transition.outcome.is_admitted().then_some(before);
        }
    }
    if !outcome.is_admitted() {
        for (state, before) in locked.iter_mut().flatten().zip(charged) {
            state.set(before.unwrap_or(state.value()));
        }
    }
    Some(outcome)
}

impl<'a, const N: usize> SlotLookup<'a, N> {
    #[inline]
    const fn new() -> Self {
        Self {
            slots: [None; N],
            order: [u64::MAX; N],
        }
    }

    /// Finds a key's slot. All slots are looked up before the first is locked, so that the processor fetches them in
    /// parallel.
    #[inline]
    fn find<C: Clock>(
        &mut self,
        store: &'a MemoryStore<C>,
        hash: StateHash,
        index: usize,
    ) -> Option<()> {
        let slot = store.word_table().find(hash)?;
        *self.slots.get_mut(index)? = Some((slot, hash.tag()));
        // Two addresses of a table never differ only in the bits that are shifted out.
        let address = u64::try_from(slot.address()).ok()? << INDEX_BITS;
        *self.order.get_mut(index)? = address | u64::try_from(index).ok()?;
        Some(())
    }

    /// Locks the first `count` checks in the order of their addresses. Fills `taken` in place to avoid a copy.
    #[inline]
    fn lock(&mut self, count: usize, locked: &mut LockedStates<'a, N>) -> Option<()> {
        sort(&mut self.order);
        let mut last = u64::MAX;
        for word in self.order.iter().copied().take(count) {
            // A duplicate key would deadlock. The batch path returns the error.
            let address = word >> INDEX_BITS;
            if address == last {
                return None;
            }
            last = address;
            let index = usize::try_from(word & ((1 << INDEX_BITS) - 1)).ok()?;
            let (found, tag) = self.slots.get(index).copied().flatten()?;
            let slot = found.lock();
            if slot.tag() != tag {
                return None;
            }
            *locked.get_mut(index)? = Some(slot.into_bit());
        }
        Some(())
    }
}

/// Sorts a few words without data-dependent branches: slot addresses are random, so half of the branches would be
/// mispredicted. The networks for four, six and eight words have the fewest comparisons (5, 12 and 19).
#[inline]
fn sort<const N: usize>(words: &mut [u64; N]) {
    #[inline]
    fn exchange(one: &mut u64, other: &mut u64) {
        (*one, *other) = ((*one).min(*other), (*one).max(*other));
    }
    match words.as_mut_slice() {
        [] | [_] => {}
        [a, b] => exchange(a, b),
        [a, b, c, d] => {
            exchange(a, c);
            exchange(b, d);
            exchange(a, b);
            exchange(c, d);
            exchange(b, c);
        }
        [a, b, c, d, e, f] => {
            exchange(b, c);
            exchange(e, f);
            exchange(a, c);
            exchange(d, f);
            exchange(a, b);
            exchange(d, e);
            exchange(c, f);
            exchange(a, d);
            exchange(b, e);
            exchange(c, e);
            exchange(b, d);
            exchange(c, d);
        }
        [a, b, c, d, e, f, g, h] => {
            for (one, other) in [
                (&mut *a, &mut *c),
                (&mut *b, &mut *d),
                (&mut *e, &mut *g),
                (&mut *f, &mut *h),
            ] {
                exchange(one, other);
            }
            for (one, other) in [
                (&mut *a, &mut *e),
                (&mut *b, &mut *f),
                (&mut *c, &mut *g),
                (&mut *d, &mut *h),
            ] {
                exchange(one, other);
            }
            for (one, other) in [
                (&mut *a, &mut *b),
                (&mut *c, &mut *d),
                (&mut *e, &mut *f),
                (&mut *g, &mut *h),
            ] {
                exchange(one, other);
            }
            exchange(c, e);
            exchange(d, f);
            exchange(b, e);
            exchange(d, g);
            exchange(b, c);
            exchange(d, e);
            exchange(f, g);
        }
        many => many.sort_unstable(),
    }
}

/// The bucket and the cost, if the check spends from a token bucket.
#[inline]
const fn as_bucket_spend<'a>(check: &QuotaCheck<'a>) -> Option<(&'a TokenBucket, u64)> {
    match (check.limit.limit.quota(), check.op) {
        (Quota::TokenBucket(quota), Op::Spend(cost)) => Some((quota, cost)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::batch::Batch;
    use super::*;
    use crate::clock::ManualClock;
    use crate::contract::{IdentifiedLimit, LimitId, Store as _};
    use crate::key::StoreKey;
    use std::num::NonZeroU16;
    use tollgate_core::{Nanos, Rate, Timestamp};

    const KEYS: [&[u8]; 3] = [b"a", b"b", b"c"];

    fn rules() -> [IdentifiedLimit; 3] {
        [1, 2, 3].map(|number: u16| IdentifiedLimit {
            id: LimitId(NonZeroU16::new(number).unwrap()),
            limit: TokenBucket::builder(Rate::per_second(u64::from(number)))
                .burst(u64::from(number) * 3)
                .build()
                .unwrap()
                .into(),
        })
    }

    fn store() -> MemoryStore<ManualClock> {
        MemoryStore::with_clock(1_000, ManualClock::at(Timestamp::from_secs(1_000))).unwrap()
    }

    /// A sorting network is correct if it sorts all sequences of zeros and ones.
    #[test]
    fn every_row_of_zeros_and_ones_is_sorted() {
        fn all<const N: usize>() {
            for bits in 0..1_u64 << N {
                let mut words: [u64; N] = std::array::from_fn(|n| (bits >> n) & 1);
                sort(&mut words);
                assert!(words.is_sorted(), "{bits:b}");
                assert_eq!(words.iter().sum::<u64>(), u64::from(bits.count_ones()));
            }
        }
        all::<1>();
        all::<2>();
        all::<4>();
        all::<6>();
        all::<8>();
    }

    /// The fast path must give the same outcomes, replies and states as a batch.
    #[test]
    fn it_decides_exactly_as_a_batch_does() {
        let (short, long, rules) = (store(), store(), rules());
        let mut random = 1_u64;
        let mut draw = |below: u64| {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            usize::try_from((random >> 33) % below).unwrap()
        };
        let (mut fast, mut denied) = (0, 0);
        for _ in 0..20_000 {
            let key = StoreKey::new(KEYS[draw(3)]).unwrap();
            let first = draw(3);
            let checks: Vec<QuotaCheck<'_>> = (0..=draw(3))
                .map(|index| QuotaCheck {
                    key,
                    limit: &rules[(first + index) % 3],
                    op: Op::Spend(draw(4) as u64),
                })
                .collect();
            let mut answers = vec![[StoreReply::EMPTY; 4]; 3];
            let [one, two, three] = &mut answers[..] else {
                unreachable!()
            };
            let (one, two) = (&mut one[..checks.len()], &mut two[..checks.len()]);
            let decided = short.decide(&checks, one);
            let expected = Batch::<4>::decide(&long, &checks, two);
            assert_eq!(format!("{decided:?}"), format!("{expected:?}"));
            assert_eq!(format!("{one:?}"), format!("{two:?}"));
            denied += usize::from(decided.is_ok_and(|outcome| !outcome.is_admitted()));
            let span = Nanos::from_millis(draw(500) as u64);
            short.clock.advance(span);
            long.clock.advance(span);
            let peek: Vec<QuotaCheck<'_>> = checks
                .iter()
                .map(|c| QuotaCheck {
                    op: Op::Spend(0),
                    ..*c
                })
                .collect();
            fast += usize::from(spend_all::<4, _>(&short, &peek, &mut three[..]).is_some());
        }
        assert!(fast > 10_000 && denied > 1_000, "{fast} {denied}");
    }

    /// Several buckets of one key: the same outcome as a batch, without replies.
    #[test]
    fn spending_from_each_bucket_decides_as_a_batch_does() {
        let (short, long, rules) = (store(), store(), rules());
        let buckets = rules.map(|limit| match limit.limit.quota() {
            Quota::TokenBucket(quota) => (limit.id, *quota),
            _ => unreachable!("all rules are buckets"),
        });
        let (mut admitted, mut denied) = (0, 0);
        for round in 0..20_000_u64 {
            let key = StoreKey::new(KEYS[(round % 3) as usize]).unwrap();
            let cost = round / 3 % 5;
            let some = &buckets[..1 + (round / 7 % 3) as usize];
            let outcome = short.spend_all(&key, some, cost).unwrap();
            let checks: Vec<QuotaCheck<'_>> = rules[..some.len()]
                .iter()
                .map(|limit| QuotaCheck {
                    key,
                    limit,
                    op: Op::Spend(cost),
                })
                .collect();
            let mut answers = vec![StoreReply::EMPTY; checks.len()];
            let expected = Batch::<4>::decide(&long, &checks, &mut answers).unwrap();
            assert_eq!(outcome, expected, "round {round}");
            admitted += u32::from(outcome.is_admitted());
            denied += u32::from(!outcome.is_admitted());
            let span = Nanos::from_millis(round * 37 % 400);
            short.clock.advance(span);
            long.clock.advance(span);
        }
        assert!(admitted > 1_000 && denied > 1_000, "{admitted} {denied}");
        for limit in &rules {
            let key = StoreKey::new(KEYS[0]).unwrap();
            assert_eq!(short.inspect(&key, limit), long.inspect(&key, limit));
        }
    }

    #[test]
    fn a_duplicate_key_is_left_to_the_batch_and_nothing_stays_locked() {
        let (store, rules) = (store(), rules());
        let check = QuotaCheck {
            key: StoreKey::new(b"a").unwrap(),
            limit: &rules[0],
            op: Op::Spend(1),
        };
        assert!(store.decide_array([check]).unwrap().0.is_admitted());
        assert!(store.decide_array([check, check]).is_err());
        assert!(
            store.decide_array([check]).unwrap().0.is_admitted(),
            "its bit is free"
        );
    }
}
