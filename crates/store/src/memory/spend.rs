//! Fast paths for callers that spend from token buckets and need only the outcome.
//!
//! Each decides exactly as a batch would and leaves all other cases to a batch. Must not know: other algorithms and
//! operations, how room is made.

use tollgate_core::compose::BatchOutcome;
use tollgate_core::token_bucket::Tat;
use tollgate_core::{Outcome, Receipt, Timestamp, TokenBucket, Transition};

use super::hash::StateHash;
use super::sync::back_off;
use super::{MemoryStore, fast_path};
use crate::clock::Clock;
use crate::contract::{IdentifiedLimit, LimitId, Op, QuotaCheck, Store as _, StoreReply};
use crate::key::StoreKey;
use crate::store_error::StoreError;

/// What [`try_spend`](MemoryStore::try_spend) decided, and the state after it.
pub(super) struct BucketSpend {
    pub(super) outcome: Outcome,
    pub(super) receipt: Receipt,
    pub(super) now: Timestamp,
    pub(super) state: Tat,
}

impl<C: Clock> MemoryStore<C> {
    /// Spends from one token bucket: the fastest way through the store for a single limit.
    #[inline]
    pub fn spend(
        &self,
        key: &StoreKey<'_>,
        id: LimitId,
        quota: &TokenBucket,
        cost: u64,
    ) -> Outcome {
        let hash = self.hash_seed.hash_state(key, id);
        match self.try_spend(hash, quota, cost) {
            Some(spent) => spent.outcome,
            None => self.spend_locked(key, id, hash, quota, cost),
        }
    }

    /// Spends from one bucket without waiting. `None`, with nothing changed, if the key is not in its primary group or another thread
    /// uses it.
    ///
    /// Most keys are in their primary group, in an unlocked slot. Then a denial only reads. An admission locks just to write, and
    /// `lock_if` fails if the state has changed since it was read. The clock is read after the state, so the state contains no later
    /// decision.
    ///
    /// Always inlined: a caller that needs only the outcome does not pay for the receipt and the state.
    #[inline(always)]
    pub(super) fn try_spend(
        &self,
        hash: StateHash,
        quota: &TokenBucket,
        cost: u64,
    ) -> Option<BucketSpend> {
        let (slot, tat) = self.word_table.peek(hash)?;
        let now = self.now();
        let Transition {
            outcome,
            next,
            receipt,
        } = quota.decide(tat, now, cost);
        let state = match next {
            None => tat,
            Some(next) if next >= tat => {
                let written = slot.lock_if(tat).filter(|slot| slot.tag() == hash.tag());
                let Some(mut slot) = written else {
                    back_off();
                    return None;
                };
                slot.set([next]);
                next
            }
            // The clock went back; see `spend_locked`.
            Some(_) => return None,
        };
        Some(BucketSpend {
            outcome,
            receipt,
            now,
            state,
        })
    }

    /// The same with the slot locked, wherever it is.
    #[inline(never)]
    fn spend_locked(
        &self,
        key: &StoreKey<'_>,
        id: LimitId,
        hash: StateHash,
        quota: &TokenBucket,
        cost: u64,
    ) -> Outcome {
        // Read the clock before locking, to hold the lock as briefly as possible. The decision counts as made at this
        // instant, which lies within the call, as the promised bound requires.
        let now = self.now();
        let Some(mut slot) = self.word_table.lock_slot(hash) else {
            return self.spend_new_key(key, id, quota, cost);
        };
        let [tat] = slot.state();
        let mut transition = quota.decide(tat, now, cost);
        if transition.next.is_some_and(|next| next < tat) {
            // Only a clock that went back lowers a state. But this thread may also have been suspended since it read
            // the clock; then it must not refund what others have spent meanwhile. So decide again at the present time.
            transition = quota.decide(tat, self.now(), cost);
        }
        if let Some(next) = transition.next {
            slot.set([next]);
        }
        transition.outcome
    }

    /// Spends the same cost from several token buckets of one key, all or nothing, and returns only the outcome: the
    /// fastest way for several limits.
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
        let key_hash = self.hash_seed.hash_key(key);
        let outcome = match buckets.len() {
            0..=2 => fast_path::spend_each::<2, C>(self, key_hash, buckets, cost),
            3..=4 => fast_path::spend_each::<4, C>(self, key_hash, buckets, cost),
            5..=8 => fast_path::spend_each::<8, C>(self, key_hash, buckets, cost),
            _ => None,
        };
        outcome.map_or_else(|| self.spend_all_as_batch(key, buckets, cost), Ok)
    }

    /// A key is new, or there are more than eight buckets: decide as a batch.
    #[inline(never)]
    fn spend_all_as_batch(
        &self,
        key: &StoreKey<'_>,
        buckets: &[(LimitId, TokenBucket)],
        cost: u64,
    ) -> Result<BatchOutcome, StoreError> {
        let limits: Vec<IdentifiedLimit> = buckets
            .iter()
            .map(|(id, quota)| IdentifiedLimit {
                id: *id,
                limit: (*quota).into(),
            })
            .collect();
        let op = Op::Spend(cost);
        let check = |limit| QuotaCheck {
            key: *key,
            limit,
            op,
        };
        let checks: Vec<QuotaCheck<'_>> = limits.iter().map(check).collect();
        self.decide(&checks, &mut vec![StoreReply::EMPTY; checks.len()])
    }

    /// The key has no slot: it is new, or its state was evicted.
    #[inline(never)]
    fn spend_new_key(
        &self,
        key: &StoreKey<'_>,
        id: LimitId,
        quota: &TokenBucket,
        cost: u64,
    ) -> Outcome {
        let limit = IdentifiedLimit {
            id,
            limit: (*quota).into(),
        };
        let check = QuotaCheck {
            key: *key,
            limit: &limit,
            op: Op::Spend(cost),
        };
        self.decide_array([check])
            .map_or(Outcome::Never, |(outcome, _)| outcome.outcome())
    }
}
