//! The server in the protocol of Redis: throttle commands for those who have a Redis client and want a limiter.
//!
//! [`Resp`] answers bytes with bytes, [`Resp::run`] listens. The way of a command: `parse` finds it in the bytes that were read,
//! `commands` knows its name, `throttle_commands`, `check` and `report` read its arguments, `throttle` or a [`Checker`] decides,
//! `write` renders the reply. A decision that a fleet has to be asked for goes through the connection's [`Pipeline`]. Everything that has arrived is answered before anything is sent, in one write. Warm, nothing allocates.
//!
//! Must not know: command lines, signals, policies.

mod batch_counts;
mod check;
mod checkers;
mod commands;
mod connection;
mod handshake;
mod inline;
mod introspection;
mod number;
mod parse;
mod pipeline;
mod reply_writer;
mod serve;
mod server;
mod session;
mod throttle;
mod throttle_commands;
mod ticket_commands;

pub use check::{
    CheckCommand, CheckFuture, CheckReply, Checker, OwnedCheckCommand, TicketAction, TicketOutcome,
};
pub use parse::{
    ArgumentSpans, MAX_ARGUMENT_LEN, MAX_COMMAND_LEN, MAX_INLINE_LEN, MAX_WORDS, OwnedRespCommand,
    ParseOutcome, ProtocolError, RespCommand, parse,
};
pub use pipeline::Pipeline;
pub use serve::RespLimits;
pub use server::{FeedOutcome, NextAction, RespServer};
pub use session::RespSession;

/// The former name of [`CheckCommand`].
#[deprecated(since = "0.2.0", note = "use `CheckCommand`")]
pub type Asked<'a> = CheckCommand<'a>;
/// The former name of [`CheckReply`].
#[deprecated(since = "0.2.0", note = "use `CheckReply`")]
pub type Said<'a> = CheckReply<'a>;
/// The former name of [`Pending`].
#[deprecated(since = "0.2.0", note = "use `Pending`")]
pub type Awaited<'a, T> = CheckFuture<'a, T>;
