//! The operations that return an [`Admission`]: spend, peek, take, charge, refund.
//!
//! Must not know: how state is kept, how to wait.

use tollgate_store as store;
use tollgate_store::{Clock, IdentifiedLimit, Op, QuotaCheck, Store as _, StoreReply};

use crate::active_limits::{ActiveLimit, ActiveLimits};
use crate::admission::Admission;
use crate::error::Error;
use crate::key::AsKey;
use crate::limiter::{Limiter, LimiterInner};
use crate::limits::MAX_LIMITS;

/// How often `take_up_to` retries after a concurrent caller spent units between its peek and its spend.
pub(crate) const MAX_TAKE_ATTEMPTS: usize = 64;

impl<C: Clock> Limiter<C> {
    /// Spends like [`check_n`](Self::check_n) and returns the status of every limit, the time to wait if a limit is a queue,
    /// and the receipt that a [`refund`](Self::refund) needs.
    ///
    /// # Errors
    /// A limit denies, or the key is too long.
    pub fn spend(&self, key: impl AsKey, cost: u64) -> Result<Admission, Error> {
        self.shared.spend(&key.as_key()?, cost)
    }

    /// Returns the status of every limit for this key. Changes nothing and never denies.
    ///
    /// ```
    /// use tollgate::Limiter;
    ///
    /// let limiter = Limiter::per_minute(60).build()?;
    /// assert_eq!(limiter.peek("alice")?.tightest().remaining, 60);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The key is too long.
    pub fn peek(&self, key: impl AsKey) -> Result<Admission, Error> {
        self.peek_n(key, 0)
    }

    /// Returns what [`spend`](Self::spend) would return now, without spending.
    ///
    /// # Errors
    /// A limit would deny, or the key is too long.
    pub fn peek_n(&self, key: impl AsKey, cost: u64) -> Result<Admission, Error> {
        let shared = &*self.shared;
        shared.decide(
            &shared.active_limits(),
            &key.as_key()?,
            cost,
            Op::Peek(cost),
        )
    }

    /// Spends up to `most` units: as many as every limit has left, but at least one. [`Admission::cost`] says how many were spent.
    ///
    /// ```
    /// use tollgate::Limiter;
    ///
    /// let limiter = Limiter::per_minute(60).build()?;
    /// assert_eq!(limiter.take_up_to("mail", 50)?.cost(), 50);
    /// assert_eq!(limiter.take_up_to("mail", 50)?.cost(), 10);
    /// assert!(limiter.take_up_to("mail", 50).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Not even one unit is left, or the key is too long.
    pub fn take_up_to(&self, key: impl AsKey, most: u64) -> Result<Admission, Error> {
        self.shared.take_up_to(&key.as_key()?, most)
    }

    /// Charges `cost` units for work that is already done, even if they are not available. The debt of each limit is bounded
    /// by its overdraft. Never denies.
    ///
    /// # Errors
    /// The key is too long.
    pub fn charge(&self, key: impl AsKey, cost: u64) -> Result<Admission, Error> {
        let shared = &*self.shared;
        let op = Op::ChargeAlways(cost);
        let mut admission = shared.decide(&shared.active_limits(), &key.as_key()?, cost, op)?;
        admission.set_cost_to_receipts();
        Ok(admission)
    }

    /// Refunds a charge to the key that it was made on. The admission is consumed, so a charge is refunded at most once. Units
    /// that were refilled since are not refunded: a refund after the bucket is full changes nothing.
    ///
    /// ```
    /// use tollgate::Limiter;
    ///
    /// let limiter = Limiter::per_day(5).build()?;
    /// let admission = limiter.spend("alice", 5)?;
    /// limiter.refund("alice", admission)?;
    /// assert_eq!(limiter.peek("alice")?.tightest().remaining, 5);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The key is too long.
    pub fn refund(&self, key: impl AsKey, admission: Admission) -> Result<(), Error> {
        self.shared.settle(&key.as_key()?, &admission, 0)
    }
}

impl<C: Clock> LimiterInner<C> {
    pub(crate) fn spend(&self, key: &store::StoreKey<'_>, cost: u64) -> Result<Admission, Error> {
        self.decide(&self.active_limits(), key, cost, Op::Spend(cost))
    }

    fn take_up_to(&self, key: &store::StoreKey<'_>, most: u64) -> Result<Admission, Error> {
        let limits = self.active_limits();
        if let [_] = limits.list() {
            let mut admission = self.decide(&limits, key, most.min(1), Op::SpendUpTo(most))?;
            admission.set_cost_to_receipts();
            return Ok(admission);
        }
        // Every limit must be charged the same cost, so peek first. If a concurrent caller spends in between, peek again.
        let mut last = Ok(());
        for _ in 0..MAX_TAKE_ATTEMPTS {
            let there = self.decide(&limits, key, 0, Op::Peek(0))?;
            let cost = there.room_for(most);
            match self.decide(&limits, key, cost, Op::Spend(cost)) {
                Err(Error::Denied(denial)) if cost > 1 => last = Err(denial),
                reply => return reply,
            }
        }
        last?;
        self.decide(&limits, key, 1, Op::Spend(1))
    }

    /// Corrects a charge to `actual` on every limit that was charged and is still active.
    pub(crate) fn settle(
        &self,
        key: &store::StoreKey<'_>,
        admission: &Admission,
        actual: u64,
    ) -> Result<(), Error> {
        self.settle_with(&self.active_limits(), key, admission, actual)
    }

    pub(crate) fn settle_with(
        &self,
        limits: &ActiveLimits,
        key: &store::StoreKey<'_>,
        admission: &Admission,
        actual: u64,
    ) -> Result<(), Error> {
        let checks: Vec<_> = settlement_ops(limits, admission, actual)
            .map(|(limit, op)| QuotaCheck {
                key: *key,
                limit,
                op,
            })
            .collect();
        let mut replies = [StoreReply::EMPTY; MAX_LIMITS];
        if let Some(replies) = replies.get_mut(..checks.len()) {
            let _admitted = self.table.memory.decide(&checks, replies)?;
        }
        Ok(())
    }
}

/// The operations that correct a charge to `actual`, one for each limit that was charged and is still active.
pub(crate) fn settlement_ops<'a>(
    limits: &'a ActiveLimits,
    admission: &'a Admission,
    actual: u64,
) -> impl Iterator<Item = (&'a IdentifiedLimit, Op)> {
    admission
        .limits_with_replies()
        .filter_map(move |(old, reply)| {
            // A limit that was replaced by another has other state, on which this charge was not made.
            let same = |limit: &&ActiveLimit| limit.identified.id == old.identified.id;
            let limit = limits.list().iter().find(same)?;
            let receipt = reply.receipt;
            Some((&limit.identified, Op::Settle { receipt, actual }))
        })
}
