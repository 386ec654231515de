//! What an entry says to a request: whether there is something, where the limit stands, and when to come back.
//!
//! Must not know: how slices come and go.

use tollgate_core::quota_lease::LocalLease;
use tollgate_core::{Nanos, Outcome, QuotaStatus, Receipt, Timestamp};
use tollgate_store::{Note, StoreReply};

use super::{Entry, Refused, Said};

impl Entry {
    /// Says what [`spend`](Self::spend) would, and spends nothing.
    pub(in super::super) fn look(&self, now: Timestamp, cost: u64) -> Said {
        let has = |slice: &LocalLease| slice.is_active(now) && slice.remaining() >= cost;
        let slices = self.current.iter().chain(&self.next);
        let refused = self.refused.filter(|refused| refused.covers(now, cost));
        if cost > self.bucket.limit() {
            Said::Denied(self.answer(now, Outcome::Never, 0))
        } else if cost == 0 || slices.into_iter().any(has) {
            Said::Spent(self.answer(now, Outcome::Allow, 0))
        } else if let Some(refused) = refused {
            self.refuse(now, &refused, cost)
        } else {
            Said::Unknown
        }
    }

    /// Says what [`spend`](Self::spend) would, by what the lender has just said.
    pub(in super::super) fn guess(&self, now: Timestamp, cost: u64) -> Said {
        let known = self.look(now, cost);
        if !matches!(known, Said::Unknown) {
            return known;
        }
        let status = self.answer(now, Outcome::Allow, 0).status;
        if status.remaining >= cost {
            return Said::Spent(self.answer(now, Outcome::Allow, 0));
        }
        let missing = cost.saturating_sub(status.remaining);
        let blocks = missing.div_ceil(self.bucket.block().max(1)).max(1);
        let wait = blocks.saturating_mul(self.bucket.interval().as_nanos());
        let retry_after = Nanos::from_nanos(wait);
        Said::Denied(self.answer(now, Outcome::Deny { retry_after }, cost))
    }

    /// A refusal that is still believed. What costs more than was refused then has to be waited for longer.
    pub(super) fn refuse(&self, now: Timestamp, refused: &Refused, cost: u64) -> Said {
        let blocks = |units: u64| units.div_ceil(self.bucket.block().max(1));
        let more = blocks(cost).saturating_sub(blocks(refused.cost));
        let more = more.saturating_mul(self.bucket.interval().as_nanos());
        let until = refused.until.after(Nanos::from_nanos(more));
        let retry_after = until.max(refused.believed_until).since(now);
        Said::Denied(self.answer(now, Outcome::Deny { retry_after }, cost))
    }

    /// Units that may be spent here.
    pub(super) fn left(&self, now: Timestamp) -> u64 {
        let slices = self.current.iter().chain(&self.next);
        let alive = slices.filter(|slice| slice.is_active(now));
        alive
            .map(LocalLease::remaining)
            .fold(0, u64::saturating_add)
    }

    /// What a client is told: what is here, and what the lender had left when it last spoke, refilled since. Of a cost that is
    /// denied, less is left than that.
    pub(super) fn answer(&self, now: Timestamp, outcome: Outcome, cost: u64) -> StoreReply {
        let bucket = &self.bucket;
        let (limit, here) = (bucket.limit(), self.left(now));
        let (there, reset_after) = match self.said {
            None => (limit, Nanos::ZERO),
            Some((status, at)) => {
                let passed = now.since(at);
                let blocks = passed.as_nanos() / bucket.interval().as_nanos().max(1);
                let refilled = blocks.saturating_mul(bucket.block());
                let reset_after = status.reset_after.saturating_sub(passed);
                (status.remaining.saturating_add(refilled), reset_after)
            }
        };
        let remaining = here.saturating_add(there).min(limit);
        let is_admitted = outcome.is_admitted();
        let spent = if is_admitted { cost } else { 0 };
        let used = limit.saturating_sub(remaining).max(spent);
        let owed = used.div_ceil(bucket.block().max(1));
        let owed = Nanos::from_nanos(owed.saturating_mul(bucket.interval().as_nanos()));
        let remaining = match outcome {
            Outcome::Deny { .. } => remaining.min(cost.saturating_sub(1)),
            Outcome::Never | Outcome::Allow | Outcome::Wait(_) => remaining,
        };
        let mark = if spent > 0 { self.mark } else { 0 };
        StoreReply {
            outcome,
            status: QuotaStatus {
                limit,
                remaining,
                reset_after: reset_after.max(owed),
            },
            receipt: Receipt {
                cost: spent,
                at: now,
                mark,
            },
            note: Note::Plain,
        }
    }
}
