//! The server in the protocol of Redis: throttle commands for those who have a Redis client and want a limiter.
//!
//! [`Resp`] answers bytes with bytes, [`Resp::run`] listens. The way of a command: `parse` finds it in the bytes that were read,
//! `commands` knows its name, `families` and `check` read its arguments, `throttle` or a [`Checker`] decides, `write` says
//! it. Everything that has arrived is answered before anything is sent, in one write. Warm, nothing allocates.
//!
//! Must not know: command lines, signals, policies.

mod about;
mod by_engine;
mod check;
mod commands;
mod connection;
mod families;
mod greetings;
mod number;
mod parse;
mod quoted;
mod serve;
mod server;
mod session;
mod tally;
mod throttle;
mod tickets;
mod under_way;
mod write;

pub use check::{Asked, Awaited, Checker, Report, Reported, Said, Say};
pub use parse::{
    Broken, Command, MAX_COMMAND_LEN, MAX_INLINE_LEN, MAX_WORD_LEN, MAX_WORDS, Parsed, Words, parse,
};
pub use serve::RespLimits;
pub use server::{Fed, Resp, Then};
pub use session::Session;
