//! The fast path for the most common batch: every check spends from a token bucket, and every key has a slot.
//!
//! It decides exactly as [`Batch`](super::batch::Batch) does, but has no insert locks, no shards and no variable states. It tries to
//! lock without waiting; if it has to wait, it locks in the same order as a batch. For any other batch it returns `None`, with nothing
//! locked and nothing changed. Must not know: other operations and algorithms.

use tollgate_core::compose::BatchOutcome;
use tollgate_core::limit::Quota;
use tollgate_core::{Receipt, Timestamp, TokenBucket};

use super::MemoryStore;
use super::group::Slot;
use super::hash::KeyHash;
use super::lock_bit::BitGuard;
use crate::clock::Clock;
use crate::contract::{LimitId, Op, QuotaCheck, ReplyNote, StoreReply};

/// The slots of at most N keys with their tags, not locked yet. All slots are looked up before the first is locked, so that the
/// processor fetches them in parallel.
type FoundSlots<'a, const N: usize> = [Option<(Slot<'a, 1>, u64)>; N];

/// The locked states of the checks. Other threads see changes when a guard is dropped. Small, because it is written
/// between locking one bit and the next.
type LockedStates<'a, const N: usize> = [Option<BitGuard<'a>>; N];

/// Decides one check without waiting, or returns `None` if another path must decide.
#[inline]
pub(super) fn spend_one<C: Clock>(
    store: &MemoryStore<C>,
    check: &QuotaCheck<'_>,
    answer: &mut StoreReply,
) -> Option<BatchOutcome> {
    let (quota, cost) = as_bucket_spend(check)?;
    let hash = store.hash_state(&check.key, check.limit.id);
    let spent = store.try_spend(hash, quota, cost)?;
    answer.outcome = spent.outcome;
    answer.receipt = spent.receipt;
    answer.note = ReplyNote::Plain;
    answer.status = quota.status(spent.state, spent.now);
    let mut outcome = BatchOutcome::default();
    outcome.add(spent.outcome);
    Some(outcome)
}

/// Decides at most N checks, or returns `None` if the batch path must decide.
#[inline]
pub(super) fn spend_all<const N: usize, C: Clock>(
    store: &MemoryStore<C>,
    checks: &[QuotaCheck<'_>],
    answers: &mut [StoreReply],
) -> Option<BatchOutcome> {
    let mut found: FoundSlots<'_, N> = [None; N];
    let mut hasher = store.hash_seed.hasher();
    for (check, found) in checks.iter().zip(&mut found) {
        as_bucket_spend(check)?;
        let hash = hasher.hash_state(&check.key, check.limit.id);
        *found = Some((store.word_table().find(hash)?, hash.tag()));
    }
    let mut locked: LockedStates<'_, N> = [const { None }; N];
    lock_all(&found, &mut locked)?;
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
        answer.status = quota.status(state.value(), now);
    }
    if !outcome.is_admitted() {
        take_back(checks, answers, &mut locked, &before, now);
    }
    Some(outcome)
}

/// The batch is denied: restores the states of the buckets that admitted.
#[inline(never)]
fn take_back(
    checks: &[QuotaCheck<'_>],
    answers: &mut [StoreReply],
    locked: &mut [Option<BitGuard<'_>>],
    before: &[u64],
    now: Timestamp,
) {
    let states = locked.iter_mut().flatten().zip(before);
    for ((check, answer), (state, before)) in checks.iter().zip(answers).zip(states) {
        if let Some((quota, _)) = as_bucket_spend(check)
            && answer.outcome.is_admitted()
        {
            state.set(*before);
            answer.receipt = Receipt::default();
            answer.status = quota.status(*before, now);
        }
    }
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
    let mut found: FoundSlots<'_, N> = [None; N];
    for ((limit, _), found) in buckets.iter().zip(&mut found) {
        let hash = key_hash.for_limit(*limit);
        *found = Some((store.word_table().find(hash)?, hash.tag()));
    }
    let mut locked: LockedStates<'_, N> = [const { None }; N];
    lock_all(&found, &mut locked)?;
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

/// Locks all slots that were found, in any order: a try never waits, so it cannot deadlock. `None`, with nothing locked when the caller
/// returns, if a slot has another key meanwhile.
#[inline]
fn lock_all<'a, const N: usize>(
    found: &FoundSlots<'a, N>,
    locked: &mut LockedStates<'a, N>,
) -> Option<()> {
    for ((slot, tag), locked_state) in found.iter().flatten().zip(&mut *locked) {
        let Some(guard) = slot.try_lock() else {
            return lock_in_order(found, locked);
        };
        if guard.tag() != *tag {
            return None;
        }
        *locked_state = Some(guard.into_bit());
    }
    Some(())
}

/// The same, if another thread holds one of the slots: waits for it, and locks in the order of addresses as all who wait do.
#[cold]
fn lock_in_order<'a, const N: usize>(
    found: &FoundSlots<'a, N>,
    locked: &mut LockedStates<'a, N>,
) -> Option<()> {
    *locked = [const { None }; N];
    let mut order: [(usize, usize); N] = std::array::from_fn(|index| (usize::MAX, index));
    for ((address, _), (slot, _)) in order.iter_mut().zip(found.iter().flatten()) {
        *address = slot.address();
    }
    order.sort_unstable();
    let mut last = usize::MAX;
    for (address, index) in order {
        let Some((slot, tag)) = found.get(index).copied().flatten() else {
            continue;
        };
        // A duplicate key would deadlock. The batch path returns the error.
        if address == last {
            return None;
        }
        last = address;
        let guard = slot.lock();
        if guard.tag() != tag {
            return None;
        }
        *locked.get_mut(index)? = Some(guard.into_bit());
    }
    Some(())
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
