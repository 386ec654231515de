//! Sockets: where to listen, and one loop that accepts, bounds and drains, whatever is spoken on the connections.
//!
//! A protocol is a [`Serve`]: what it does with one connection. Must not know: any protocol.

mod accept;
mod listener;
mod place;
mod rewound;
mod send;
mod stopping;
mod stream;
mod tls;
#[cfg(unix)]
mod unix;
mod vigil;

pub use accept::{Bounds, Ended, Serve, accept};
pub use listener::{Listener, Peer};
pub use place::{InvalidPlace, Place, Reached};
pub(crate) use rewound::Rewound;
pub(crate) use send::send;
pub use stopping::{Stop, Stopping};
pub use stream::Stream;
pub use tls::{InvalidTls, Secured, Spoken, Tls, TlsFiles, TlsLooked};
pub(crate) use vigil::{Vigil, Woken};
