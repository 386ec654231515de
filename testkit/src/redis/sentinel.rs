//! A primary, its replica, and three sentinels that watch over them with shortened periods.
//!
//! Must not know: what is kept in it.

use super::node::{RedisNode, until};
use super::program::ServerProgram;
use crate::process::failed;

/// What the sentinels call the primary.
pub const MASTER: &str = "limits";

/// How often sentinels look at servers and at each other, in milliseconds.
///
/// A sentinel promotes a replica only if it has heard from it within five ping periods, and while the primary is down it asks
/// replicas once a second. With a ping period of 100 ms, every second attempt found no good replica, and each took six seconds
/// (S-16, seed 15684038167417526820).
const PERIODS: [&str; 12] = [
    "SENTINEL",
    "DEBUG",
    "ping-period",
    "400",
    "info-period",
    "300",
    "ask-period",
    "200",
    "publish-period",
    "300",
    "default-down-after",
    "2000",
];

/// A running set-up. The first server begins as the primary.
#[derive(Debug)]
pub struct RedisSentinels {
    /// The two servers.
    pub servers: Vec<RedisNode>,
    /// The three that watch them.
    pub sentinels: Vec<RedisNode>,
}

impl RedisSentinels {
    /// Starts one in which a server is called dead after so many milliseconds.
    ///
    /// # Panics
    /// It does not come up.
    #[must_use]
    pub fn start(kind: ServerProgram, down_after: u32) -> Self {
        let plain = [
            "--save",
            "",
            "--appendonly",
            "no",
            "--repl-diskless-sync-delay",
            "0",
        ];
        let primary = RedisNode::start(kind, &plain);
        let port = primary.address().port().to_string();
        let mut follows: Vec<&str> = plain.to_vec();
        follows.extend(["--replicaof", "127.0.0.1", &port]);
        let replica = RedisNode::start(kind, &follows);
        let settings = format!(
            "sentinel monitor {MASTER} 127.0.0.1 {port} 2\n\
             sentinel down-after-milliseconds {MASTER} {down_after}\n\
             sentinel failover-timeout {MASTER} 3000\n"
        );
        let sentinels: Vec<RedisNode> = (0..3)
            .map(|_| RedisNode::start_prepared(kind, &["--sentinel"], Some(&settings)))
            .collect();
        for sentinel in &sentinels {
            // Asked often, a server is not called dead because one answer was late. Before 7.0 this cannot be said.
            let _is_known = sentinel.try_ask(&PERIODS);
        }
        let set = Self {
            servers: vec![primary, replica],
            sentinels,
        };
        until("the replica follows", || {
            set.servers
                .get(1)
                .is_some_and(|replica| replica.info("master_link_status").as_deref() == Some("up"))
        });
        until("the sentinels know each other and the replica", || {
            set.sentinels.iter().all(|sentinel| {
                let said = sentinel
                    .try_ask(&["SENTINEL", "MASTER", MASTER])
                    .unwrap_or_default();
                field(&said, "num-other-sentinels") == Some("2")
                    && field(&said, "num-slaves") == Some("1")
                    && field(&said, "flags") == Some("master")
            })
        });
        set
    }

    /// Where to find it, as a client wants it.
    #[must_use]
    pub fn url(&self) -> String {
        let sentinels: Vec<String> = self
            .sentinels
            .iter()
            .map(|node| node.address().to_string())
            .collect();
        format!("redis+sentinel://{}/{MASTER}", sentinels.join(","))
    }

    /// Makes the sentinels put this server in the place of the primary, although nothing is wrong with that one.
    ///
    /// # Panics
    /// They never do.
    pub fn failover(&self, to: usize) {
        let (Some(first), Some(server)) = (self.sentinels.first(), self.servers.get(to)) else {
            failed("there is no such server")
        };
        let port = server.address().port().to_string();
        until("the sentinels change the primary", || {
            let said = first
                .try_ask(&["SENTINEL", "MASTER", MASTER])
                .unwrap_or_default();
            if field(&said, "port") == Some(port.as_str()) {
                return true;
            }
            // It may be refused, or given up half way, while they think that the replica is not well.
            if !field(&said, "flags").is_some_and(|flags| flags.contains("failover_in_progress")) {
                let _is_begun = first.try_ask(&["SENTINEL", "FAILOVER", MASTER]);
            }
            false
        });
        self.until_primary_is(to);
    }

    /// Waits until all sentinels name this server as the primary, and it agrees.
    ///
    /// # Panics
    /// They never do.
    pub fn until_primary_is(&self, server: usize) {
        let Some(server) = self.servers.get(server) else {
            failed("there is no such server")
        };
        let port = server.address().port().to_string();
        until("the sentinels agree on the new primary", || {
            server.info("role").as_deref() == Some("master")
                && self.sentinels.iter().all(|sentinel| {
                    sentinel
                        .try_ask(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER])
                        .is_ok_and(|said| said.lines().nth(1) == Some(port.as_str()))
                })
        });
    }
}

/// A field of a list of names and values.
fn field<'a>(said: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = said.lines();
    while let Some(key) = lines.next() {
        let value = lines.next()?;
        if key == name {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentinels_put_the_replica_in_the_place_of_a_killed_primary() {
        let mut set = RedisSentinels::start(ServerProgram::Redis, 1_500);
        assert_eq!(set.servers[1].info("role").as_deref(), Some("slave"));
        set.servers[0].kill();
        set.until_primary_is(1);
        set.servers[0].restart();
        until("the old primary follows", || {
            set.servers[0].info("role").as_deref() == Some("slave")
        });
    }

    #[test]
    fn fields_are_found_by_their_names() {
        assert_eq!(
            field("name\nlimits\nflags\nmaster", "flags"),
            Some("master")
        );
        assert_eq!(field("name\nflags\nlimits", "flags"), None);
    }
}
