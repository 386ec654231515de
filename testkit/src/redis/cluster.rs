//! A cluster of three primaries with a replica each, put together here and now: slots are assigned and nodes introduced by
//! commands, because the usual tool takes its time.
//!
//! Must not know: what is kept in it.

use super::node::{RedisNode, until};
use super::program::ServerProgram;
use crate::process::failed;

/// How many slots a cluster has.
const SLOTS: u16 = 16_384;
/// Keys that are moved in one go.
const HANDFUL: &str = "100";

/// A running cluster. The first three nodes begin as primaries, the others as their replicas in the same order.
#[derive(Debug)]
pub struct RedisCluster {
    /// All nodes.
    pub nodes: Vec<RedisNode>,
    ids: Vec<String>,
}

impl RedisCluster {
    /// Starts one whose nodes call each other dead after so many milliseconds.
    ///
    /// # Panics
    /// It does not come up.
    #[must_use]
    pub fn start(kind: ServerProgram, node_timeout: u32) -> Self {
        Self::start_with(kind, node_timeout, 3)
    }

    /// The same with only so many of the replicas.
    ///
    /// # Panics
    /// It does not come up.
    #[must_use]
    pub fn start_with(kind: ServerProgram, node_timeout: u32, replicas: usize) -> Self {
        let timeout = node_timeout.to_string();
        let arguments = [
            "--cluster-enabled",
            "yes",
            "--cluster-node-timeout",
            timeout.as_str(),
            // A part that is lost does not stop the others.
            "--cluster-require-full-coverage",
            "no",
            "--cluster-replica-validity-factor",
            "0",
            "--repl-diskless-sync-delay",
            "0",
            "--save",
            "",
            "--appendonly",
            "no",
        ];
        let nodes: Vec<RedisNode> = (0..3 + replicas)
            .map(|_| RedisNode::start(kind, &arguments))
            .collect();
        let ids = nodes
            .iter()
            .map(|node| node.ask(&["CLUSTER", "MYID"]))
            .collect();
        let cluster = Self { nodes, ids };
        cluster.introduce();
        cluster.assign();
        cluster.until_well();
        cluster
    }

    /// Where to find it, as a client wants it.
    #[must_use]
    pub fn url(&self) -> String {
        let nodes: Vec<String> = self
            .nodes
            .iter()
            .map(|node| node.address().to_string())
            .collect();
        format!("redis+cluster://{}", nodes.join(","))
    }

    /// Which node serves a slot, as this node sees it.
    #[must_use]
    pub fn owner(&self, slot: u16, as_seen_by: usize) -> Option<usize> {
        let list = self.node(as_seen_by).try_ask(&["CLUSTER", "NODES"]).ok()?;
        let line = list.lines().find(|line| {
            let mut words = line.split_whitespace();
            let flags = words.nth(2).unwrap_or_default();
            flags.contains("master")
                && !flags.contains("fail")
                && words.skip(5).any(|range| holds(range, slot))
        })?;
        let id = line.split_whitespace().next()?;
        self.ids.iter().position(|known| known == id)
    }

    /// Makes a replica take over from its primary, whether or not anybody agrees.
    ///
    /// # Panics
    /// It refuses.
    pub fn take_over(&self, replica: usize) {
        self.node(replica)
            .tell(&["CLUSTER", "FAILOVER", "TAKEOVER"]);
    }

    /// Begins to move a slot: from now on new keys of it belong to the target.
    ///
    /// # Panics
    /// A node refuses.
    pub fn begin_move(&self, slot: u16, from: usize, to: usize) {
        let number = slot.to_string();
        self.node(to)
            .tell(&["CLUSTER", "SETSLOT", &number, "IMPORTING", self.id(from)]);
        self.node(from)
            .tell(&["CLUSTER", "SETSLOT", &number, "MIGRATING", self.id(to)]);
    }

