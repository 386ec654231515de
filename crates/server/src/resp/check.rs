//! `TG.CHECK` and `TG.ACQUIRE`: a request described by its attributes, decided by whatever policy the server runs.
//!
//! The command only reads and words; who decides is behind [`Checker`]. Must not know: policies, stores.

use std::borrow::Cow;
use std::future::ready;
use std::pin::Pin;

use tollgate_core::{Nanos, Outcome};

use super::batch_counts::CommandOutcome;
use super::number::parse_integer;
use super::parse::{MAX_WORDS, OwnedRespCommand, RespCommand};
use super::pipeline::{Pipeline, RenderedReply};
use super::reply_writer::{EchoedInput, ReplyWriter};
use super::session::RespSession;

/// Decides on `TG.CHECK` and `TG.ACQUIRE`, and hears reports about tickets.
pub trait Checker: Send + Sync {
    /// Decides on a request. What is known at once is handed to `render`, because it may borrow from the decision; what a
    /// fleet has to be asked for is returned, and `render` is not called.
    fn check<'a>(
        &'a self,
        request: &CheckCommand<'_>,
        render: &mut dyn FnMut(&CheckReply<'_>),
    ) -> Option<CheckFuture<'a, CheckReply<'static>>>;

    /// Hears about a ticket that it has given. A checker that gives none knows none.
    fn update_ticket(
        &self,
        _report: TicketAction,
        _ticket: u128,
    ) -> CheckFuture<'_, TicketOutcome> {
        Box::pin(ready(TicketOutcome::UnknownTicket))
    }
}

/// What has to be awaited.
pub type CheckFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What is said about a ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TicketAction {
    /// The work is done: `TG.RELEASE`.
    Release,
    /// The work goes on: `TG.RENEW`.
    Renew,
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TicketOutcome {
    /// It was carried out.
    Done,
    /// There was nothing left to do: it was released before, or a place is no longer held.
    NothingToDo,
    /// There is no such ticket.
    UnknownTicket,
    /// The store did not carry out all of it.
    StoreFailed,
}

/// A request as `TG.CHECK` describes it.
#[derive(Clone, Copy, Debug)]
pub struct CheckCommand<'a> {
    attributes: Pairs<'a>,
    /// What it costs, if the caller knows better than the policy.
    pub cost: Option<u64>,
    /// Whether to say only what would be decided.
    pub is_peek: bool,
    /// Whether the caller will work on it for a while and wants a ticket to give places back with.
    pub is_acquire: bool,
}

/// Names and values in turn.
#[derive(Clone, Copy, Debug)]
struct Pairs<'a> {
    command: RespCommand<'a>,
    first: usize,
}

/// A request that outlives the buffer that its command was read into.
#[derive(Clone, Debug)]
pub struct OwnedCheckCommand {
    command: OwnedRespCommand,
    first: usize,
    cost: Option<u64>,
    is_peek: bool,
    is_acquire: bool,
}

/// What a checker answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckReply<'a> {
    /// It was decided.
    Verdict {
        /// What is to be done.
        outcome: Outcome,
        /// The limit that decided, by name; or that is nearest to it.
        limit: Option<Cow<'a, str>>,
        /// What is left of it.
        remaining: u64,
        /// When it is as if never used.
        reset_after: Nanos,
        /// What to report under, if a ticket was asked for and something is owed.
        ticket: Option<u128>,
    },
    /// An attribute cannot be understood, for this reason.
    BadAttribute {
        /// Its name.
        name: Cow<'a, [u8]>,
        /// What is wrong.
        reason: &'static str,
    },
    /// Nothing was decided, for this reason.
    Failed(&'static str),
}

impl<'a> CheckCommand<'a> {
    /// All attributes, in the order they were sent.
    pub fn attributes(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + use<'a> {
        let Pairs { command, first } = self.attributes;
        (first..command.len())
            .step_by(2)
            .map(move |at| (command.argument(at), command.argument(at.saturating_add(1))))
    }

    /// The same request with bytes of its own.
    #[must_use]
    pub fn to_owned(&self) -> OwnedCheckCommand {
        let Pairs { command, first } = self.attributes;
        OwnedCheckCommand {
            command: command.to_owned(),
            first,
            cost: self.cost,
            is_peek: self.is_peek,
            is_acquire: self.is_acquire,
        }
    }

    /// `TG.CHECK [COST n] [PEEK] attribute value [attribute value ...]`, and `TG.ACQUIRE`, which cannot only look.
    fn read(command: &RespCommand<'a>, is_acquire: bool) -> Result<Self, InvalidCheck<'a>> {
        let mut asked = Self {
            attributes: Pairs {
                command: *command,
                first: 1,
            },
            cost: None,
            is_peek: false,
            is_acquire,
        };
        let first = &mut asked.attributes.first;
        loop {
            let word = command.argument(*first);
            if word.eq_ignore_ascii_case(b"cost") && asked.cost.is_none() {
                let cost = command.argument(first.saturating_add(1));
                let number = parse_integer(cost).and_then(|cost| u64::try_from(cost).ok());
                asked.cost = Some(number.ok_or(InvalidCheck::Cost(cost))?);
                *first = first.saturating_add(2);
            } else if word.eq_ignore_ascii_case(b"peek") && !asked.is_peek {
                asked.is_peek = true;
                *first = first.saturating_add(1);
            } else {
                break;
            }
        }
        if is_acquire && asked.is_peek {
            return Err(InvalidCheck::Peek);
        }
        let words = command.len().saturating_sub(*first);
        if words == 0 || !words.is_multiple_of(2) {
            return Err(InvalidCheck::Count);
        }
        Ok(asked)
    }
}

impl OwnedCheckCommand {
    /// The request.
    #[must_use]
    pub const fn as_command(&self) -> CheckCommand<'_> {
        CheckCommand {
            attributes: Pairs {
                command: self.command.as_command(),
                first: self.first,
            },
            cost: self.cost,
            is_peek: self.is_peek,
            is_acquire: self.is_acquire,
        }
    }
}

