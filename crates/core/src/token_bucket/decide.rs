//! Decides on a token bucket: one addition and one comparison.

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
            return self.charge_nothing(tat, now, Outcome::Allow);
        }
        if blocks > self.burst {
            return self.charge_nothing(tat, now, Outcome::Never);
        }
        // None of these wraps, so none needs a check: the price is at most the capacity, the debt at most the ceiling, both at most 2^62,
        // and an instant is below 2^63.
        let price = blocks.wrapping_mul(self.interval.get());
        let debt = self.debt(tat, now).wrapping_add(price);
        if debt > self.capacity {
            let retry_after = Nanos::from_nanos(debt.wrapping_sub(self.capacity));
            return self.charge_nothing(tat, now, Outcome::Deny { retry_after });
        }
        self.charge(now, debt, cost)
    }

    /// Spends as many of `most` units as are left, at least one block; denies if not even one block is left.
    pub fn decide_up_to(&self, tat: Tat, now: Timestamp, most: u64) -> Transition<Tat> {
        let available = self.status(tat, now).remaining;
        self.decide(tat, now, most.min(available.max(self.block.get())))
    }

    /// Spends `cost` units even if they are not left, because the work has already been done. Debt grows to the overdraft and no further;
    /// units beyond it are not charged. The receipt carries the charged units.
    pub fn charge_always(&self, tat: Tat, now: Timestamp, cost: u64) -> Transition<Tat> {
        let before = self.debt(tat, now);
        let room = self.whole_blocks(self.saturation.saturating_sub(before));
        let blocks = self.blocks(cost).min(room);
        if blocks == 0 {
            return self.charge_nothing(tat, now, Outcome::Allow);
        }
        let charged = cost.min(blocks.saturating_mul(self.block.get()));
        self.charge(now, before.saturating_add(self.price(blocks)), charged)
    }

    /// Corrects an earlier charge to the real cost. A higher cost is charged as by [`charge_always`](Self::charge_always). A lower cost
    /// is refunded, except what refill has already replaced: at most the difference less the time since the charge. The state does not
    /// show by how much the clock stepped back since; such a refund may return that much more, but never more than was charged.
    pub fn settle(
        &self,
        tat: Tat,
        now: Timestamp,
        receipt: &Receipt,
        actual: u64,
    ) -> Transition<Tat> {
        let (charged_blocks, actual_blocks) = (self.blocks(receipt.cost), self.blocks(actual));
        if actual_blocks > charged_blocks {
            let more = actual_blocks
                .saturating_sub(charged_blocks)
                .saturating_mul(self.block.get());
            return self.charge_always(tat, now, more);
        }
        let surplus = self.price(charged_blocks.saturating_sub(actual_blocks));
        self.reduce_debt(
            tat,
            now,
            surplus.saturating_sub(now.since(receipt.at).as_nanos()),
        )
    }

    /// Refunds a charge: settles it at zero.
    pub fn refund(&self, tat: Tat, now: Timestamp, receipt: &Receipt) -> Transition<Tat> {
        self.settle(tat, now, receipt, 0)
    }

    /// Gives back `amount` units without a receipt, up to a full bucket. Each unit adds to what may be admitted, so the caller is
    /// responsible for the bound.
    pub fn credit(&self, tat: Tat, now: Timestamp, amount: u64) -> Transition<Tat> {
        self.reduce_debt(tat, now, self.price(amount / self.block))
    }

    /// The status of this state for a client.
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

    /// The state with the same debt in tokens as `tat` has under `old`, for a change of rate that must not forgive debt. Without it the
    /// debt keeps its length in time.
    #[must_use]
    pub fn rescale(&self, old: &Self, tat: Tat, now: Timestamp) -> Tat {
        let debt = u128::from(old.debt(tat, now));
        let debt = debt.saturating_mul(u128::from(self.interval.get()));
        let divisor = NonZeroU128::from(old.interval).saturating_mul(self.block.into());
        let scaled = scale_up(debt, old.block.get(), divisor).min(self.ceiling);
        now.as_nanos().saturating_add(scaled)
    }

    /// Time by which the state lies ahead of `now`, at most the ceiling.
    #[inline]
    pub(crate) fn debt(&self, tat: Tat, now: Timestamp) -> u64 {
        tat.saturating_sub(now.as_nanos()).min(self.ceiling)
    }

    /// Blocks that a cost is charged as, rounded up.
    #[inline]
    pub(crate) fn blocks(&self, cost: u64) -> u64 {
        // Almost every quota has blocks of one, and a 64-bit division costs more than all other steps of the decision.
        if self.block.get() == 1 {
            cost
        } else {
            cost.div_ceil(self.block.get())
        }
    }

    /// The debt of this many blocks. Saturates far above any capacity.
    #[inline]
    pub(crate) fn price(&self, blocks: u64) -> u64 {
        blocks.saturating_mul(self.interval.get())
    }

    #[inline]
    fn charge(&self, now: Timestamp, debt: u64, cost: u64) -> Transition<Tat> {
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

    /// Charges nothing; stores the state only if it was above the ceiling.
    #[inline]
    fn charge_nothing(&self, tat: Tat, now: Timestamp, outcome: Outcome) -> Transition<Tat> {
        let furthest = now.as_nanos().wrapping_add(self.ceiling);
        let next = (tat > furthest).then_some(furthest);
        Transition {
            outcome,
            next,
            receipt: Receipt::empty(now),
        }
    }

    /// Lowers the debt by `surplus`, at least to zero.
    pub(crate) fn reduce_debt(&self, tat: Tat, now: Timestamp, surplus: u64) -> Transition<Tat> {
        let debt = self.debt(tat, now);
        if debt == 0 || surplus == 0 {
            return self.charge_nothing(tat, now, Outcome::Allow);
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

/// `debt · factor / divisor`, rounded up once, saturating at `u64::MAX`. The product may need 188 bits, so the factor is processed bit by
/// bit from the top and only the remainder is kept. A debt is below 2^124 and a divisor below 2^126, which leaves room to double.
fn scale_up(debt: u128, factor: u64, divisor: NonZeroU128) -> u64 {
    let (whole, part) = (debt / divisor, debt % divisor);
    let divisor = divisor.get();
    // Carries a remainder over into the quotient.
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

    /// Regression, found by a property: with blocks of petabytes the product of debt, interval and block needs more than 128 bits. It
    /// saturated, and the quotient was less than the debt.
    #[test]
    fn rescaling_blocks_of_any_size_forgives_nothing() {
        let quota = |units: u64, block: u64| {
            let builder = TokenBucket::builder(Rate::per_second(units)).block(block);
            builder.burst(block).build().unwrap()
        };
        let old = quota(1 << 40, 1 << 62);
        let new = quota(1 << 62, 1 << 62);
        let now = Timestamp::from_secs(1);
        let tat = old.decide(0, now, 1 << 62).next.unwrap();
        let rescaled = new.rescale(&old, tat, now);
        assert_eq!(
            new.status(rescaled, now).reset_after,
            new.interval(),
            "the debt is one block"
        );
    }

    /// Regression, found by fuzzing: after `charge_always` had used the overdraft, the debt alone was above the capacity, and a peek was
    /// denied although it costs nothing.
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
