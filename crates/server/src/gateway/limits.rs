//! The limits of the gateway's clients and upstreams: sizes, counts and times.
//!
//! Must not know: how they are enforced.

use std::time::Duration;

use crate::listen::ListenerLimits;

/// The longest head of an HTTP/1.1 message, in bytes, and its most fields.
pub(super) const MAX_HEAD_LEN: usize = 32 * 1_024;
pub(super) const MAX_FIELDS: usize = 100;
/// The largest header list of an HTTP/2 message, in bytes.
pub(super) const MAX_HEADER_LIST_LEN: u32 = 32 * 1_024;
/// The longest target of a request.
pub(super) const MAX_TARGET_LEN: usize = 8 * 1_024;
/// Bytes that a client's HTTP/2 connection, or one of its streams, may send before they are forwarded.
pub(super) const HTTP2_WINDOW: u32 = 64 * 1_024;
pub(super) const HTTP2_CONNECTION_WINDOW: u32 = 256 * 1_024;
/// Bytes that are buffered for each stream until the client reads them.
pub(super) const HTTP2_SEND_BUFFER: usize = 64 * 1_024;
/// Streams that a client may reset before they are served, and streams with errors. More end the connection: rapid reset.
pub(super) const MAX_RESET_STREAMS: usize = 64;
pub(super) const MAX_ERROR_RESETS: usize = 128;
/// An HTTP/2 connection without traffic for this long is pinged, and closed without an answer.
pub(super) const HTTP2_KEEPALIVE_INTERVAL: Duration = Duration::from_secs(60);
pub(super) const HTTP2_KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(20);

/// The limits of the gateway listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GatewayLimits {
    /// The limits of its listener.
    pub listener: ListenerLimits,
    /// Time to receive the head of a request, counted from when the connection is ready for it. This is also the idle timeout
    /// of HTTP/1.1 connections.
    pub header_timeout: Duration,
    /// Time without a request after which an HTTP/1.1 connection gives up its buffers: longer than the pauses of a busy client.
    pub park_after: Duration,
    /// Time in which a client sends no byte of a body. It is closed later if it sends fewer than 240 bytes in a second.
    pub body_timeout: Duration,
    /// Requests at the same time on one HTTP/2 connection.
    pub max_concurrent_streams: u32,
}

impl Default for GatewayLimits {
    fn default() -> Self {
        Self {
            listener: ListenerLimits::default(),
            header_timeout: Duration::from_secs(30),
            park_after: Duration::from_millis(250),
            body_timeout: Duration::from_secs(30),
            max_concurrent_streams: 128,
        }
    }
}