impl CheckReply<'_> {
    /// The same without what it borrows.
    #[must_use]
    pub fn into_owned(self) -> CheckReply<'static> {
        match self {
            Self::Verdict {
                outcome,
                limit,
                remaining,
                reset_after,
                ticket,
            } => CheckReply::Verdict {
                outcome,
                limit: limit.map(|limit| Cow::Owned(limit.into_owned())),
                remaining,
                reset_after,
                ticket,
            },
            Self::BadAttribute { name, reason } => CheckReply::BadAttribute {
                name: Cow::Owned(name.into_owned()),
                reason,
            },
            Self::Failed(reason) => CheckReply::Failed(reason),
        }
    }
}

/// Why a command is no request.
enum InvalidCheck<'a> {
    Count,
    Cost(&'a [u8]),
    Peek,
    NoChecker,
}

/// Reads a request, has it decided and answers: at once, or in the connection's pipeline where a fleet decides.
pub(super) fn run<'s>(
    checker: Option<&'s dyn Checker>,
    command: &RespCommand<'_>,
    is_acquire: bool,
    session: &mut RespSession,
    pipeline: &mut Pipeline<'s>,
    out: &mut Vec<u8>,
) {
    let is_resp3 = session.is_resp3;
    // Until it is known better.
    let (mut counted, mut pending) = (CommandOutcome::Failed, None);
    pipeline.reply(out, |out| {
        let reply = &mut ReplyWriter::new(out, is_resp3);
        let request = CheckCommand::read(command, is_acquire)
            .and_then(|request| Ok((checker.ok_or(InvalidCheck::NoChecker)?, request)));
        match request {
            Ok((checker, request)) => {
                pending = checker.check(&request, &mut |said| {
                    counted = render(said, is_acquire, reply);
                });
            }
            Err(wrong) => wrong.render(is_acquire, reply),
        }
    });
    let Some(pending) = pending else {
        return session.counts.add(counted);
    };
    pipeline.push(async move {
        let mut bytes = Vec::new();
        let said = pending.await;
        let counted = render(
            &said,
            is_acquire,
            &mut ReplyWriter::new(&mut bytes, is_resp3),
        );
        RenderedReply {
            bytes,
            outcome: counted,
        }
    });
}

impl InvalidCheck<'_> {
    fn render(&self, is_acquire: bool, reply: &mut ReplyWriter<'_>) {
        let name = if is_acquire { "TG.ACQUIRE" } else { "TG.CHECK" };
        match self {
            Self::NoChecker => reply.error(format_args!(
                "ERR {name} needs a policy, and this server runs without one"
            )),
            Self::Count => {
                let usage = "[COST n] [PEEK] attribute value [attribute value ...]";
                reply.error(format_args!(
                    "ERR attributes come as pairs: {name} {usage}, {MAX_WORDS} words at most"
                ));
            }
            Self::Peek => reply.error(format_args!(
                "ERR what is only looked at cannot be held; see TG.CHECK"
            )),
            Self::Cost(cost) => reply.error(format_args!(
                "ERR cost: '{}' is not a whole number from 0 to 9223372036854775807",
                EchoedInput(cost)
            )),
        }
    }
}

/// Writes what a checker answers.
fn render(said: &CheckReply<'_>, with_ticket: bool, reply: &mut ReplyWriter<'_>) -> CommandOutcome {
    let (outcome, limit, remaining, reset_after, ticket) = match said {
        CheckReply::Verdict {
            outcome,
            limit,
            remaining,
            reset_after,
            ticket,
        } => (*outcome, limit, *remaining, *reset_after, *ticket),
        CheckReply::BadAttribute { name, reason } => {
            reply.error(format_args!(
                "ERR attribute '{}': {reason}",
                EchoedInput(name)
            ));
            return CommandOutcome::Failed;
        }
        CheckReply::Failed(reason) => {
            reply.error(format_args!("ERR {reason}"));
            return CommandOutcome::Failed;
        }
    };
    let millis = |span: Nanos| i64::try_from(span.as_millis_ceil()).unwrap_or(i64::MAX);
    let (retry, wait) = match outcome {
        Outcome::Allow => (0, 0),
        Outcome::Wait(wait) => (0, millis(wait)),
        Outcome::Deny { retry_after } => (millis(retry_after), 0),
        Outcome::Never => (-1, 0),
    };
    reply.map(if with_ticket { 7 } else { 6 });
    reply.bulk(b"allowed");
    reply.boolean(outcome.is_admitted());
    reply.bulk(b"limit");
    match limit {
        Some(name) => reply.bulk(name.as_bytes()),
        None => reply.null(),
    }
    reply.bulk(b"remaining");
    reply.unsigned(remaining);
    reply.bulk(b"retry_after_ms");
    reply.integer(retry);
    reply.bulk(b"reset_after_ms");
    reply.integer(millis(reset_after));
    reply.bulk(b"wait_ms");
    reply.integer(wait);
    if with_ticket {
        reply.bulk(b"ticket");
        match ticket {
            Some(id) => reply.bulk(format!("{id:032x}").as_bytes()),
            None => reply.null(),
        }
    }
    CommandOutcome::Checked
}