    /// Moves the keys that are there.
    ///
    /// # Panics
    /// A node refuses.
    pub fn move_keys(&self, slot: u16, from: usize, to: usize) {
        let port = self.node(to).address().port().to_string();
        loop {
            let keys =
                self.node(from)
                    .ask(&["CLUSTER", "GETKEYSINSLOT", &slot.to_string(), HANDFUL]);
            let mut keys = keys.lines().peekable();
            if keys.peek().is_none() {
                return;
            }
            let mut call = vec!["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "KEYS"];
            call.extend(keys);
            self.node(from).tell(&call);
        }
    }

    /// Ends the move: both, and the other primaries, are told who has the slot.
    ///
    /// # Panics
    /// A node refuses.
    pub fn end_move(&self, slot: u16, from: usize, to: usize) {
        let number = slot.to_string();
        // The target first: if it were told last, nobody would serve the slot for a moment.
        for node in [to, from] {
            self.node(node)
                .tell(&["CLUSTER", "SETSLOT", &number, "NODE", self.id(to)]);
        }
    }

    /// Moves a slot with everything in it.
    ///
    /// # Panics
    /// A node refuses.
    pub fn move_slot(&self, slot: u16, from: usize, to: usize) {
        self.begin_move(slot, from, to);
        self.move_keys(slot, from, to);
        self.end_move(slot, from, to);
    }

    fn introduce(&self) {
        for (index, node) in self.nodes.iter().enumerate() {
            // Different from the start, so that no two nodes have to settle who is right.
            node.tell(&["CLUSTER", "SET-CONFIG-EPOCH", &(index + 1).to_string()]);
        }
        let first = self.node(0).address();
        for node in self.nodes.iter().skip(1) {
            let port = first.port().to_string();
            node.tell(&["CLUSTER", "MEET", "127.0.0.1", &port]);
        }
        let all = self.nodes.len().to_string();
        until("all nodes know each other", || {
            self.nodes.iter().all(|node| {
                let list = node.try_ask(&["CLUSTER", "NODES"]).unwrap_or_default();
                self.field(node, "cluster_known_nodes").as_ref() == Some(&all)
                    && !list.contains("handshake")
            })
        });
    }

    fn assign(&self) {
        let share = SLOTS / 3;
        for (index, node) in self.nodes.iter().enumerate() {
            if index >= 3 {
                let primary = self.id(index - 3);
                until("a replica knows its primary", || {
                    node.try_ask(&["CLUSTER", "REPLICATE", primary])
                        .is_ok_and(|reply| reply == "OK")
                });
                continue;
            }
            let number = u16::try_from(index).unwrap_or(0);
            let first = number * share;
            let last = if index == 2 {
                SLOTS - 1
            } else {
                first + share - 1
            };
            let slots: Vec<String> = (first..=last).map(|slot| slot.to_string()).collect();
            let mut call = vec!["CLUSTER", "ADDSLOTS"];
            call.extend(slots.iter().map(String::as_str));
            node.tell(&call);
        }
    }

    /// Waits until every node says that all is well.
    ///
    /// # Panics
    /// It never is.
    pub fn until_well(&self) {
        until("the cluster is well", || {
            self.nodes.iter().all(|node| {
                self.field(node, "cluster_state").as_deref() == Some("ok")
                    && self.field(node, "cluster_slots_ok").as_deref() == Some("16384")
                    && (node.info("role").as_deref() == Some("master")
                        || node.info("master_link_status").as_deref() == Some("up"))
            })
        });
    }

    #[expect(
        clippy::unused_self,
        reason = "reads as what it is: a field of the cluster's state as a node sees it"
    )]
    fn field(&self, node: &RedisNode, name: &str) -> Option<String> {
        let info = node.try_ask(&["CLUSTER", "INFO"]).ok()?;
        let mut lines = info.lines().filter_map(|line| line.split_once(':'));
        Some(lines.find(|(key, _)| *key == name)?.1.trim().to_owned())
    }

    fn node(&self, index: usize) -> &RedisNode {
        self.nodes
            .get(index)
            .unwrap_or_else(|| failed("there is no such node"))
    }

    fn id(&self, index: usize) -> &str {
        self.ids
            .get(index)
            .unwrap_or_else(|| failed("there is no such node"))
    }
}

/// Whether a range of slots, as `CLUSTER NODES` writes it, has this one.
fn holds(range: &str, slot: u16) -> bool {
    let (first, last) = range.split_once('-').unwrap_or((range, range));
    matches!((first.parse::<u16>(), last.parse::<u16>()), (Ok(first), Ok(last)) if (first..=last).contains(&slot))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_serves_every_slot_and_a_slot_moves() {
        let cluster = RedisCluster::start_with(ServerProgram::Redis, 5_000, 0);
        let owner = cluster.owner(0, 1).unwrap();
        assert_eq!(owner, 0);
        // `{06S}` lies in slot 0.
        cluster.node(0).tell(&["SET", "{06S}", "kept"]);
        cluster.move_slot(0, 0, 2);
        assert_eq!(cluster.node(2).ask(&["GET", "{06S}"]), "kept");
        until("all know", || cluster.owner(0, 1) == Some(2));
    }

    #[test]
    fn ranges_are_read_as_they_are_written() {
        assert!(holds("0-5460", 5460) && holds("7", 7));
        assert!(!holds("0-5460", 5461) && !holds("[93-<-292f8b]", 93));
    }
}
