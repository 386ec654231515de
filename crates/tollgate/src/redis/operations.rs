//! The operations over Redis that return an [`Admission`]: spend, peek, take, charge, refund.
//!
//! Must not know: how calls are made, how to wait.

use tollgate_store::Op;

use super::limiter::Limiter;
use crate::admission::Admission;
use crate::error::Error;
use crate::key::AsKey;
use crate::operations::MAX_TAKE_ATTEMPTS;

impl Limiter {
    /// Spends like [`check_n`](Self::check_n) and returns the status of every limit, the time to wait if a limit is a queue,
    /// and the receipt that a [`refund`](Self::refund) needs.
    ///
    /// Dropping the future in the middle of the call [may leave its charge](super#when-a-future-is-dropped).
    ///
    /// # Errors
    /// A limit denies, the key is too long, or the server did not decide.
    pub async fn spend(&self, key: impl AsKey, cost: u64) -> Result<Admission, Error> {
        let key = key.as_key()?;
        self.shared.decide(&key, cost, Op::Spend(cost)).await
    }

    /// Returns the status of every limit for this key. Changes nothing and never denies.
    ///
    /// # Errors
    /// The key is too long, or the server did not answer.
    pub async fn peek(&self, key: impl AsKey) -> Result<Admission, Error> {
        self.peek_n(key, 0).await
    }

    /// Returns what [`spend`](Self::spend) would return now, without spending.
    ///
    /// # Errors
    /// A limit would deny, the key is too long, or the server did not answer.
    pub async fn peek_n(&self, key: impl AsKey, cost: u64) -> Result<Admission, Error> {
        let key = key.as_key()?;
        self.shared.decide(&key, cost, Op::Peek(cost)).await
    }

    /// Spends up to `most` units: as many as every limit has left, but at least one. [`Admission::cost`] says how many were spent.
    ///
    /// With several limits it peeks and then spends, in two calls. If a concurrent caller spends in between, it retries up to
    /// 64 times.
    ///
    /// Dropping the future in the middle of the call [may leave its charge](super#when-a-future-is-dropped).
    ///
    /// # Errors
    /// Not even one unit is left, the key is too long, or the server did not decide.
    pub async fn take_up_to(&self, key: impl AsKey, most: u64) -> Result<Admission, Error> {
        let (key, shared) = (key.as_key()?, &*self.shared);
        let limits = shared.active_limits();
        if let [_] = limits.list() {
            let op = Op::SpendUpTo(most);
            let mut admission = shared.decide_with(&limits, &key, most.min(1), op).await?;
            admission.set_cost_to_receipts();
            return Ok(admission);
        }
        for _ in 0..MAX_TAKE_ATTEMPTS {
            let there = shared.decide_with(&limits, &key, 0, Op::Peek(0)).await?;
            let cost = there.room_for(most);
            match shared
                .decide_with(&limits, &key, cost, Op::Spend(cost))
                .await
            {
                Err(Error::Denied(_)) if cost > 1 => {}
                reply => return reply,
            }
        }
        // Concurrent callers won every time. Spend one unit, or return the denial.
        shared.decide_with(&limits, &key, 1, Op::Spend(1)).await
    }

    /// Charges `cost` units for work that is already done, even if they are not available. The debt of each limit is bounded
    /// by its overdraft. Never denies.
    ///
    /// Dropping the future in the middle of the call [may leave its charge](super#when-a-future-is-dropped).
    ///
    /// # Errors
    /// The key is too long, or the server did not decide.
    pub async fn charge(&self, key: impl AsKey, cost: u64) -> Result<Admission, Error> {
        let key = key.as_key()?;
        let op = Op::ChargeAlways(cost);
        let mut admission = self.shared.decide(&key, cost, op).await?;
        admission.set_cost_to_receipts();
        Ok(admission)
    }

    /// Refunds a charge to the key that it was made on. The admission is consumed, so a charge is refunded at most once. Units
    /// that were refilled since are not refunded. An admission is lost with the process; a [reservation](Self::reserve) is not.
    ///
    /// Dropping the future in the middle of the call [leaves open](super#when-a-future-is-dropped) whether the refund was made.
    ///
    /// # Errors
    /// The key is too long, or the server did not decide. If [`may_have_charged`](Error::may_have_charged) is true, the refund
    /// may have been made.
    pub async fn refund(&self, key: impl AsKey, admission: Admission) -> Result<(), Error> {
        self.shared.settle(&key.as_key()?, &admission, 0).await
    }
}
