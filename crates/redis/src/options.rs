//! Options of the Redis store: addresses, credentials, deadlines. Every wait and every queue is bounded here.
//!
//! Must not know: connections, scripts.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tollgate_core::Nanos;

use crate::address::ParsedAddress;
use crate::credentials::CredentialsProvider;
use crate::key_name::KeyHashSecret;
use crate::tls::RedisTls;

/// Options of a [`RedisStore`](crate::RedisStore).
#[derive(Clone)]
#[non_exhaustive]
pub struct RedisOptions {
    /// The server or servers:
    /// - `redis://[user:password@]host[:port][/db]` or `redis+unix:///path`: a single server;
    /// - `redis+sentinel://[user:password@]host[:port],…/master[/db]`: the primary that sentinels name;
    /// - `redis+cluster://[user:password@]host[:port],…`: a cluster, by some of its nodes;
    /// - `redis+shards://[user:password@]name=host[:port],…[/db]`: independent servers that share the keys by name.
    ///
    /// Use `rediss` instead of `redis` for TLS. User and password are those of the servers, not of the sentinels.
    pub address: String,
    /// Source of user and password, instead of the address. They may change while the store is in use.
    pub credentials: Option<Arc<dyn CredentialsProvider>>,
    /// Source of user and password for the sentinels, if they need any.
    pub sentinel_credentials: Option<Arc<dyn CredentialsProvider>>,
    /// Certificates for TLS.
    pub tls: RedisTls,
    /// The secret that key names are derived with. All nodes of a fleet must use the same one, or each counts
    /// separately.
    pub secret: KeyHashSecret,
    /// The longest time that one decision may take.
    pub deadline: Duration,
    /// The longest time that connecting may take. No decision waits for it.
    pub connect_deadline: Duration,
    /// Connections to each server. Each one multiplexes many calls.
    pub connections: usize,
    /// The largest number of calls in flight. Further calls fail at once instead of waiting.
    pub max_in_flight: usize,
    /// How closed and expired reservations are kept.
    pub reservation_retention: ReservationRetention,
}

/// How long reservations are kept, and how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReservationRetention {
    /// How long an expired reservation is kept, so that a late settle can charge more.
    pub retention: Nanos,
    /// The largest number of reservations under one key of one limit, open or closed.
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
    /// Whether the address contains a password. [`credentials`](Self::credentials) keeps it out of command lines and logs.
    #[must_use]
    pub fn has_password_in_address(&self) -> bool {
        ParsedAddress::parse(&self.address)
            .is_ok_and(|address| address.template.redis_settings().password().is_some())
    }

    /// The defaults: 15 ms per decision, 200 ms to connect, three connections, 4,096 calls in flight.
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

    /// The longest time from when a server accepts connections to when it is connected: an attempt that began too early,
    /// the pause after it, and an attempt that succeeds.
    #[must_use]
    pub const fn max_reconnect_time(&self) -> Duration {
        let attempts = self.connect_deadline.saturating_mul(2);
        attempts.saturating_add(crate::pool::MAX_PAUSE)
    }
}

impl fmt::Debug for RedisOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisOptions")
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

/// The address without user and password.
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
        let text = shown("redis+cluster://limiter:open@sesame@a:1,b:2");
        assert!(text.contains("redis+cluster://..@a:1,b:2"), "{text}");
        assert!(!text.contains("sesame") && !text.contains("open"), "{text}");
        assert!(!text.contains("0123456789abcdef"), "{text}");
        assert!(shown("redis://a:1/2").contains("redis://a:1/2"));
    }
}
