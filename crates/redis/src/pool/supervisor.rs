//! The supervisor of one connection: connects, checks the role, loads the scripts, probes, authenticates again when the
//! credentials change, and reconnects.
//!
//! Must not know: batches, what callers wait for.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::time::Duration;

use redis::{RedisResult, Value};
use tokio::sync::Notify;

use super::connector::Connector;
use super::pooled_connection::PooledConnection;
use crate::address::Endpoint;
use crate::connection::PipelinedConnection;
use crate::credentials::Credentials;
use crate::script::ScriptKind;
use crate::task::jittered;

/// How often an idle connection is probed.
const PROBE_EVERY: Duration = Duration::from_secs(1);
/// How long a slow server may take to answer a probe before the connection is discarded.
const PROBE_DEADLINE: Duration = Duration::from_secs(1);
const MIN_PAUSE: Duration = Duration::from_millis(50);
/// The longest pause between two attempts. A server that is back is used after one more failing attempt, this pause and one
/// successful attempt; [`RedisOptions::max_reconnect_time`] is their sum.
///
/// [`RedisOptions::max_reconnect_time`]: crate::RedisOptions::max_reconnect_time
pub(crate) const MAX_PAUSE: Duration = Duration::from_millis(700);

/// Supervises one pooled connection.
#[derive(Clone, Debug)]
pub(super) struct ConnectionSupervisor {
    pub(super) connection: Arc<PooledConnection>,
    pub(super) connector: Connector,
    pub(super) endpoint: Endpoint,
    /// Notified when the server is unreachable or not a primary.
    pub(super) refresh_signal: Arc<Notify>,
}

impl ConnectionSupervisor {
    pub(super) async fn run(self) {
        let mut pause = MIN_PAUSE;
        for generation in 1.. {
            if let Ok((connection, credentials)) = self.connect().await {
                self.connection.put(connection, generation);
                pause = MIN_PAUSE;
                self.supervise(generation, credentials).await;
            }
            self.connection.mark_tried();
            self.refresh_signal.notify_one();
            tokio::time::sleep(half_jittered(pause)).await;
            pause = next_pause(pause);
        }
    }

    async fn connect(&self) -> RedisResult<(PipelinedConnection, Option<Credentials>)> {
        let connecting = async {
            let credentials = self.connector.credentials().await?;
            let connection = self
                .connector
                .connect(&self.endpoint, credentials.as_ref())
                .await?;
            let mut greeting = vec![redis::cmd("ROLE")];
            for kind in ScriptKind::DECIDING
                .into_iter()
                .chain([ScriptKind::QuotaLease, ScriptKind::SpendUnleased])
            {
                let mut load = redis::cmd("SCRIPT");
                load.arg("LOAD").arg(kind.script().text);
                greeting.push(load);
            }
            let mut replies = connection.pipeline(&greeting).await?;
            if replies.is_empty() || !is_primary(&replies.remove(0)) {
                return Err(std::io::Error::other("the server is a replica").into());
            }
            // A server that cannot load scripts yet is not usable.
            for reply in replies {
                reply?;
            }
            Ok((connection, credentials))
        };
        match tokio::time::timeout(self.connector.deadline(), connecting).await {
            Ok(connected) => connected,
            Err(_elapsed) => Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into()),
        }
    }

    /// Returns when the connection can no longer be used.
    async fn supervise(&self, generation: u64, mut credentials: Option<Credentials>) {
        loop {
            // Probe at once after a request, otherwise periodically.
            let _waited =
                tokio::time::timeout(PROBE_EVERY, self.connection.probe_requested()).await;
            let Some(current) = self.connection.current() else {
                return;
            };
            let probing = async {
                self.reauthenticate(&current.connection, &mut credentials)
                    .await
                    && probe(&current.connection, generation).await
            };
            let probed = tokio::time::timeout(PROBE_DEADLINE, probing).await;
            if probed != Ok(true) {
                self.connection.discard(generation);
                return;
            }
        }
    }

    /// Authenticates again on the open connection if the credentials have changed. Returns whether the connection can
    /// still be used.
    async fn reauthenticate(
        &self,
        connection: &PipelinedConnection,
        previous: &mut Option<Credentials>,
    ) -> bool {
        // Credentials that cannot be read may be in the middle of a change.
        let Ok(Some(now)) = self.connector.credentials().await else {
            return true;
        };
        if previous.as_ref() == Some(&now) {
            return true;
        }
        let mut login = redis::cmd("AUTH");
        if let Some(username) = &now.username {
            login.arg(username);
        }
        login.arg(&now.password);
        let is_accepted = connection.query(&login).await.is_ok();
        *previous = Some(now);
        is_accepted
    }
}

/// A random pause of at least half of `max`: so that the attempts of many nodes are spread, and none tries twice at once.
fn half_jittered(max: Duration) -> Duration {
    let half = max / 2;
    half.saturating_add(jittered(half))
}

/// The bound of the pause after the next failed attempt.
fn next_pause(pause: Duration) -> Duration {
    pause.saturating_mul(2).min(MAX_PAUSE)
}

/// Whether the server replies correctly and is still a primary.
async fn probe(connection: &PipelinedConnection, generation: u64) -> bool {
    // A unique word: on a connection that lost a reply, every later call would get the reply of another.
    let nonce = RandomState::new().hash_one(generation);
    let mut ping = redis::cmd("PING");
    ping.arg(nonce);
    let replies = connection.pipeline(&[ping, redis::cmd("ROLE")]).await;
    let Ok([Ok(echo), role]) = replies.as_deref() else {
        return false;
    };
    matches!(redis::from_redis_value_ref::<u64>(echo), Ok(echo) if echo == nonce)
        && is_primary(role)
}

/// Whether a server with this reply to `ROLE` is a primary. A replica's state is stale and its decisions bind no other
/// node. A server that does not permit `ROLE` counts as a primary; a replica would refuse to write.
fn is_primary(role: &RedisResult<Value>) -> bool {
    let Ok(Value::Array(parts)) = role else {
        return true;
    };
    let role = match parts.first() {
        Some(Value::BulkString(role)) => role.as_slice(),
        Some(Value::SimpleString(role)) => role.as_bytes(),
        _ => return true,
    };
    role == b"master"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn i05_pauses_between_attempts_to_connect_are_bounded_and_random() {
        let mut pause = MIN_PAUSE;
        for _ in 0..100 {
            let drawn = half_jittered(pause);
            assert!(drawn >= pause / 2 && drawn < MAX_PAUSE, "{drawn:?}");
            pause = next_pause(pause);
        }
        assert_ne!(half_jittered(pause), half_jittered(pause));
        assert_eq!(pause, MAX_PAUSE);
    }

    #[test]
    fn s_20_only_a_primary_may_decide() {
        let role = |name: &[u8]| Ok(Value::Array(vec![Value::BulkString(name.to_vec())]));
        assert!(is_primary(&role(b"master")));
        assert!(!is_primary(&role(b"slave")));
        assert!(!is_primary(&role(b"sentinel")));
        let refused = redis::make_extension_error("NOPERM".to_owned(), None);
        assert!(is_primary(&Err(refused)));
    }
}
