//! The sources of the metrics page: the service, and plain numbers of the components around it.
//!
//! Must not know: how numbers are counted or formatted, sockets.

use tollgate_engine::LimitTotals;
use tollgate_store::MemoryStore;

use crate::fleet::Membership;
use crate::reload::ReloadStatus;
use crate::service::RateLimitService;

/// All sources of metrics.
#[derive(Debug)]
pub struct MetricSources<'a, C> {
    /// The service.
    pub service: &'a RateLimitService<C>,
    /// The totals of the rules of envoyproxy/ratelimit, by name.
    pub descriptor_rules: &'a [(Box<str>, LimitTotals)],
    /// The store of Redis commands that bring their own quota.
    pub throttle_store: Option<&'a MemoryStore<C>>,
    /// Every listener by its name.
    pub listeners: &'a [(&'static str, ListenerCounts)],
    /// The bytes buffered for all connections together, and the most that may be.
    pub buffered_bytes: (u64, u64),
    /// The certificate, if there is TLS.
    pub certificate: Option<CertificateStatus>,
    /// The generation of the policy or of the files that decide.
    pub generation: u64,
    /// The reload status of those files, if the rules are from files.
    pub files: Option<ReloadStatus>,
    /// The counters of RLQS.
    pub quotas: QuotaCounts,
    /// The counters of the gateway, if there is one.
    pub gateway: Option<GatewayCounts>,
    /// This server's membership in a fleet, if it has one.
    pub fleet: Option<&'a Membership>,
}

/// The counters of one listener.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListenerCounts {
    /// Open connections.
    pub open: u64,
    /// Accepted connections.
    pub accepted: u64,
    /// Connections closed at once because too many were open.
    pub refused_connections: u64,
    /// Connections without an answered request that gave way to a newer one.
    pub evicted_connections: u64,
    /// Wrong tokens or passwords.
    pub auth_failures: u64,
    /// Failed calls of `accept`.
    pub accept_errors: u64,
    /// Failed TLS handshakes.
    pub failed_handshakes: u64,
    /// Requests refused and connections closed because there was no room to buffer them.
    pub refused_buffers: u64,
    /// Connections closed because of a flood of HTTP/2 frames.
    pub floods: u64,
    /// Panics that ended one request or one connection.
    pub panics: u64,
    /// Requests that wait now.
    pub waiting: u64,
}

/// The counters of the gateway.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GatewayCounts {
    /// Each route by its host and path, with its responses by the first digit of their status.
    pub routes: Vec<(Box<str>, [u64; 5])>,
    /// Each upstream.
    pub upstreams: Vec<UpstreamCounts>,
}

/// The counters of one upstream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UpstreamCounts {
    /// Its name.
    pub name: Box<str>,
    /// Requests.
    pub requests: u64,
    /// Requests without a response.
    pub failures: u64,
    /// Requests that were sent again.
    pub retries: u64,
    /// Each address.
    pub addresses: Vec<AddressCounts>,
}

/// The counters of one address of an upstream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddressCounts {
    /// The address.
    pub address: Box<str>,
    /// Open connections.
    pub connections: u64,
    /// Requests in progress.
    pub in_flight: u64,
    /// Whether it gets requests: neither ejected nor unhealthy.
    pub is_available: bool,
    /// How often it was ejected.
    pub ejections: u64,
}

/// The certificate of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CertificateStatus {
    /// When it expires, in seconds since 1970.
    pub expires: u64,
    /// The number of successful reloads.
    pub loads: u64,
    /// The number of rejected reloads.
    pub refusals: u64,
}

/// The counters of RLQS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuotaCounts {
    /// Connected clients.
    pub streams: u64,
    /// Buckets of all clients, each once for every client that has it.
    pub buckets: u64,
    /// Reports about buckets.
    pub reports: u64,
    /// Assignments that differ from the one before, or are the first.
    pub changed: u64,
    /// Assignments equal to the one before.
    pub repeated: u64,
    /// Buckets that clients were told to abandon.
    pub abandoned: u64,
    /// Reports without an assignment: too many buckets, or an invalid id.
    pub refused: u64,
}
