//! Faults on the way to a server: a proxy between a client and one server that delays, cuts, loses and forges, as a test says
//! while it runs.
//!
//! It runs on a thread of its own, so that what a test blocks does not stop the bytes. It knows just enough of the Redis
//! protocol to tell commands and replies apart; anything else passes as bytes. Must not know: what the commands are for.

mod connection;
mod counters;
mod flow;
mod listener;
mod proxy;
mod proxy_state;
mod reply_rewriter;
mod resp;
mod toxics;

#[cfg(test)]
mod tests;

pub use counters::Counters;
pub use proxy::Proxy;
pub use reply_rewriter::{ANY, AfterRewrite};
pub use toxics::{
    AcceptMode, CloseMode, DataLimit, Direction, FlowToxics, Slicer, SwallowMode, Toxics,
};
