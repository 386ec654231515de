//! Settles a ticket in steps, one check at a time.
//!
//! All steps are tried, even if some fail. Must not know: how tickets are created, which store answers.

use std::fmt;

use tollgate_core::compose::BatchOutcome;
use tollgate_store::{Op, QuotaCheck, ReplyNote, StoreError, StoreReply};

use crate::sharing::Sharing;
use crate::steps::StoreSteps;
use crate::ticket::{Response, Ticket};

/// How an admitted request ended.
#[derive(Clone, Copy)]
pub enum SettleAction<'a> {
    /// With this response: release permits, correct estimates, count the response.
    Respond(&'a dyn Response),
    /// At this cost: correct estimates, release permits.
    Settle(u64),
    /// Its work did not happen: refund everything.
    Cancel,
    /// It gives back its place in a queue, except `kept` units of `cost`, if the queue ends at `end`.
    LeaveQueue {
        /// The end of the queue that is expected.
        end: u64,
        /// What is still charged for the place.
        cost: u64,
        /// What stays charged.
        kept: u64,
    },
    /// It is still running: renew the leases of its permits.
    Renew,
    /// It is still running: renew the leases of its permits, also of those that have expired while nobody asked the store.
    Reacquire,
}

/// A ticket that is being settled.
#[must_use = "a settlement settles nothing until a driver runs it"]
pub struct Settlement<'t> {
    ticket: &'t Ticket,
    action: SettleAction<'t>,
    /// The index of the current ticket item.
    position: usize,
    are_permits_held: bool,
    queue_end: Option<u64>,
    result: Result<(), StoreError>,
    reply_buffer: Vec<StoreReply>,
}

impl<'t> Settlement<'t> {
    pub(crate) const fn new(ticket: &'t Ticket, action: SettleAction<'t>) -> Self {
        Self {
            ticket,
            action,
            position: 0,
            are_permits_held: true,
            queue_end: None,
            result: Ok(()),
            reply_buffer: Vec::new(),
        }
    }

    /// The result: whether all renewed permits are still held.
    ///
    /// # Errors
    /// The store's first error. All other steps were carried out.
    pub fn finish(self) -> Result<bool, StoreError> {
        self.result.map(|()| self.are_permits_held)
    }

    /// The end of the queue after a place was to be given back, if the store that keeps the queue answered.
    #[must_use]
    pub const fn queue_end(&self) -> Option<u64> {
        self.queue_end
    }

    /// The next ticket item that needs the store.
    fn current(&self) -> Option<(usize, Op)> {
        let mut positions = self.position..self.ticket.len();
        positions.find_map(|at| Some((at, self.ticket.op_at(at, self.action)?)))
    }
}

impl StoreSteps for Settlement<'_> {
    fn batch_len(&self) -> usize {
        usize::from(self.current().is_some())
    }

    fn check(&self, _position: usize) -> Option<QuotaCheck<'_>> {
        let (at, op) = self.current()?;
        self.ticket.check_at(at, op)
    }

    fn sharing(&self, _position: usize) -> Sharing<'_> {
        let current = self.current();
        current.map_or(Sharing::EXACT, |(at, _)| self.ticket.sharing_at(at))
    }

    fn take_replies(&mut self) -> Vec<StoreReply> {
        let mut replies = std::mem::take(&mut self.reply_buffer);
        replies.clear();
        replies.resize(1, StoreReply::EMPTY);
        replies
    }

    fn resume(&mut self, replies: Vec<StoreReply>, outcome: Result<BatchOutcome, StoreError>) {
        let Some((at, op)) = self.current() else {
            return;
        };
        match outcome {
            Err(error) => {
                if self.result.is_ok() {
                    self.result = Err(error);
                }
            }
            Ok(_) if matches!(op, Op::Renew(_)) => {
                let is_held = |reply: &StoreReply| reply.note != ReplyNote::LeaseNotHeld;
                self.are_permits_held &= replies.first().is_some_and(is_held);
            }
            Ok(outcome) if matches!(self.action, SettleAction::Reacquire) => {
                self.are_permits_held &= outcome.outcome().is_admitted();
            }
            Ok(_) if matches!(self.action, SettleAction::LeaveQueue { .. }) => {
                let reply = replies
                    .first()
                    .filter(|reply| reply.note == ReplyNote::Plain);
                let end = |reply: &StoreReply| reply.receipt.at.after(reply.status.reset_after);
                self.queue_end = reply.map(|reply| end(reply).as_nanos());
            }
            Ok(_) => {}
        }
        self.position = at.saturating_add(1);
        self.reply_buffer = replies;
    }
}

impl fmt::Debug for SettleAction<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Respond(response) => write!(f, "Respond({})", response.status()),
            Self::Settle(actual) => write!(f, "Settle({actual})"),
            Self::Cancel => f.write_str("Cancel"),
            Self::LeaveQueue { kept, .. } => write!(f, "LeaveQueue({kept} kept)"),
            Self::Renew => f.write_str("Renew"),
            Self::Reacquire => f.write_str("Reacquire"),
        }
    }
}

impl fmt::Debug for Settlement<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settlement")
            .field("ticket", &self.ticket)
            .field("action", &self.action)
            .field("position", &self.position)
            .finish_non_exhaustive()
    }
}
