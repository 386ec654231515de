//! `TG.CHECK` and `TG.ACQUIRE`: a request described by its attributes, decided by whatever policy the server runs.
//!
//! The command only reads and words; who decides is behind [`Checker`]. Must not know: policies, stores.

use std::future::{Future, ready};
use std::pin::Pin;

use tollgate_core::{Nanos, Outcome};

use super::number::integer;
use super::parse::{Command, MAX_WORDS};
use super::tally::Tally;
use super::write::{Echo, Reply};

/// Whoever decides on `TG.CHECK` and `TG.ACQUIRE`.
pub trait Checker: Send + Sync {
    /// Decides on a request and says what came of it by calling `say` once. The answer may borrow from the decision, which is
    /// why it is handed on and not returned.
    fn check(&self, asked: &Asked<'_>, say: &mut dyn FnMut(&Said<'_>));

    /// Hears about a ticket that it has given. Whoever gives none knows none.
    fn report(&self, _report: Report, _ticket: u128) -> Reported {
        Reported::Unknown
    }

    /// Whether it may have to be waited for. Then it is asked in the two ways below, and never in the two above.
    fn waits(&self) -> bool {
        false
    }

    /// [`check`](Self::check), awaited.
    fn check_together<'a>(&'a self, asked: &'a Asked<'a>, say: Say<'a>) -> Awaited<'a, ()> {
        self.check(asked, say);
        Box::pin(ready(()))
    }

    /// [`report`](Self::report), awaited.
    fn report_together(&self, report: Report, ticket: u128) -> Awaited<'_, Reported> {
        Box::pin(ready(self.report(report, ticket)))
    }
}

/// Who hears what is said.
pub type Say<'a> = &'a mut (dyn FnMut(&Said<'_>) + Send);

/// What has to be waited for.
pub type Awaited<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What is said about a ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Report {
    /// The work is done: `TG.RELEASE`.
    Release,
    /// The work goes on: `TG.RENEW`.
    Renew,
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reported {
    /// It was carried out.
    Done,
    /// There was nothing left to do: it was released before, or a place is no longer held.
    Nothing,
    /// There is no such ticket.
    Unknown,
    /// The store did not carry out all of it.
    Failed,
}

/// A request as `TG.CHECK` describes it.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
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
    command: Command<'a>,
    first: usize,
}

/// What a checker says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said<'a> {
    /// It was decided.
    Verdict {
        /// What is to be done.
        outcome: Outcome,
        /// The limit that decided, by name; or that is nearest to it.
        limit: Option<&'a str>,
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
        name: &'a [u8],
        /// What is wrong.
        reason: &'static str,
    },
    /// Nothing was decided, for this reason.
    Failed(&'a str),
}

impl<'a> Asked<'a> {
    /// All attributes, in the order they were sent.
    pub fn attributes(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + use<'a> {
        let Pairs { command, first } = self.attributes;
        (first..command.len())
            .step_by(2)
            .map(move |at| (command.word(at), command.word(at.saturating_add(1))))
    }

    /// `TG.CHECK [COST n] [PEEK] attribute value [attribute value ...]`, and `TG.ACQUIRE`, which cannot only look.
    fn read(command: &Command<'a>, is_acquire: bool) -> Result<Self, Wrong<'a>> {
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
            let word = command.word(*first);
            if word.eq_ignore_ascii_case(b"cost") && asked.cost.is_none() {
                let cost = command.word(first.saturating_add(1));
                let number = integer(cost).and_then(|cost| u64::try_from(cost).ok());
                asked.cost = Some(number.ok_or(Wrong::Cost(cost))?);
                *first = first.saturating_add(2);
            } else if word.eq_ignore_ascii_case(b"peek") && !asked.is_peek {
                asked.is_peek = true;
                *first = first.saturating_add(1);
            } else {
                break;
            }
        }
        if is_acquire && asked.is_peek {
            return Err(Wrong::Peek);
        }
        let words = command.len().saturating_sub(*first);
        if words == 0 || !words.is_multiple_of(2) {
            return Err(Wrong::Count);
        }
        Ok(asked)
    }
}

enum Wrong<'a> {
    Count,
    Cost(&'a [u8]),
    Peek,
}

/// Reads, asks and answers.
pub(super) fn run(
    checker: Option<&dyn Checker>,
    command: &Command<'_>,
    is_acquire: bool,
    tally: &mut Tally,
    reply: &mut Reply<'_>,
) {
    // Until it is known better.
    let mut is_decided = false;
    if let Some((checker, asked)) = understood(checker, command, is_acquire, reply) {
        checker.check(&asked, &mut |said| {
            is_decided = matches!(said, Said::Verdict { .. });
            say(said, is_acquire, reply);
        });
    }
    tally.asked(is_decided);
}

/// The same where decisions have to be waited for. Whether it was decided.
pub(super) async fn run_together(
    checker: Option<&dyn Checker>,
    command: &Command<'_>,
    is_acquire: bool,
    reply: &mut Reply<'_>,
) -> bool {
    let mut is_decided = false;
    if let Some((checker, asked)) = understood(checker, command, is_acquire, reply) {
        let mut hear = |said: &Said<'_>| {
            is_decided = matches!(said, Said::Verdict { .. });
            say(said, is_acquire, reply);
        };
        checker.check_together(&asked, &mut hear).await;
    }
    is_decided
}

/// The question and whoever decides on it; or the answer is that it cannot be understood.
fn understood<'a>(
    checker: Option<&'a dyn Checker>,
    command: &Command<'a>,
    is_acquire: bool,
    reply: &mut Reply<'_>,
) -> Option<(&'a dyn Checker, Asked<'a>)> {
    let name = if is_acquire { "TG.ACQUIRE" } else { "TG.CHECK" };
    match (Asked::read(command, is_acquire), checker) {
        (Ok(asked), Some(checker)) => return Some((checker, asked)),
        (Ok(_), None) => reply.error(format_args!(
            "ERR {name} needs a policy, and this server runs without one"
        )),
        (Err(Wrong::Count), _) => {
            let usage = "[COST n] [PEEK] attribute value [attribute value ...]";
            reply.error(format_args!(
                "ERR attributes come as pairs: {name} {usage}, {MAX_WORDS} words at most"
            ));
        }
        (Err(Wrong::Peek), _) => reply.error(format_args!(
            "ERR what is only looked at cannot be held; see TG.CHECK"
        )),
        (Err(Wrong::Cost(cost)), _) => reply.error(format_args!(
            "ERR cost: '{}' is not a whole number from 0 to 9223372036854775807",
            Echo(cost)
        )),
    }
    None
}

fn say(said: &Said<'_>, with_ticket: bool, reply: &mut Reply<'_>) {
    let (outcome, limit, remaining, reset_after, ticket) = match said {
        Said::Verdict {
            outcome,
            limit,
            remaining,
            reset_after,
            ticket,
        } => (*outcome, *limit, *remaining, *reset_after, *ticket),
        Said::BadAttribute { name, reason } => {
            return reply.error(format_args!("ERR attribute '{}': {reason}", Echo(name)));
        }
        Said::Failed(reason) => return reply.error(format_args!("ERR {reason}")),
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
    reply.truth(outcome.is_admitted());
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
}
