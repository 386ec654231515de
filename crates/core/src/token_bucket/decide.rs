//! Deciding on a token bucket: add, compare, and nothing else.

use core::num::NonZeroU128;

use super::{Tat, TokenBucket};
use crate::outcome::{Outcome, QuotaStatus, Receipt, Transition};
use crate::time::{Nanos, Timestamp};

impl TokenBucket {
    /// Decides on spending `cost` units at `now`. A cost of zero is a peek and is always allowed.
    #[inline]
    pub fn decide(&self, tat: Tat, now: Timestamp, cost: u64) -> Transition<Tat> {
        let blocks = self.blocks(cost);
        if blocks == 0 {
            return self.unspent(tat, now, Outcome::Allow);
        }
        if blocks > self.burst {
            return self.unspent(tat, now, Outcome::Never);
        }
        // None of these wraps, so none pays for a check: the price is at most the capacity, the debt at most the ceiling,
        // both at most 2^62, and an instant is below 2^63.
        let price = blocks.wrapping_mul(self.interval.get());
        let debt = self.debt(tat, now).wrapping_add(price);
        if debt > self.capacity {
            let retry_after = Nanos::from_nanos(debt.wrapping_sub(self.capacity));
            return self.unspent(tat, now, Outcome::Deny { retry_after });
        }
        self.spent(now, debt, cost)
    }

    /// Spends as much of `most` units as there is, down to one block; denies only where there is not even that.
    pub fn decide_up_to(&self, tat: Tat, now: Timestamp, most: u64) -> Transition<Tat> {
        let there = self.status(tat, now).remaining;
        self.decide(tat, now, most.min(there.max(self.block.get())))
    }

    /// Spends `cost` units whether or not they are there: the work has already been done. Debt grows to the
    /// overdraft and no further; what lies beyond is not charged, and the receipt says how much was.
    pub fn charge_always(&self, tat: Tat, now: Timestamp, cost: u64) -> Transition<Tat> {
        let before = self.debt(tat, now);
        let room = self.whole_blocks(self.saturation.saturating_sub(before));
        let blocks = self.blocks(cost).min(room);
        if blocks == 0 {
            return self.unspent(tat, now, Outcome::Allow);
        }
        let charged = cost.min(blocks.saturating_mul(self.block.get()));
        self.spent(now, before.saturating_add(self.price(blocks)), charged)
    }

    /// Corrects an earlier charge to what the work turned out to cost. More is charged as by
    /// [`charge_always`](Self::charge_always). Less is given back, but never what refill has already replaced:
    /// at most the difference less the time that has passed since. Time that a clock stepping back has taken away
    /// again cannot be seen here: such a refund may give back that much more, though never more than was charged.
    pub fn settle(
        &self,
        tat: Tat,
        now: Timestamp,
        receipt: &Receipt,
        actual: u64,
    ) -> Transition<Tat> {
        let (charged, owed) = (self.blocks(receipt.cost), self.blocks(actual));
        if owed > charged {
            let more = owed
                .saturating_sub(charged)
                .saturating_mul(self.block.get());
            return self.charge_always(tat, now, more);
        }
        let surplus = self.price(charged.saturating_sub(owed));
        self.lowered(
            tat,
            now,
            surplus.saturating_sub(now.since(receipt.at).as_nanos()),
        )
    }

    /// Gives a charge back: settles it at nothing.
    pub fn refund(&self, tat: Tat, now: Timestamp, receipt: &Receipt) -> Transition<Tat> {
        self.settle(tat, now, receipt, 0)
    }

    /// Gives back `amount` units that nobody can show a receipt for, up to a full bucket. Each unit adds to what
    /// may be admitted, so the caller answers for the bound.
    pub fn credit(&self, tat: Tat, now: Timestamp, amount: u64) -> Transition<Tat> {
        self.lowered(tat, now, self.price(amount / self.block))
    }

    /// What a client may be told about this state.
    #[must_use]
    pub fn status(&self, tat: Tat, now: Timestamp) -> QuotaStatus {
        let debt = self.debt(tat, now);
        let blocks = self.whole_blocks(self.capacity.saturating_sub(debt));
        QuotaStatus {
            limit: self.limit(),
            remaining: blocks.saturating_mul(self.block.get()),
            reset_after: Nanos::from_nanos(debt),
        }
    }

    /// The same debt in tokens under this quota as `tat` was under `old`, for a change of rate that must not
    /// forgive what clients owe. Without it the debt keeps its length in time.
    #[must_use]
    pub fn rescale(&self, old: &Self, tat: Tat, now: Timestamp) -> Tat {
        let debt = u128::from(old.debt(tat, now));
        let debt = debt.saturating_mul(u128::from(self.interval.get()));
        let divisor = NonZeroU128::from(old.interval).saturating_mul(self.block.into());
        let scaled = scale_up(debt, old.block.get(), divisor).min(self.ceiling);
        now.as_nanos().saturating_add(scaled)
    }

