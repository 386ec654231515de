//! The verbs that answer with more than yes or no: spend, peek, take, charge, refund.
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

/// How often taking as much as there is starts anew because others were faster.
pub(crate) const MAX_TAKE_ATTEMPTS: usize = 64;

impl<C: Clock> Limiter<C> {
    /// Spends like [`check_n`](Self::check_n), and answers where every limit stands, how long to wait where a limit is a
    /// queue, and the proof that a [`refund`](Self::refund) needs.
    ///
    /// # Errors
    /// A limit denies, or the key is too long.
    pub fn spend(&self, key: impl AsKey, cost: u64) -> Result<Admission, Error> {
        self.shared.spend(&key.as_key()?, cost)
    }

    /// Where every limit stands for this key. Changes nothing and never denies.
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

    /// What [`spend`](Self::spend) would answer now, without spending.
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

    /// Spends as much of `most` as every limit has, but at least one. [`Allowed::cost`] says how much it was.
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
    /// There is not even one, or the key is too long.
    pub fn take_up_to(&self, key: impl AsKey, most: u64) -> Result<Admission, Error> {
        self.shared.take_up_to(&key.as_key()?, most)
    }

    /// Spends `cost` units whether or not they are there, for work that is already done. Goes into debt down to the
    /// overdraft of each limit and no further. Never denies.
    ///
    /// # Errors
    /// The key is too long.
    pub fn charge(&self, key: impl AsKey, cost: u64) -> Result<Admission, Error> {
        let shared = &*self.shared;
        let op = Op::ChargeAlways(cost);
        let mut allowed = shared.decide(&shared.active_limits(), &key.as_key()?, cost, op)?;
        allowed.set_cost_to_receipts();
        Ok(allowed)
    }

    /// Gives a charge back to the key that it was made on, once: the proof is used up. What time has already given back is not given back again:
    /// a refund after the bucket has refilled changes nothing.
    ///
    /// ```
    /// use tollgate::Limiter;
    ///
    /// let limiter = Limiter::per_day(5).build()?;
    /// let allowed = limiter.spend("alice", 5)?;
    /// limiter.refund("alice", allowed)?;
    /// assert_eq!(limiter.peek("alice")?.tightest().remaining, 5);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The key is too long.
    pub fn refund(&self, key: impl AsKey, allowed: Admission) -> Result<(), Error> {
        self.shared.settle(&key.as_key()?, &allowed, 0)
    }
}

impl<C: Clock> LimiterInner<C> {
    pub(crate) fn spend(&self, key: &store::StoreKey<'_>, cost: u64) -> Result<Admission, Error> {
        self.decide(&self.active_limits(), key, cost, Op::Spend(cost))
    }

    fn take_up_to(&self, key: &store::StoreKey<'_>, most: u64) -> Result<Admission, Error> {
        let rules = self.active_limits();
        if let [_] = rules.list() {
            let mut allowed = self.decide(&rules, key, most.min(1), Op::SpendUpTo(most))?;
            allowed.set_cost_to_receipts();
            return Ok(allowed);
        }
        // Every limit must be charged the same, so look first; if somebody else takes it meanwhile, look again.
        let mut last = Ok(());
        for _ in 0..MAX_TAKE_ATTEMPTS {
            let there = self.decide(&rules, key, 0, Op::Peek(0))?;
            let cost = there.room_for(most);
            match self.decide(&rules, key, cost, Op::Spend(cost)) {
                Err(Error::Denied(denied)) if cost > 1 => last = Err(denied),
                answer => return answer,
            }
        }
        last?;
        self.decide(&rules, key, 1, Op::Spend(1))
    }

    /// Corrects a charge to `actual` on every limit that was charged and is still in force.
    pub(crate) fn settle(
        &self,
        key: &store::StoreKey<'_>,
        allowed: &Admission,
        actual: u64,
    ) -> Result<(), Error> {
        self.settle_with(&self.active_limits(), key, allowed, actual)
    }

    pub(crate) fn settle_with(
        &self,
        rules: &ActiveLimits,
        key: &store::StoreKey<'_>,
        allowed: &Admission,
        actual: u64,
    ) -> Result<(), Error> {
        let checks: Vec<_> = settlement_ops(rules, allowed, actual)
            .map(|(ruled, op)| QuotaCheck {
                key: *key,
                limit: ruled,
                op,
            })
            .collect();
        let mut answers = [StoreReply::EMPTY; MAX_LIMITS];
        if let Some(answers) = answers.get_mut(..checks.len()) {
            let _admitted = self.table.memory.decide(&checks, answers)?;
        }
        Ok(())
    }
}

/// What corrects a charge to `actual`, on every limit that it was made on and that is still in force.
pub(crate) fn settlement_ops<'a>(
    rules: &'a ActiveLimits,
    allowed: &'a Admission,
    actual: u64,
) -> impl Iterator<Item = (&'a IdentifiedLimit, Op)> {
    allowed
        .limits_with_replies()
        .filter_map(move |(old, answer)| {
            // A limit that was replaced by another has other state, which this charge was not made on.
            let same = |rule: &&ActiveLimit| rule.identified.id == old.identified.id;
            let rule = rules.list().iter().find(same)?;
            let receipt = answer.receipt;
            Some((&rule.identified, Op::Settle { receipt, actual }))
        })
}
