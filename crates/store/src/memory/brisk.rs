//! The short way for the commonest batch: every check spends from a token bucket, and every key has its slot.
//!
//! Decides exactly as a [`Batch`](super::batch::Batch) does and takes bits in the same order, but holds nothing that only
//! other batches need: no doors, no shelves, no states that could be collections. Whatever it does not expect, it leaves
//! to the batch, with nothing held and nothing changed. Must not know: what other operations and algorithms mean.

use tollgate_core::compose::Verdict;
use tollgate_core::limit::Quota;
use tollgate_core::token_bucket::Tat;
use tollgate_core::{Receipt, TokenBucket};

use super::Memory;
use super::group::{Owned, Slot};
use super::hash::{Digest, Place};
use crate::clock::Clock;
use crate::contract::{Answer, Check, LimitId, Note, Op};

/// A key's slot, whose bit is not held yet.
#[derive(Clone, Copy)]
struct Found<'a> {
    slot: Slot<'a, 1>,
    tag: u64,
    /// Which check it is for.
    index: usize,
}

/// A check's slot while its bit is held. What is set here is seen by others only once the bit is given back.
struct Taken<'a> {
    slot: Owned<'a, 1>,
    before: Tat,
}

/// Decides on at most N checks, or answers `None` if that is for a batch to do.
#[inline]
pub(super) fn spend_all<const N: usize, C: Clock>(
    memory: &Memory<C>,
    checks: &[Check<'_>],
    answers: &mut [Answer],
) -> Option<Verdict> {
    // Filled in place: as results they would be copied.
    let mut found: [Option<Found<'_>>; N] = [None; N];
    for (index, check) in checks.iter().enumerate() {
        spending(check)?;
        find(
            memory,
            memory.place(&check.key, check.ruled.id),
            index,
            &mut found,
        )?;
    }
    let mut taken: [Option<Taken<'_>>; N] = [const { None }; N];
    take(&found, &mut taken)?;
    let now = memory.now();
    let mut verdict = Verdict::default();
    for ((check, taken), answer) in checks.iter().zip(&mut taken).zip(&mut *answers) {
        let (quota, cost) = spending(check)?;
        let Taken { slot, before } = taken.as_mut()?;
        let transition = quota.decide(*before, now, cost);
        verdict.add(transition.outcome);
        if let Some(next) = transition.next {
            slot.set([next]);
        }
        answer.outcome = transition.outcome;
        answer.receipt = transition.receipt;
        answer.note = Note::Plain;
    }
    let all_admit = verdict.is_admitted();
    for ((check, taken), answer) in checks.iter().zip(&mut taken).zip(answers) {
        let (quota, _) = spending(check)?;
        let Taken { slot, before } = taken.as_mut()?;
        if !all_admit && answer.outcome.is_admitted() {
            slot.set([*before]);
            answer.receipt = Receipt::default();
        }
        let [tat] = slot.state();
        answer.status = quota.status(tat, now);
    }
    Some(verdict)
}

/// Spends the same cost from at most N buckets of one key, or answers `None` if that is for a batch to do. Nothing is
/// told but the verdict, so nothing is computed for it.
#[inline]
pub(super) fn spend_each<const N: usize, C: Clock>(
    memory: &Memory<C>,
    digest: Digest,
    buckets: &[(LimitId, TokenBucket)],
    cost: u64,
) -> Option<Verdict> {
    let mut found: [Option<Found<'_>>; N] = [None; N];
    for (index, (limit, _)) in buckets.iter().enumerate() {
        find(memory, digest.under(*limit), index, &mut found)?;
    }
    let mut taken: [Option<Taken<'_>>; N] = [const { None }; N];
    take(&found, &mut taken)?;
    let now = memory.now();
    let mut verdict = Verdict::default();
    let mut changes = [None; N];
    for (((_, quota), taken), change) in buckets.iter().zip(&taken).zip(&mut changes) {
        let transition = quota.decide(taken.as_ref()?.before, now, cost);
        verdict.add(transition.outcome);
        *change = transition
            .next
            .map(|next| (next, transition.outcome.is_admitted()));
    }
    for (taken, change) in taken.iter_mut().flatten().zip(changes) {
        // A change by a bucket that refuses is a correction, which is due whatever the others say.
        if let Some((next, is_charge)) = change
            && (verdict.is_admitted() || !is_charge)
        {
            taken.slot.set([next]);
        }
    }
    Some(verdict)
}

/// Finds a key's slot and sorts it in by address. All are looked up before the first is taken, so that the processor
/// fetches them side by side.
#[inline]
fn find<'a, const N: usize, C: Clock>(
    memory: &'a Memory<C>,
    place: Place,
    index: usize,
    found: &mut [Option<Found<'a>>; N],
) -> Option<()> {
    *found.get_mut(index)? = Some(Found {
        slot: memory.words().find(place)?,
        tag: place.tag(),
        index,
    });
    // Each sinks to its place: for so few, less work than calling a sort.
    for left in (0..index).rev() {
        let Some([first, second]) = found.get_mut(left..).and_then(<[_]>::first_chunk_mut) else {
            break;
        };
        let address = |found: &Option<Found<'_>>| found.map(|found| found.slot.address());
        if address(first) <= address(second) {
            break;
        }
        std::mem::swap(first, second);
    }
    Some(())
}

/// Takes the bits in the order of their addresses.
#[inline]
fn take<'a, const N: usize>(
    found: &[Option<Found<'a>>; N],
    taken: &mut [Option<Taken<'a>>; N],
) -> Option<()> {
    let mut last = None;
    for found in found.iter().flatten() {
        // The same key twice: taking its bit again would wait forever. The batch says what is wrong.
        let address = Some(found.slot.address());
        if address == last {
            return None;
        }
        last = address;
        let slot = found.slot.take();
        if slot.tag() != found.tag {
            return None;
        }
        let [before] = slot.state();
        *taken.get_mut(found.index)? = Some(Taken { slot, before });
    }
    Some(())
}

/// The bucket and the cost, if that is what the check is about.
#[inline]
const fn spending<'a>(check: &Check<'a>) -> Option<(&'a TokenBucket, u64)> {
    match (check.ruled.limit.quota(), check.op) {
        (Quota::TokenBucket(quota), Op::Spend(cost)) => Some((quota, cost)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::batch::Batch;
    use super::*;
    use crate::clock::ManualClock;
    use crate::contract::{LimitId, Ruled, Store as _};
    use crate::key::Key;
    use std::num::NonZeroU16;
    use tollgate_core::{Nanos, Rate, Timestamp};

    const KEYS: [&[u8]; 3] = [b"a", b"b", b"c"];

    fn rules() -> [Ruled; 3] {
        [1, 2, 3].map(|number: u16| Ruled {
            id: LimitId(NonZeroU16::new(number).unwrap()),
            limit: TokenBucket::at(Rate::per_second(u64::from(number)))
                .burst(u64::from(number) * 3)
                .build()
                .unwrap()
                .into(),
        })
    }

    fn store() -> Memory<ManualClock> {
        Memory::with_clock(1_000, ManualClock::at(Timestamp::from_secs(1_000))).unwrap()
    }

    /// The short way must be a batch in all but speed: the same verdicts, answers and states.
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
        let (mut taken, mut denied) = (0, 0);
        for _ in 0..20_000 {
            let key = Key::of(KEYS[draw(3)]).unwrap();
            let first = draw(3);
            let checks: Vec<Check<'_>> = (0..=draw(3))
                .map(|index| Check {
                    key,
                    ruled: &rules[(first + index) % 3],
                    op: Op::Spend(draw(4) as u64),
                })
                .collect();
            let mut answers = vec![[Answer::EMPTY; 4]; 3];
            let [one, two, three] = &mut answers[..] else {
                unreachable!()
            };
            let (one, two) = (&mut one[..checks.len()], &mut two[..checks.len()]);
            let decided = short.decide(&checks, one);
            let expected = Batch::<4>::decide(&long, &checks, two);
            assert_eq!(format!("{decided:?}"), format!("{expected:?}"));
            assert_eq!(format!("{one:?}"), format!("{two:?}"));
            denied += usize::from(decided.is_ok_and(|verdict| !verdict.is_admitted()));
            let span = Nanos::from_millis(draw(500) as u64);
            short.clock.advance(span);
            long.clock.advance(span);
            let peek: Vec<Check<'_>> = checks
                .iter()
                .map(|c| Check {
                    op: Op::Spend(0),
                    ..*c
                })
                .collect();
            taken += usize::from(spend_all::<4, _>(&short, &peek, &mut three[..]).is_some());
        }
        assert!(taken > 10_000 && denied > 1_000, "{taken} {denied}");
    }

    /// Several buckets of one key, told apart from a batch only by how little is answered.
    #[test]
    fn spending_from_each_bucket_decides_as_a_batch_does() {
        let (short, long, rules) = (store(), store(), rules());
        let buckets = rules.map(|ruled| match ruled.limit.quota() {
            Quota::TokenBucket(quota) => (ruled.id, *quota),
            _ => unreachable!("all rules are buckets"),
        });
        let (mut admitted, mut denied) = (0, 0);
        for round in 0..20_000_u64 {
            let key = Key::of(KEYS[(round % 3) as usize]).unwrap();
            let cost = round / 3 % 5;
            let some = &buckets[..1 + (round / 7 % 3) as usize];
            let verdict = short.spend_all(&key, some, cost).unwrap();
            let checks: Vec<Check<'_>> = rules[..some.len()]
                .iter()
                .map(|ruled| Check {
                    key,
                    ruled,
                    op: Op::Spend(cost),
                })
                .collect();
            let mut answers = vec![Answer::EMPTY; checks.len()];
            let expected = Batch::<4>::decide(&long, &checks, &mut answers).unwrap();
            assert_eq!(verdict, expected, "round {round}");
            admitted += u32::from(verdict.is_admitted());
            denied += u32::from(!verdict.is_admitted());
            let span = Nanos::from_millis(round * 37 % 400);
            short.clock.advance(span);
            long.clock.advance(span);
        }
        assert!(admitted > 1_000 && denied > 1_000, "{admitted} {denied}");
        for ruled in &rules {
            let key = Key::of(KEYS[0]).unwrap();
            assert_eq!(short.inspect(&key, ruled), long.inspect(&key, ruled));
        }
    }

    #[test]
    fn the_same_key_twice_is_left_to_the_batch_and_nothing_stays_held() {
        let (store, rules) = (store(), rules());
        let check = Check {
            key: Key::of(b"a").unwrap(),
            ruled: &rules[0],
            op: Op::Spend(1),
        };
        assert!(store.ask([check]).unwrap().0.is_admitted());
        assert!(store.ask([check, check]).is_err());
        assert!(
            store.ask([check]).unwrap().0.is_admitted(),
            "its bit is free"
        );
    }
}