    /// Time by which the state lies ahead of now, brought back to the ceiling.
    #[inline]
    pub(crate) fn debt(&self, tat: Tat, now: Timestamp) -> u64 {
        tat.saturating_sub(now.as_nanos()).min(self.ceiling)
    }

    /// Blocks that a cost is charged as, rounded up.
    #[inline]
    pub(crate) fn blocks(&self, cost: u64) -> u64 {
        // Almost every quota has blocks of one, and a 64-bit division costs more than the rest of the decision.
        if self.block.get() == 1 {
            cost
        } else {
            cost.div_ceil(self.block.get())
        }
    }

    /// The debt of so many blocks. Saturates far above any capacity.
    #[inline]
    pub(crate) fn price(&self, blocks: u64) -> u64 {
        blocks.saturating_mul(self.interval.get())
    }

    #[inline]
    fn spent(&self, now: Timestamp, debt: u64, cost: u64) -> Transition<Tat> {
        let next = now.as_nanos().wrapping_add(debt);
        let receipt = Receipt {
            cost,
            at: now,
            mark: next,
        };
        Transition {
            outcome: Outcome::Allow,
            next: Some(next),
            receipt,
        }
    }

    /// Nothing is charged; the state is stored only if it had to be brought back to the ceiling.
    #[inline]
    fn unspent(&self, tat: Tat, now: Timestamp, outcome: Outcome) -> Transition<Tat> {
        let furthest = now.as_nanos().wrapping_add(self.ceiling);
        let next = (tat > furthest).then_some(furthest);
        Transition {
            outcome,
            next,
            receipt: Receipt::empty(now),
        }
    }

    /// The debt lowered by `surplus`, never below none.
    pub(crate) fn lowered(&self, tat: Tat, now: Timestamp, surplus: u64) -> Transition<Tat> {
        let debt = self.debt(tat, now);
        if debt == 0 || surplus == 0 {
            return self.unspent(tat, now, Outcome::Allow);
        }
        let next = now.as_nanos().saturating_add(debt.saturating_sub(surplus));
        let receipt = Receipt::empty(now);
        Transition {
            outcome: Outcome::Allow,
            next: Some(next),
            receipt,
        }
    }
}

/// `debt · factor / divisor`, rounded up once, or the largest number if it is larger. The product may need 188 bits, so
/// the factor is taken in bit by bit from the top and only the remainder is kept; a debt is below 2^124 and a divisor
/// below 2^126, which leaves room to double.
fn scale_up(debt: u128, factor: u64, divisor: NonZeroU128) -> u64 {
    let (whole, part) = (debt / divisor, debt % divisor);
    let divisor = divisor.get();
    // Adds to a quotient and a remainder, and carries.
    let add = |quotient: u128, remainder: u128| match remainder.checked_sub(divisor) {
        Some(less) => (quotient.saturating_add(1), less),
        None => (quotient, remainder),
    };
    let (mut quotient, mut remainder) = (0_u128, 0_u128);
    for bit in (0..u64::BITS).rev() {
        (quotient, remainder) = add(quotient.saturating_mul(2), remainder.saturating_mul(2));
        if factor.checked_shr(bit).unwrap_or(0) & 1 == 1 {
            let sum = (
                quotient.saturating_add(whole),
                remainder.saturating_add(part),
            );
            (quotient, remainder) = add(sum.0, sum.1);
        }
    }
    u64::try_from(quotient.saturating_add(u128::from(remainder > 0))).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rate::Rate;

    /// Found by a property: with blocks of petabytes the product of debt, interval and block needs more than 128 bits. It
    /// was held at the largest number, and what came out of the division was less than what was owed.
    #[test]
    fn rescaling_blocks_of_any_size_forgives_nothing() {
        let quota = |units: u64, block: u64| {
            let builder = TokenBucket::builder(Rate::per_second(units)).block(block);
            builder.burst(block).build().unwrap()
        };
        let old = quota(1 << 40, 1 << 62);
        let new = quota(1 << 62, 1 << 62);
        let now = Timestamp::from_secs(1);
        let owed = old.decide(0, now, 1 << 62).next.unwrap();
        let rescaled = new.rescale(&old, owed, now);
        assert_eq!(
            new.status(rescaled, now).reset_after,
            new.interval(),
            "one block of one is owed"
        );
    }

    /// Found by fuzzing: after `charge_always` had gone into the overdraft, the debt alone was above the capacity, and
    /// a peek, which costs nothing, was denied.
    #[test]
    fn a_peek_is_allowed_even_in_the_overdraft() {
        let bucket = TokenBucket::builder(Rate::per_second(1))
            .burst(2)
            .overdraft(5)
            .build()
            .unwrap();
        let now = Timestamp::from_secs(1);
        let overdrawn = bucket.charge_always(0, now, 6).next.unwrap();
        assert_eq!(bucket.decide(overdrawn, now, 0).outcome, Outcome::Allow);
        assert_eq!(bucket.status(overdrawn, now).remaining, 0);
    }
}
