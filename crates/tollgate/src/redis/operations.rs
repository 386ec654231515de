//! The verbs that answer with more than yes or no, over Redis: spend, peek, take, charge, refund.
//!
//! Must not know: how calls are made, how to wait.

use tollgate_store::Op;

use super::limiter::Limiter;
use crate::admission::Admission;
use crate::error::Error;
use crate::key::AsKey;
use crate::operations::MAX_TAKE_ATTEMPTS;

impl Limiter {
    /// Spends like [`check_n`](Self::check_n), and answers where every limit stands, how long to wait where a limit is a
    /// queue, and the proof that a [`refund`](Self::refund) needs.
    ///
    /// Dropping the future in the middle of the call [may leave its charge](super#when-a-future-is-dropped).
    ///
    /// # Errors
    /// A limit denies, the key is too long, or the server did not decide.
    pub async fn spend(&self, key: impl AsKey, cost: u64) -> Result<Admission, Error> {
        let key = key.as_key()?;
        self.shared.decide(&key, cost, Op::Spend(cost)).await
    }

    /// Where every limit stands for this key. Changes nothing and never denies.
    ///
    /// # Errors
    /// The key is too long, or the server did not answer.
    pub async fn peek(&self, key: impl AsKey) -> Result<Admission, Error> {
        self.peek_n(key, 0).await
    }

    /// What [`spend`](Self::spend) would answer now, without spending.
    ///
    /// # Errors
    /// A limit would deny, the key is too long, or the server did not answer.
    pub async fn peek_n(&self, key: impl AsKey, cost: u64) -> Result<Admission, Error> {
        let key = key.as_key()?;
        self.shared.decide(&key, cost, Op::Peek(cost)).await
    }

    /// Spends as much of `most` as every limit has, but at least one. [`Allowed::cost`] says how much it was.
    ///
    /// With several limits it looks first and spends then, in two calls, and again, up to 64 times, if others
    /// were faster.
    ///
    /// Dropping the future in the middle of the call [may leave its charge](super#when-a-future-is-dropped).
    ///
    /// # Errors
    /// There is not even one, the key is too long, or the server did not decide.
    pub async fn take_up_to(&self, key: impl AsKey, most: u64) -> Result<Admission, Error> {
        let (key, shared) = (key.as_key()?, &*self.shared);
        let rules = shared.active_limits();
        if let [_] = rules.list() {
            let op = Op::SpendUpTo(most);
            let mut allowed = shared.decide_with(&rules, &key, most.min(1), op).await?;
            allowed.set_cost_to_receipts();
            return Ok(allowed);
        }
        for _ in 0..MAX_TAKE_ATTEMPTS {
            let there = shared.decide_with(&rules, &key, 0, Op::Peek(0)).await?;
            let cost = there.room_for(most);
            match shared
                .decide_with(&rules, &key, cost, Op::Spend(cost))
                .await
            {
                Err(Error::Denied(_)) if cost > 1 => {}
                answer => return answer,
            }
        }
        // Others were faster every time: what is certainly not too much, or the reason why even that is.
        shared.decide_with(&rules, &key, 1, Op::Spend(1)).await
    }

    /// Spends `cost` units whether or not they are there, for work that is already done. Goes into debt down to the
    /// overdraft of each limit and no further. Never denies.
    ///
    /// Dropping the future in the middle of the call [may leave its charge](super#when-a-future-is-dropped).
    ///
    /// # Errors
    /// The key is too long, or the server did not decide.
    pub async fn charge(&self, key: impl AsKey, cost: u64) -> Result<Admission, Error> {
        let key = key.as_key()?;
        let op = Op::ChargeAlways(cost);
        let mut allowed = self.shared.decide(&key, cost, op).await?;
        allowed.set_cost_to_receipts();
        Ok(allowed)
    }

    /// Gives a charge back to the key that it was made on, once: the proof is used up. What time has already given back
    /// is not given back again. The proof does not outlive the process; a [reservation](Self::reserve) does.
    ///
    /// Dropping the future in the middle of the call [leaves open](super#when-a-future-is-dropped) whether it was made.
    ///
    /// # Errors
    /// The key is too long, or the server did not decide. If it [may have](Error::may_have_charged), the refund may have
    /// been made.
    pub async fn refund(&self, key: impl AsKey, allowed: Admission) -> Result<(), Error> {
        self.shared.settle(&key.as_key()?, &allowed, 0).await
    }
}
