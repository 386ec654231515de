//! The place of a request that waits, and how it is given back.
//!
//! Must not know: how verdicts are made, who waits.

use tollgate_core::limit::Quota;
use tollgate_core::{Receipt, Timestamp, TokenBucket};
use tollgate_store::LimitId;

use super::Ticket;
use crate::queue_departure::QueueDeparture;
use crate::settlement::{SettleAction, Settlement};

/// One place in the queue of a limit, held by a request that waits.
#[must_use = "give it back, or the place stays taken until its turn"]
#[derive(Debug)]
pub struct WaitTicket {
    pub(super) limit: LimitId,
    pub(super) key: Box<[u8]>,
    pub(super) receipt: Receipt,
    pub(super) turn: Timestamp,
    /// Whether the limit is a queue, and not a bucket that requests wait for.
    pub(super) is_leaky_queue: bool,
    pub(super) ticket: Ticket,
}

impl WaitTicket {
    /// The queue that it stands in: the limit and the key.
    #[must_use]
    pub fn queue(&self) -> (LimitId, &[u8]) {
        (self.limit, &self.key)
    }

    /// The end of the queue after its charge. Later places have higher marks.
    #[must_use]
    pub const fn mark(&self) -> u64 {
        self.receipt.mark
    }

    /// The units that were charged for it.
    #[must_use]
    pub const fn cost(&self) -> u64 {
        self.receipt.cost
    }

    /// When the request was promised to proceed.
    #[must_use]
    pub const fn turn(&self) -> Timestamp {
        self.turn
    }

    /// The units that must stay charged if requests behind the place take this much of the queue: those whose refill takes as long,
    /// rounded up to whole blocks. A leaky queue serves one request after the other, so there nothing in the middle comes back: a
    /// new request would be served together with one that has its turn.
    #[must_use]
    pub fn units_in(&self, nanos: u64) -> u64 {
        if self.is_leaky_queue && nanos > 0 {
            return u64::MAX;
        }
        self.bucket().map_or(u64::MAX, |bucket| {
            let blocks = nanos.div_ceil(bucket.interval().as_nanos().max(1));
            blocks.saturating_mul(bucket.block())
        })
    }

    /// By how much its charge moved the end of the queue, in nanoseconds.
    #[must_use]
    pub fn price(&self) -> u64 {
        self.bucket().map_or(0, |bucket| {
            let blocks = self.receipt.cost.div_ceil(bucket.block().max(1));
            blocks.saturating_mul(bucket.interval().as_nanos())
        })
    }

    /// The bucket that requests of its queue wait for.
    fn bucket(&self) -> Option<&TokenBucket> {
        match self.ticket.items.first()?.limit.limit.quota() {
            Quota::LeakyBucket(queue) => Some(queue.as_token_bucket()),
            _ => None,
        }
    }

    /// Leaves a queue that a fleet's store keeps, to be run by a driver. `charged` units are still charged for the place.
    pub const fn departure(&self, charged: u64) -> QueueDeparture<'_> {
        QueueDeparture::new(self, charged)
    }

    pub(crate) const fn ticket(&self) -> &Ticket {
        &self.ticket
    }

    /// The settlement that gives the place back except for `kept` units of the `cost` that is still charged, to be run by a driver. It
    /// changes nothing unless the queue ends at `end`.
    pub const fn leaving(&self, end: u64, cost: u64, kept: u64) -> Settlement<'_> {
        Settlement::new(&self.ticket, SettleAction::LeaveQueue { end, cost, kept })
    }
}
