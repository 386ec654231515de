//! `TG.CHECK` and `TG.ACQUIRE`: a request described by its attributes, decided by the policy of the server.
//!
//! This file parses commands and renders replies; a [`Checker`] decides. Must not know: policies, stores.

use std::borrow::Cow;
use std::future::ready;
use std::pin::Pin;

use tollgate_core::{Nanos, Outcome};

use super::batch_counts::CommandOutcome;
use super::number::{LineBuffer, lines_len, parse_integer};
use super::parse::{MAX_ARGUMENTS, OwnedRespCommand, RespCommand};
use super::pipeline::{Pipeline, RenderedReply};
use super::reply_writer::{EchoedInput, ReplyWriter};
use super::session::RespSession;
use crate::http::check_request::parse_max_wait;

/// Decides on `TG.CHECK` and `TG.ACQUIRE`, and releases and renews tickets.
pub trait Checker: Send + Sync {
    /// Decides on a request. An immediate reply is passed to `render`, because it may borrow from the decision. If a fleet has
    /// to be awaited, the future is returned and `render` is not called.
    fn check<'a>(
        &'a self,
        request: &CheckCommand<'_>,
        render: &mut dyn FnMut(&CheckReply<'_>),
    ) -> Option<CheckFuture<'a, CheckReply<'static>>>;

    /// Releases or renews a ticket. A checker that issues no tickets knows none.
    fn update_ticket(
        &self,
        _report: TicketAction,
        _ticket: u128,
    ) -> CheckFuture<'_, TicketOutcome> {
        Box::pin(ready(TicketOutcome::UnknownTicket))
    }
}

/// A reply that has to be awaited.
pub type CheckFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What a command does with a ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TicketAction {
    /// `TG.RELEASE`: the request is done.
    Release,
    /// `TG.RENEW`: the request is still in progress.
    Renew,
}

/// The outcome of a ticket command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TicketOutcome {
    /// It was carried out.
    Done,
    /// Nothing was left to do: the ticket was released before, or a lease has expired.
    NothingToDo,
    /// There is no such ticket.
    UnknownTicket,
    /// The store failed to carry out all of it.
    StoreFailed,
}

/// A parsed `TG.CHECK` or `TG.ACQUIRE`.
#[derive(Clone, Copy, Debug)]
pub struct CheckCommand<'a> {
    attributes: AttributePairs<'a>,
    /// The cost, if the client overrides the policy.
    pub cost: Option<u64>,
    /// The longest wait that the client accepts, if it is shorter than the policy's.
    pub max_wait: Option<Nanos>,
    /// Whether to report the decision without charging.
    pub is_peek: bool,
    /// Whether the client wants a ticket, to release leases later.
    pub is_acquire: bool,
}

/// The arguments that are attribute names and values, alternating.
#[derive(Clone, Copy, Debug)]
struct AttributePairs<'a> {
    command: RespCommand<'a>,
    first: usize,
}

/// A command that owns its bytes.
#[derive(Clone, Debug)]
pub struct OwnedCheckCommand {
    command: OwnedRespCommand,
    first: usize,
    cost: Option<u64>,
    max_wait: Option<Nanos>,
    is_peek: bool,
    is_acquire: bool,
}

/// The reply of a checker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckReply<'a> {
    /// The request was decided.
    Verdict {
        /// The decision.
        outcome: Outcome,
        /// The name of the limit that decided, or of the one nearest to its limit.
        limit: Option<Cow<'a, str>>,
        /// What remains of that limit.
        remaining: u64,
        /// When that limit is unused again.
        reset_after: Nanos,
        /// The ticket, if the command was `TG.ACQUIRE` and something has to be settled.
        ticket: Option<u128>,
    },
    /// An attribute is invalid.
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
    /// All attributes, in the order of the command.
    pub fn attributes(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + use<'a> {
        let AttributePairs { command, first } = self.attributes;
        command.pairs_from(first)
    }

    /// The same command with its own bytes.
    #[must_use]
    pub fn to_owned(&self) -> OwnedCheckCommand {
        let AttributePairs { command, first } = self.attributes;
        OwnedCheckCommand {
            command: command.to_owned(),
            first,
            cost: self.cost,
            max_wait: self.max_wait,
            is_peek: self.is_peek,
            is_acquire: self.is_acquire,
        }
    }

    /// Parses `TG.CHECK [COST n] [WAIT duration] [PEEK] attribute value [attribute value ...]`, and `TG.ACQUIRE`, which rejects `PEEK`.
    fn read(command: &RespCommand<'a>, is_acquire: bool) -> Result<Self, InvalidCheck<'a>> {
        let mut parsed = Self {
            attributes: AttributePairs {
                command: *command,
                first: 1,
            },
            cost: None,
            max_wait: None,
            is_peek: false,
            is_acquire,
        };
        let first = &mut parsed.attributes.first;
        loop {
            let word = command.argument(*first);
            if word.eq_ignore_ascii_case(b"cost") && parsed.cost.is_none() {
                let cost = command.argument(first.saturating_add(1));
                let number = parse_integer(cost).and_then(|cost| u64::try_from(cost).ok());
                parsed.cost = Some(number.ok_or(InvalidCheck::Cost(cost))?);
                *first = first.saturating_add(2);
            } else if word.eq_ignore_ascii_case(b"wait") && parsed.max_wait.is_none() {
                let wait = command.argument(first.saturating_add(1));
                let text = std::str::from_utf8(wait).ok();
                let parsed_wait = text.and_then(|text| parse_max_wait(text).ok());
                parsed.max_wait = Some(parsed_wait.ok_or(InvalidCheck::Wait(wait))?);
                *first = first.saturating_add(2);
            } else if word.eq_ignore_ascii_case(b"peek") && !parsed.is_peek {
                parsed.is_peek = true;
                *first = first.saturating_add(1);
            } else {
                break;
            }
        }
        if is_acquire && parsed.is_peek {
            return Err(InvalidCheck::Peek);
        }
        let count = command.len().saturating_sub(*first);
        if count == 0 || !count.is_multiple_of(2) {
            return Err(InvalidCheck::Count);
        }
        Ok(parsed)
    }
}

