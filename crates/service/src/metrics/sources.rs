//! What the metrics page is written from: the service, and plain numbers of whatever stands around it.
//!
//! Must not know: how numbers are counted or spelt, sockets.

use tollgate_engine::LimitTotals;
use tollgate_store::MemoryStore;

use crate::fleet::Membership;
use crate::reload::ReloadStatus;
use crate::service::RateLimitService;

/// Everything that numbers are read from, beside the service itself.
#[derive(Debug)]
pub struct MetricSources<'a, C> {
    /// The service.
    pub service: &'a RateLimitService<C>,
    /// What rules of envoyproxy/ratelimit have decided, by their names.
    pub descriptor_rules: &'a [(Box<str>, LimitTotals)],
    /// The store of Redis commands that bring their own quota.
    pub throttle_store: Option<&'a MemoryStore<C>>,
    /// Every listener by its name.
    pub listeners: &'a [(&'static str, ListenerCounts)],
    /// The certificate, if there is TLS.
    pub certificate: Option<CertificateStatus>,
    /// The generation of the policy or of the files that decide.
    pub generation: u64,
    /// The state of the files that decide, if there are any.
    pub files: Option<ReloadStatus>,
    /// What clients of RLQS were assigned.
    pub quotas: QuotaCounts,
    /// This server's place in a fleet, if it has one.
    pub fleet: Option<&'a Membership>,
}

/// What one listener has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListenerCounts {
    /// Connections that are open.
    pub open: u64,
    /// Connections that were served.
    pub accepted: u64,
    /// Connections that were closed at once because too many were open.
    pub refused_connections: u64,
    /// Connections that the operating system could not hand over.
    pub accept_errors: u64,
    /// Connections that failed in the handshake of TLS.
    pub failed_handshakes: u64,
    /// Panics that ended one request or one connection.
    pub panics: u64,
    /// Answers that are held back now.
    pub waiting: u64,
}

/// The certificate of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CertificateStatus {
    /// When it expires, in seconds since 1970.
    pub expires: u64,
    /// How often its files were loaded.
    pub loads: u64,
    /// How often its files were refused.
    pub refusals: u64,
}

/// What was done about quotas that clients of RLQS are assigned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuotaCounts {
    /// Clients that are connected.
    pub streams: u64,
    /// Buckets of all clients, each once for every client that has it.
    pub buckets: u64,
    /// Reports about buckets.
    pub reports: u64,
    /// Assignments that were other than those before, or the first.
    pub changed: u64,
    /// Assignments that were the same as before.
    pub repeated: u64,
    /// Buckets that clients were told to forget.
    pub abandoned: u64,
    /// Reports about buckets for which there was no room, or whose ids could not be used.
    pub refused: u64,
}
