//! What the server remembers of a connection: its version of the protocol, its names, and the quota it asked for last.
//!
//! Must not know: sockets, commands.

use std::net::SocketAddr;

use super::batch_counts::BatchCounts;
use super::throttle::RecentQuota;

/// The longest name that a client may give itself or its library, in bytes.
pub(super) const MAX_NAME_LEN: usize = 128;

/// One connection, as far as commands can see and change it.
#[derive(Debug)]
pub struct RespSession {
    pub(super) id: u64,
    pub(super) is_resp3: bool,
    /// Whether a password was given, or none is asked for.
    pub(super) is_authenticated: bool,
    pub(super) name: Box<[u8]>,
    pub(super) library: Box<[u8]>,
    pub(super) library_version: Box<[u8]>,
    /// Who asks, and the address they reached us on; unknown where there is no socket.
    pub(super) addresses: Option<(SocketAddr, SocketAddr)>,
    pub(super) recent_quota: RecentQuota,
    /// What came of commands since it was last counted.
    pub(super) counts: BatchCounts,
}

impl RespSession {
    pub(super) fn new(id: u64, is_trusted: bool, ends: Option<(SocketAddr, SocketAddr)>) -> Self {
        Self {
            id,
            is_resp3: false,
            is_authenticated: is_trusted,
            name: Box::default(),
            library: Box::default(),
            library_version: Box::default(),
            addresses: ends,
            recent_quota: RecentQuota::default(),
            counts: BatchCounts::default(),
        }
    }

    /// As it was when it began.
    pub(super) fn reset(&mut self, is_trusted: bool) {
        let library = std::mem::take(&mut self.library);
        let library_version = std::mem::take(&mut self.library_version);
        *self = Self {
            library,
            library_version,
            counts: self.counts,
            ..Self::new(self.id, is_trusted, self.addresses)
        };
    }
}

/// A name that can be listed in one line of words: printable, and short.
pub(super) fn is_valid_client_name(name: &[u8]) -> bool {
    name.len() <= MAX_NAME_LEN && name.iter().all(|byte| matches!(byte, b'!'..=b'~'))
}
