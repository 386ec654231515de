//! What gRPC's clients are allowed: sizes, numbers and times.
//!
//! Must not know: how any of it is enforced.

use std::time::Duration;

use crate::listen::Bounds;

/// What a server allows those who speak gRPC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GrpcLimits {
    /// What holds for every listener.
    pub bounds: Bounds,
    /// Time to begin: to send what HTTP/2 begins with.
    pub head: Duration,
    /// Time to send a question once it has begun, and how long an answer is held back at most.
    pub body: Duration,
    /// Calls on one connection at the same time.
    pub streams: u32,
    /// The longest message, in bytes.
    pub message: usize,
    /// The largest head of a call, in bytes.
    pub head_len: u32,
    /// A connection on which nothing was heard for so long is asked whether anybody is there.
    pub ask_after: Duration,
    /// And is given up when there is no answer for so long.
    pub give_up_after: Duration,
}

impl Default for GrpcLimits {
    fn default() -> Self {
        Self {
            bounds: Bounds::default(),
            head: Duration::from_secs(5),
            body: Duration::from_secs(10),
            streams: 1_024,
            message: 65_536,
            head_len: 16_384,
            ask_after: Duration::from_secs(60),
            give_up_after: Duration::from_secs(20),
        }
    }
}
