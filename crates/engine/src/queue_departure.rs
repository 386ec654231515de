//! How a request leaves a queue that a fleet's store keeps: the whole place if it is the last one, else the part that nobody behind
//! was promised.
//!
//! The state of a queue is its end. If a place in the middle is worth more than all that stands behind it, the difference can come back,
//! as in Go's `x/time/rate`. But then the end no longer tells what was promised, and a second such refund would give away a promised
//! turn. So each takes a lock in the store, for as long as the promises last, in the same batch as the refund: both happen or none.
//!
//! Must not know: drivers, who keeps places that cannot be given back yet.

use std::fmt;

use tollgate_core::compose::BatchOutcome;
use tollgate_core::{Nanos, Rate, Timestamp, TokenBucket};
use tollgate_policy::model::Consistency;
use tollgate_store::{
    IdentifiedLimit, Op, QuotaCheck, ReplyNote, StoreError, StoreKey, StoreReply,
};

use crate::settlement::SettleAction;
use crate::sharing::{DenialCaching, Sharing};
use crate::steps::StoreSteps;
use crate::ticket::WaitTicket;

/// The prefix of a lock's key. Keys of policies begin with 0, 1 or 2, and the limit is the queue's own.
const LOCK_PREFIX: &[u8] = b"\xffq";

/// Leaves a queue of a fleet.
#[must_use = "it gives nothing back until a driver runs it"]
pub struct QueueDeparture<'t> {
    wait: &'t WaitTicket,
    /// The units that are still charged for the place.
    charged: u64,
    step: Step,
    is_behind: bool,
    reply_buffer: Vec<StoreReply>,
}

enum Step {
    /// Give the place back if it is the last one.
    Last,
    /// Give a part of it back, if the queue still ends there and nobody holds the lock.
    Middle(Shortening),
    Done,
}

struct Shortening {
    end: u64,
    kept: u64,
    lock_key: Vec<u8>,
    lock: IdentifiedLimit,
}

impl<'t> QueueDeparture<'t> {
    pub(crate) const fn new(wait: &'t WaitTicket, charged: u64) -> Self {
        Self {
            wait,
            charged,
            step: Step::Last,
            is_behind: false,
            reply_buffer: Vec::new(),
        }
    }

    /// Whether nothing came back because requests stand behind the place. It may once they have left.
    #[must_use]
    pub const fn is_behind(&self) -> bool {
        self.is_behind
    }

    /// The part that can come back while the queue ends at `end`, if there is one.
    fn shortening(&self, end: u64, now: Timestamp) -> Option<Shortening> {
        let behind = end.saturating_sub(self.wait.mark());
        let kept = self.wait.units_in(behind);
        let (id, key) = self.wait.queue();
        let promised = Nanos::from_nanos(end.saturating_sub(now.as_nanos()));
        let lock = TokenBucket::builder(Rate::new(1, promised)).burst(1);
        Some(Shortening {
            end,
            kept,
            lock_key: [LOCK_PREFIX, key].concat(),
            lock: IdentifiedLimit {
                id,
                limit: lock.build().ok()?.into(),
            },
        })
        .filter(|it| it.kept < self.charged && StoreKey::new(&it.lock_key).is_ok())
    }

    /// The next step after the store's replies.
    fn after(&mut self, replies: &[StoreReply], outcome: Result<BatchOutcome, StoreError>) -> Step {
        let reply = replies
            .first()
            .filter(|reply| reply.note == ReplyNote::Plain);
        // Without a reply the store may have given the place back, and to another request since.
        let (Ok(outcome), Some(reply)) = (outcome, reply) else {
            return Step::Done;
        };
        let now = reply.receipt.at;
        let end = now.after(reply.status.reset_after).as_nanos();
        match &self.step {
            Step::Last if end > self.wait.mark() => match self.shortening(end, now) {
                Some(shortening) => return Step::Middle(shortening),
                None => self.is_behind = true,
            },
            Step::Middle(before) => self.is_behind = !outcome.is_admitted() || end >= before.end,
            Step::Last | Step::Done => {}
        }
        Step::Done
    }
}

impl StoreSteps for QueueDeparture<'_> {
    fn batch_len(&self) -> usize {
        match self.step {
            Step::Last => 1,
            Step::Middle(_) => 2,
            Step::Done => 0,
        }
    }

    fn check(&self, position: usize) -> Option<QuotaCheck<'_>> {
        let (end, kept) = match &self.step {
            Step::Last => (self.wait.mark(), 0),
            Step::Middle(shortening) if position == 1 => {
                return Some(QuotaCheck {
                    key: StoreKey::new(&shortening.lock_key).ok()?,
                    limit: &shortening.lock,
                    op: Op::Spend(1),
                });
            }
            Step::Middle(shortening) => (shortening.end, shortening.kept),
            Step::Done => return None,
        };
        let cost = self.charged;
        let ticket = self.wait.ticket();
        let op = ticket.op_at(0, SettleAction::LeaveQueue { end, cost, kept })?;
        ticket.check_at(0, op)
    }

    fn sharing(&self, position: usize) -> Sharing<'_> {
        let place = self.wait.ticket().sharing_at(0);
        if position == 0 {
            return place;
        }
        // The lock must be in the slot of the queue.
        let (_, key) = self.wait.queue();
        Sharing {
            consistency: Consistency::Exact,
            denial_caching: DenialCaching::Never,
            slot_key: place.slot_key.or_else(|| StoreKey::new(key).ok()),
            ..place
        }
    }

    fn take_replies(&mut self) -> Vec<StoreReply> {
        let mut replies = std::mem::take(&mut self.reply_buffer);
        replies.clear();
        replies.resize(self.batch_len(), StoreReply::EMPTY);
        replies
    }

    fn resume(&mut self, replies: Vec<StoreReply>, outcome: Result<BatchOutcome, StoreError>) {
        self.step = self.after(&replies, outcome);
        self.reply_buffer = replies;
    }
}

impl fmt::Debug for QueueDeparture<'_> {
    /// Keys are not shown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueueDeparture")
            .field("charged", &self.charged)
            .field("is_behind", &self.is_behind)
            .finish_non_exhaustive()
    }
}
