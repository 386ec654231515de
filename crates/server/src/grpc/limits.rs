//! What gRPC's clients are allowed: sizes, numbers and times.
//!
//! Must not know: how any of it is enforced.

use std::time::Duration;

use crate::listen::ListenerLimits;

/// What a server allows those who speak gRPC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GrpcLimits {
    /// What holds for every listener.
    pub listener: ListenerLimits,
    /// Time to begin: to send what HTTP/2 begins with.
    pub preface_timeout: Duration,
    /// Time to send a question once it has begun, and how long an answer is held back at most.
    pub message_timeout: Duration,
    /// Calls on one connection at the same time.
    pub max_concurrent_streams: u32,
    /// The longest message, in bytes.
    pub max_message_len: usize,
    /// The largest head of a call, in bytes.
    pub max_header_list_len: u32,
    /// A connection on which nothing was heard for so long is asked whether anybody is there.
    pub keepalive_interval: Duration,
    /// And is given up when there is no answer for so long.
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