impl OwnedCheckCommand {
    /// Borrows the command.
    #[must_use]
    pub const fn as_command(&self) -> CheckCommand<'_> {
        CheckCommand {
            attributes: AttributePairs {
                command: self.command.as_command(),
                first: self.first,
            },
            cost: self.cost,
            max_wait: self.max_wait,
            is_peek: self.is_peek,
            is_acquire: self.is_acquire,
        }
    }
}

impl CheckReply<'_> {
    /// The same without borrows.
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

/// Why a command is invalid.
enum InvalidCheck<'a> {
    Count,
    Cost(&'a [u8]),
    Wait(&'a [u8]),
    Peek,
    NoChecker,
}

/// Parses a command, has it decided and replies: immediately, or through the connection's pipeline if a fleet decides.
pub(super) fn run<'s>(
    checker: Option<&'s dyn Checker>,
    command: &RespCommand<'_>,
    is_acquire: bool,
    session: &mut RespSession,
    pipeline: &mut Pipeline<'s>,
    out: &mut Vec<u8>,
) {
    let is_resp3 = session.is_resp3;
    // The default, unless the checker replies.
    let (mut outcome, mut pending) = (CommandOutcome::Failed, None);
    pipeline.reply(out, |out| {
        let reply = &mut ReplyWriter::new(out, is_resp3);
        let request = CheckCommand::read(command, is_acquire)
            .and_then(|request| Ok((checker.ok_or(InvalidCheck::NoChecker)?, request)));
        match request {
            Ok((checker, request)) => {
                pending = checker.check(&request, &mut |check_reply| {
                    outcome = render(check_reply, is_acquire, reply);
                });
            }
            Err(wrong) => wrong.render(is_acquire, reply),
        }
    });
    let Some(pending) = pending else {
        return session.counts.add(outcome);
    };
    pipeline.push(async move {
        let mut bytes = Vec::new();
        let check_reply = pending.await;
        let outcome = render(
            &check_reply,
            is_acquire,
            &mut ReplyWriter::new(&mut bytes, is_resp3),
        );
        RenderedReply { bytes, outcome }
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
                let usage = "[COST n] [WAIT duration] [PEEK] attribute value [attribute value ...]";
                reply.error(format_args!(
                    "ERR attributes come as pairs: {name} {usage}, {MAX_ARGUMENTS} arguments at most"
                ));
            }
            Self::Peek => reply.error(format_args!("ERR a peek cannot hold a lease; use TG.CHECK")),
            Self::Wait(wait) => reply.error(format_args!(
                "ERR wait: '{}' is not a duration: 0s not to wait, or 500ms, 2s, 1m",
                EchoedInput(wait)
            )),
            Self::Cost(cost) => reply.error(format_args!(
                "ERR cost: '{}' is not a whole number from 0 to 9223372036854775807",
                EchoedInput(cost)
            )),
        }
    }
}

/// Renders the reply of a checker.
fn render(
    check_reply: &CheckReply<'_>,
    with_ticket: bool,
    reply: &mut ReplyWriter<'_>,
) -> CommandOutcome {
    let (outcome, limit, remaining, reset_after, ticket) = match check_reply {
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
    let pairs = if with_ticket { 7 } else { 6 };
    let mut head = LineBuffer::<{ lines_len(1, 28) }>::new();
    match reply.is_resp3() {
        true => head.push_number(b'%', pairs),
        false => head.push_number(b'*', pairs.saturating_mul(2)),
    }
    head.push_text(b"$7\r\nallowed\r\n");
    head.push_text(match (reply.is_resp3(), outcome.is_admitted()) {
        (true, true) => b"#t\r\n",
        (true, false) => b"#f\r\n",
        (false, true) => b":1\r\n",
        (false, false) => b":0\r\n",
    });
    head.push_text(b"$5\r\nlimit\r\n");
    reply.lines(&head);
    match limit {
        Some(name) => reply.bulk(name.as_bytes()),
        None => reply.null(),
    }
    let mut numbers = LineBuffer::<{ lines_len(4, 70) }>::new();
    numbers.push_text(b"$9\r\nremaining\r\n");
    numbers.push_number(b':', i64::try_from(remaining).unwrap_or(i64::MAX));
    numbers.push_text(b"$14\r\nretry_after_ms\r\n");
    numbers.push_number(b':', retry);
    numbers.push_text(b"$14\r\nreset_after_ms\r\n");
    numbers.push_number(b':', millis(reset_after));
    numbers.push_text(b"$7\r\nwait_ms\r\n");
    numbers.push_number(b':', wait);
    reply.lines(&numbers);
    if with_ticket {
        reply.bulk(b"ticket");
        match ticket {
            Some(id) => reply.bulk(format!("{id:032x}").as_bytes()),
            None => reply.null(),
        }
    }
    CommandOutcome::Checked
}
