//! Sockets: where to listen, and one loop that accepts, bounds and drains, whatever is spoken on the connections.
//!
//! A protocol is a [`Serve`]: what it does with one connection. Must not know: any protocol.

mod accept;
pub(crate) mod counters;
mod listener;
mod place;
mod prefixed_stream;
mod send;
mod shutdown_or_timeout;
mod stopping;
mod stream;
mod tls;
#[cfg(unix)]
mod unix;

pub use accept::{Bounds, Ended, Serve, accept};
pub use listener::{Listener, Peer};
pub use place::{InvalidPlace, ListenAddress, Reached};
pub(crate) use prefixed_stream::PrefixedStream;
pub(crate) use send::send;
pub(crate) use shutdown_or_timeout::{ShutdownOrTimeout, WakeReason};
pub use stopping::{Stop, Stopping};
pub use stream::Stream;
pub use tls::{InvalidTls, Secured, ServerTls, Spoken, TlsFiles, TlsLooked};
