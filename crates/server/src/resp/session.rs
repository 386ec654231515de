//! The state of one connection: protocol version, client names, and the last throttle quota.
//!
//! Must not know: sockets, commands.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::batch_counts::BatchCounts;
use super::throttle::RecentQuota;

/// The longest client name or library name, in bytes.
pub(super) const MAX_NAME_LEN: usize = 128;

/// The state of one connection that commands read and change.
#[derive(Debug)]
pub struct RespSession {
    pub(super) id: u64,
    pub(super) is_resp3: bool,
    /// Whether the client has given the password, or none is required.
    pub(super) is_authenticated: bool,
    pub(super) name: Box<[u8]>,
    pub(super) library: Box<[u8]>,
    pub(super) library_version: Box<[u8]>,
    /// The addresses of the client and the server, if there is a socket.
    pub(super) addresses: Option<(SocketAddr, SocketAddr)>,
    pub(super) recent_quota: RecentQuota,
    /// Outcomes of commands that are not yet in the metrics.
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

    /// The client's IP address. Clients without a socket address are local.
    pub(super) fn client_ip(&self) -> IpAddr {
        let local = IpAddr::V4(Ipv4Addr::LOCALHOST);
        self.addresses.map_or(local, |(client, _)| client.ip())
    }

    /// Resets the session, as `RESET` does.
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

/// Whether a client name is printable, without spaces, and short enough.
pub(super) fn is_valid_client_name(name: &[u8]) -> bool {
    name.len() <= MAX_NAME_LEN && name.iter().all(|byte| matches!(byte, b'!'..=b'~'))
}
