//! The short ways through the store, for those who spend from token buckets and ask for no more than the verdict.
//!
//! Each decides exactly as a batch would; whatever is not short is left to one. Must not know: other algorithms and
//! operations, how room is made.

use tollgate_core::compose::BatchOutcome;
use tollgate_core::{Outcome, TokenBucket};

use super::hash::Place;
use super::sync::stand_back;
use super::{Memory, fast_path};
use crate::clock::Clock;
use crate::contract::{LimitId, Op, QuotaCheck, Ruled, Store as _, StoreReply};
use crate::failure::StoreError;
use crate::key::StoreKey;

impl<C: Clock> Memory<C> {
    /// Spends from one token bucket: the shortest way through the store, for those who have just one limit.
    #[inline]
    pub fn spend(
        &self,
        key: &StoreKey<'_>,
        id: LimitId,
        quota: &TokenBucket,
        cost: u64,
    ) -> Outcome {
        let place = self.secret.place(key, id);
        // Most keys live in their favourite slot and nobody holds it. Then a denial only reads, and an admission takes
        // the bit just to write: if the state is no longer the one that was decided on, it is not to be had. The clock is
        // read after the state, so nothing decided later can be in what was seen.
        if let Some((slot, tat)) = self.words.look(place) {
            let transition = quota.decide(tat, self.now(), cost);
            match transition.next {
                None => return transition.outcome,
                Some(next) if next >= tat => {
                    if let Some(mut slot) = slot.take_if(tat)
                        && slot.tag() == place.tag()
                    {
                        slot.set([next]);
                        return transition.outcome;
                    }
                    stand_back();
                }
                // A clock that went back; see `spend_held`.
                Some(_) => {}
            }
        }
        self.spend_held(key, id, place, quota, cost)
    }

    /// The same under the slot's bit, wherever the slot is.
    #[inline(never)]
    fn spend_held(
        &self,
        key: &StoreKey<'_>,
        id: LimitId,
        place: Place,
        quota: &TokenBucket,
        cost: u64,
    ) -> Outcome {
        // Read before the slot is taken, so that it is held no longer than it must be. The decision counts as made
        // at this instant, which lies within the call; that is what the promised bound speaks of.
        let now = self.now();
        let Some(mut slot) = self.words.occupy(place) else {
            return self.spend_first(key, id, quota, cost);
        };
        let [tat] = slot.state();
        let mut transition = quota.decide(tat, now, cost);
        if transition.next.is_some_and(|next| next < tat) {
            // Only a clock that went back lowers a state. Or it was this thread that stood still since it read the clock:
            // then what others have spent meanwhile must not be taken for an error and forgiven.
            transition = quota.decide(tat, self.now(), cost);
        }
        if let Some(next) = transition.next {
            slot.set([next]);
        }
        transition.outcome
    }

    /// Spends the same cost from several token buckets of one key, all or nothing, and answers only the verdict: the
    /// shortest way for several limits.
    ///
    /// # Errors
    /// As [`Store::decide`](crate::Store::decide).
    #[inline]
    pub fn spend_all(
        &self,
        key: &StoreKey<'_>,
        buckets: &[(LimitId, TokenBucket)],
        cost: u64,
    ) -> Result<BatchOutcome, StoreError> {
        let digest = self.secret.digest(key);
        let verdict = match buckets.len() {
            0..=2 => fast_path::spend_each::<2, C>(self, digest, buckets, cost),
            3..=4 => fast_path::spend_each::<4, C>(self, digest, buckets, cost),
            5..=8 => fast_path::spend_each::<8, C>(self, digest, buckets, cost),
            _ => None,
        };
        verdict.map_or_else(|| self.spend_all_first(key, buckets, cost), Ok)
    }

    /// Some key is new, or there are many: the whole way.
    #[inline(never)]
    fn spend_all_first(
        &self,
        key: &StoreKey<'_>,
        buckets: &[(LimitId, TokenBucket)],
        cost: u64,
    ) -> Result<BatchOutcome, StoreError> {
        let ruled: Vec<Ruled> = buckets
            .iter()
            .map(|(id, quota)| Ruled {
                id: *id,
                limit: (*quota).into(),
            })
            .collect();
        let op = Op::Spend(cost);
        let check = |ruled| QuotaCheck {
            key: *key,
            ruled,
            op,
        };
        let checks: Vec<QuotaCheck<'_>> = ruled.iter().map(check).collect();
        self.decide(&checks, &mut vec![StoreReply::EMPTY; checks.len()])
    }

    /// The first request of a key, or the first after its state was given up.
    #[inline(never)]
    fn spend_first(
        &self,
        key: &StoreKey<'_>,
        id: LimitId,
        quota: &TokenBucket,
        cost: u64,
    ) -> Outcome {
        let ruled = Ruled {
            id,
            limit: (*quota).into(),
        };
        let check = QuotaCheck {
            key: *key,
            ruled: &ruled,
            op: Op::Spend(cost),
        };
        self.ask([check])
            .map_or(Outcome::Never, |(verdict, _)| verdict.outcome())
    }
}
