//! What can be wrong with a way, as data. The default is that nothing is.
//!
//! Must not know: sockets, who uses the way.

use std::num::{NonZeroU64, NonZeroUsize};
use std::time::Duration;

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the client to the server.
    There,
    /// From the server to the client.
    Back,
}

/// What is wrong at the moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Toxics {
    /// With what clients send.
    pub there: FlowToxics,
    /// With what the server answers.
    pub back: FlowToxics,
    /// With connecting.
    pub door: AcceptMode,
}

impl Toxics {
    /// What is wrong with one way.
    #[must_use]
    pub const fn flow(&self, way: Direction) -> &FlowToxics {
        match way {
            Direction::There => &self.there,
            Direction::Back => &self.back,
        }
    }
}

/// What is wrong with bytes that go one way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowToxics {
    /// Bytes arrive so much later. Later bytes need not wait for earlier ones to be sent on.
    pub latency: Duration,
    /// By up to so much more or less than that, differently each time and the same for the same seed.
    pub jitter: Duration,
    /// So many bytes in a second, and no more.
    pub bandwidth: Option<NonZeroU64>,
    /// Bytes arrive in slices.
    pub slices: Option<Slicer>,
    /// So many bytes of each connection, and then its end.
    pub limit: Option<DataLimit>,
    /// Whether bytes arrive at all.
    pub silence: SwallowMode,
}

/// How bytes are sliced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slicer {
    /// The bytes of each.
    pub bytes: NonZeroUsize,
    /// The time between two.
    pub pause: Duration,
}

/// The end of a connection after so many bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataLimit {
    /// The bytes that still pass, counted from the beginning of the connection.
    pub bytes: u64,
    /// How it ends.
    pub ending: CloseMode,
}

/// How a connection ends, as both sides see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseMode {
    /// Politely: both sides read an end.
    Close,
    /// With a reset, as if the machine had crashed.
    Reset,
}

/// Whether bytes arrive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SwallowMode {
    /// They do.
    #[default]
    None,
    /// They wait until this is over, as in a network that is healed.
    Held,
    /// They are lost, and so is every later byte of the same connection, as behind a device that forgot the connection.
    Lost,
}

/// What becomes of those who connect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AcceptMode {
    /// They are let through.
    #[default]
    Open,
    /// They are accepted and reset at once. Unlike behind a closed door they are counted.
    Reset,
    /// Nobody listens: the system refuses them, and nobody counts them.
    Closed,
}
