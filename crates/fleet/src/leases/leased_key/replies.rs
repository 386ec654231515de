//! What a leased key replies to a request: the outcome, the limit's status, and the wait.
//!
//! Must not know: how leases are granted and returned.

use tollgate_core::quota_lease::LocalLease;
use tollgate_core::{Nanos, Outcome, QuotaStatus, Receipt, Timestamp};
use tollgate_store::{ReplyNote, StoreReply};

use super::{BrokerRefusal, LeasedKey, LocalReply};

impl LeasedKey {
    /// What [`spend`](Self::spend) would reply, without spending.
    pub(in super::super) fn peek(&self, now: Timestamp, cost: u64) -> LocalReply {
        let has = |lease: &LocalLease| lease.is_active(now) && lease.remaining() >= cost;
        let leases = self.current.iter().chain(&self.next);
        let refusal = self.refusal.filter(|refusal| refusal.covers(now, cost));
        if cost > self.bucket.limit() {
            LocalReply::Denied(self.reply(now, Outcome::Never, 0))
        } else if cost == 0 || leases.into_iter().any(has) {
            LocalReply::Admitted(self.reply(now, Outcome::Allow, 0))
        } else if let Some(refusal) = refusal {
            self.deny(now, &refusal, cost)
        } else {
            LocalReply::Unknown
        }
    }

    /// What [`spend`](Self::spend) would reply, by the broker's last status.
    pub(in super::super) fn estimate(&self, now: Timestamp, cost: u64) -> LocalReply {
        let reply = self.peek(now, cost);
        if !matches!(reply, LocalReply::Unknown) {
            return reply;
        }
        let status = self.reply(now, Outcome::Allow, 0).status;
        if status.remaining >= cost {
            return LocalReply::Admitted(self.reply(now, Outcome::Allow, 0));
        }
        let missing = cost.saturating_sub(status.remaining);
        let blocks = missing.div_ceil(self.bucket.block().max(1)).max(1);
        let wait = blocks.saturating_mul(self.bucket.interval().as_nanos());
        let retry_after = Nanos::from_nanos(wait);
        LocalReply::Denied(self.reply(now, Outcome::Deny { retry_after }, cost))
    }

    /// A denial by a refusal that is still valid. A larger cost than the refused one waits longer.
    pub(super) fn deny(&self, now: Timestamp, refusal: &BrokerRefusal, cost: u64) -> LocalReply {
        let blocks = |units: u64| units.div_ceil(self.bucket.block().max(1));
        let more = blocks(cost).saturating_sub(blocks(refusal.cost));
        let more = more.saturating_mul(self.bucket.interval().as_nanos());
        let until = refusal.refused_until.after(Nanos::from_nanos(more));
        let retry_after = until.max(refusal.retry_at).since(now);
        LocalReply::Denied(self.reply(now, Outcome::Deny { retry_after }, cost))
    }

    /// The units left in active leases.
    pub(super) fn remaining(&self, now: Timestamp) -> u64 {
        let leases = self.current.iter().chain(&self.next);
        let active = leases.filter(|lease| lease.is_active(now));
        active
            .map(LocalLease::remaining)
            .fold(0, u64::saturating_add)
    }

    /// A reply with the limit's status: the units here, and those that the broker had left, refilled since. A denied
    /// cost always exceeds what remains.
    pub(super) fn reply(&self, now: Timestamp, outcome: Outcome, cost: u64) -> StoreReply {
        let bucket = &self.bucket;
        let (limit, local) = (bucket.limit(), self.remaining(now));
        let (at_broker, reset_after) = match self.broker_status {
            None => (limit, Nanos::ZERO),
            Some((status, at)) => {
                let passed = now.since(at);
                let blocks = passed.as_nanos() / bucket.interval().as_nanos().max(1);
                let refilled = blocks.saturating_mul(bucket.block());
                let reset_after = status.reset_after.saturating_sub(passed);
                (status.remaining.saturating_add(refilled), reset_after)
            }
        };
        let remaining = local.saturating_add(at_broker).min(limit);
        let is_admitted = outcome.is_admitted();
        let spent = if is_admitted { cost } else { 0 };
        let used = limit.saturating_sub(remaining).max(spent);
        let debt = used.div_ceil(bucket.block().max(1));
        let debt = Nanos::from_nanos(debt.saturating_mul(bucket.interval().as_nanos()));
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
                reset_after: reset_after.max(debt),
            },
            receipt: Receipt {
                cost: spent,
                at: now,
                mark,
            },
            note: ReplyNote::Plain,
        }
    }
}
