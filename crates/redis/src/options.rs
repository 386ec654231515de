//! How to reach the server, and how long to wait for it. Every wait and every queue has a bound here.
//!
//! Must not know: connections, scripts.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tollgate_core::Nanos;

use crate::credentials::CredentialsProvider;
use crate::key_name::KeyHashSecret;
use crate::tls::RedisTls;

/// Where the server is and how it is used.
#[derive(Clone)]
#[non_exhaustive]
pub struct RedisOptions {
    /// The server or servers:
    /// - `redis://[user:password@]host[:port][/db]` or `redis+unix:///path`: one;
    /// - `redis+sentinel://[user:password@]host[:port],…/master[/db]`: the one that sentinels name;
    /// - `redis+cluster://[user:password@]host[:port],…`: a cluster, of which some nodes are named;
    /// - `redis+shards://[user:password@]name=host[:port],…[/db]`: independent servers that share the keys by their names.
    ///
    /// With `rediss` instead of `redis` it is spoken by TLS. User and password are those of the servers, not of sentinels.
    pub address: String,
    /// Where user and password come from, if not from the address. They may change while the store is in use.
    pub credentials: Option<Arc<dyn CredentialsProvider>>,
    /// Where user and password for sentinels come from, if these want any.
    pub sentinel_credentials: Option<Arc<dyn CredentialsProvider>>,
    /// Certificates, for TLS.
    pub tls: RedisTls,
    /// What the names of keys are derived with. Every node of a fleet must have the same, or each counts by itself.
    pub secret: KeyHashSecret,
    /// The longest that one decision may take.
    pub deadline: Duration,
    /// The longest that making a connection may take. No decision waits for it.
    pub connect_deadline: Duration,
    /// Connections to each server, each of which carries many calls at a time.
    pub connections: usize,
    /// The most calls under way at once. Beyond it calls are refused at once instead of queued.
    pub max_in_flight: usize,
    /// How long closed and expired reservations are remembered.
    pub reservation_retention: ReservationRetention,
}

/// How long reservations are remembered, and how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReservationRetention {
    /// Time for which an expired reservation is still known, so that a late settle can charge more.
    pub retention: Nanos,
    /// The most that are remembered for one key of one limit, open or not.
    pub max_records: u32,
}

impl Default for ReservationRetention {
    fn default() -> Self {
        Self {
            retention: Nanos::MINUTE,
            max_records: 1_024,
        }
    }
}

impl RedisOptions {
    /// The usual waits and bounds: 15 ms for a decision, 200 ms for a connection, three connections, 4,096 calls.
    pub fn new(address: impl Into<String>, secret: KeyHashSecret) -> Self {
        Self {
            address: address.into(),
            credentials: None,
            sentinel_credentials: None,
            tls: RedisTls::default(),
            secret,
            deadline: Duration::from_millis(15),
            connect_deadline: Duration::from_millis(200),
            connections: 3,
            max_in_flight: 4_096,
            reservation_retention: ReservationRetention::default(),
        }
    }
}

impl fmt::Debug for RedisOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("address", &redacted(&self.address))
            .field("credentials", &self.credentials)
            .field("sentinel_credentials", &self.sentinel_credentials)
            .field("tls", &self.tls)
            .field("deadline", &self.deadline)
            .field("connect_deadline", &self.connect_deadline)
            .field("connections", &self.connections)
            .field("most_in_flight", &self.max_in_flight)
            .field("remembering", &self.reservation_retention)
            .finish_non_exhaustive()
    }
}

/// An address without the user and the password.
fn redacted(address: &str) -> String {
    match (address.split_once("://"), address.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, servers))) => format!("{scheme}://..@{servers}"),
        _ => address.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s_39_an_address_is_shown_without_its_password() {
        let shown = |address: &str| {
            let options = RedisOptions::new(address, KeyHashSecret::new(*b"0123456789abcdef"));
            format!("{options:?}")
        };
        let told = shown("redis+cluster://limiter:open@sesame@a:1,b:2");
        assert!(told.contains("redis+cluster://..@a:1,b:2"), "{told}");
        assert!(!told.contains("sesame") && !told.contains("open"), "{told}");
        assert!(!told.contains("0123456789abcdef"), "{told}");
        assert!(shown("redis://a:1/2").contains("redis://a:1/2"));
    }
}
