//! The short ways through the store, for those who spend from token buckets and ask for no more than the verdict.
//!
//! Each decides exactly as a batch would; whatever is not short is left to one. Must not know: other algorithms and
//! operations, how room is made.

use tollgate_core::compose::BatchOutcome;
use tollgate_core::{Outcome, TokenBucket};

use super::hash::StateHash;
use super::sync::back_off;
use super::{MemoryStore, fast_path};
use crate::clock::Clock;
use crate::contract::{IdentifiedLimit, LimitId, Op, QuotaCheck, Store as _, StoreReply};
use crate::key::StoreKey;
use crate::store_error::StoreError;

impl<C: Clock> MemoryStore<C> {
    /// Spends from one token bucket: the shortest way through the store, for those who have just one limit.
    #[inline]
    pub fn spend(
        &self,
        key: &StoreKey<'_>,
        id: LimitId,
        quota: &TokenBucket,
        cost: u64,
    ) -> Outcome {
        let place = self.secret.hash_state(key, id);
        // Most keys live in their favourite slot and nobody holds it. Then a denial only reads, and an admission takes
        // the bit just to write: if the state is no longer the one that was decided on, it is not to be had. The clock is
        // read after the state, so nothing decided later can be in what was seen.
        if let Some((slot, tat)) = self.word_table.peek(place) {
            let transition = quota.decide(tat, self.now(), cost);
            match transition.next {
                None => return transition.outcome,
                Some(next) if next >= tat => {
                    if let Some(mut slot) = slot.lock_if(tat)
                        && slot.tag() == place.tag()
                    {
                        slot.set([next]);
                        return transition.outcome;
                    }
                    back_off();
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
        place: StateHash,
        quota: &TokenBucket,
        cost: u64,
    ) -> Outcome {
        // Read before the slot is taken, so that it is held no longer than it must be. The decision counts as made
        // at this instant, which lies within the call; that is what the promised bound speaks of.
        let now = self.now();
        let Some(mut slot) = self.word_table.lock_slot(place) else {
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
        let digest = self.secret.hash_key(key);
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
        let ruled: Vec<IdentifiedLimit> = buckets
            .iter()
            .map(|(id, quota)| IdentifiedLimit {
                id: *id,
                limit: (*quota).into(),
            })
            .collect();
        let op = Op::Spend(cost);
        let check = |ruled| QuotaCheck {
            key: *key,
            limit: ruled,
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
        let ruled = IdentifiedLimit {
            id,
            limit: (*quota).into(),
        };
        let check = QuotaCheck {
            key: *key,
            limit: &ruled,
            op: Op::Spend(cost),
        };
        self.decide_array([check])
            .map_or(Outcome::Never, |(verdict, _)| verdict.outcome())
    }
}
