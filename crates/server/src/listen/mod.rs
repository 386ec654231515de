//! Sockets: listen addresses, TLS, and the accept loop that all protocols share.
//!
//! A protocol implements [`ConnectionHandler`]. Must not know: any protocol.

mod accept;
mod auth_failure_throttle;
mod buffer_budget;
mod client_network;
pub(crate) mod counters;
mod idle_connection;
mod listen_address;
mod listener;
mod open_connections;
mod prefixed_stream;
mod proxy_protocol;
mod send;
mod shutdown;
mod shutdown_or_timeout;
mod stream;
mod tls;
mod transfer_timer;
#[cfg(unix)]
mod unix;

pub use accept::{ConnectionHandler, DrainOutcome, ListenerLimits, accept};
pub(crate) use auth_failure_throttle::{
    AuthFailureThrottle, FAILURE_DELAY, FailureAnswer, is_same_secret,
};
pub use buffer_budget::BufferBudget;
pub(crate) use buffer_budget::{BufferPriority, BufferReservation, BuffersFull, UNCOUNTED_LEN};
pub(crate) use idle_connection::IdleConnection;
pub use listen_address::{InvalidListenAddress, ListenAddress, LocalEndpoint};
pub use listener::{Listener, Peer};
pub use open_connections::ConnectionProgress;
pub(crate) use prefixed_stream::PrefixedStream;
#[doc(hidden)]
pub use proxy_protocol::fuzz_proxy_header;
pub(crate) use send::{SendProgress, send_available};
pub use shutdown::{ShutdownSignal, ShutdownTrigger};
pub(crate) use shutdown_or_timeout::{
    CONFIRMATION, ShutdownOrTimeout, WakeReason, confirmed_timeout,
};
pub use stream::Stream;
pub use tls::{ApplicationProtocol, InvalidTls, ListenerTls, ServerTls, TlsFiles, TlsReload};
pub(crate) use tls::{load_certificates, load_private_key};
pub(crate) use transfer_timer::{MIN_TRANSFER_RATE, TransferTimer};
