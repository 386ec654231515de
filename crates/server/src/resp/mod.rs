//! The Redis protocol listener: throttle commands and checks for programs with a Redis client.
//!
//! [`RespServer`] answers bytes with bytes, [`RespServer::run`] listens. The steps of a command: `parse` finds it in the input, `parsed_commands` a few at a time,
//! `commands` dispatches it by name, `throttle_commands`, `check` and `ticket_commands` parse its arguments, `throttle` or a
//! [`Checker`] decides, and `reply_writer` renders the reply. A decision that needs a fleet goes through the connection's
//! [`Pipeline`]. All input is answered before the replies are sent in one write. In steady state nothing allocates.
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
mod parsed_commands;
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
    ArgumentSpans, MAX_ARGUMENT_LEN, MAX_ARGUMENTS, MAX_COMMAND_LEN, MAX_INLINE_LEN,
    OwnedRespCommand, ParseOutcome, ProtocolError, RespCommand, parse,
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
/// The former name of [`CheckFuture`].
#[deprecated(since = "0.2.0", note = "use `CheckFuture`")]
pub type Awaited<'a, T> = CheckFuture<'a, T>;
