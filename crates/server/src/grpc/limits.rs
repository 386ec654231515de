//! The limits of gRPC clients: sizes, counts and timeouts.
//!
//! Must not know: how they are enforced.

use std::time::Duration;

use crate::listen::ListenerLimits;

/// The limits of the gRPC listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GrpcLimits {
    /// The limits of its listener.
    pub listener: ListenerLimits,
    /// Time to receive the HTTP/2 connection preface.
    pub preface_timeout: Duration,
    /// Time to receive the rest of a request once its head has arrived.
    pub message_timeout: Duration,
    /// Concurrent calls on one connection.
    pub max_concurrent_streams: u32,
    /// The longest message, in bytes.
    pub max_message_len: usize,
    /// The largest header list of a call, in bytes.
    pub max_header_list_len: u32,
    /// A connection without traffic for this long is pinged.
    pub keepalive_interval: Duration,
    /// A connection is closed if no pong arrives within this time.
    pub keepalive_timeout: Duration,
}

impl Default for GrpcLimits {
    fn default() -> Self {
        Self {
            listener: ListenerLimits::default(),
            preface_timeout: Duration::from_secs(5),
            message_timeout: Duration::from_secs(10),
            max_concurrent_streams: 1_024,
            max_message_len: 65_536,
            max_header_list_len: 16_384,
            keepalive_interval: Duration::from_secs(60),
            keepalive_timeout: Duration::from_secs(20),
        }
    }
}
