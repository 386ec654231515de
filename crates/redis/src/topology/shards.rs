//! Several independent servers that share the keys by rendezvous hashing.
//!
//! Every server gets a score for the key, and the highest score owns it. A new server takes its share from all others;
//! a removed server leaves its share to all others; no other key moves. Scores depend on names, not on addresses, so a
//! server that gets another address keeps its keys. Must not know: connections.

use std::hash::Hasher as _;
use std::sync::Arc;

use siphasher::sip::SipHasher13;
use tokio::sync::Notify;
use tollgate_store::{StoreError, StoreErrorKind};

use crate::address::Endpoint;
use crate::key_name::NameDigest;
use crate::pool::{CallDeadline, CallMode, ConnectionPool, Connector};
use crate::wire::{ScriptCall, ServerReply};

/// The servers, and the hash of each name.
#[derive(Debug)]
pub(crate) struct Shards {
    name_hashes: Vec<u64>,
    pools: Vec<Arc<ConnectionPool>>,
}

impl Shards {
    pub(super) async fn open(
        connector: &Connector,
        shards: Vec<(String, Endpoint)>,
        connections: usize,
    ) -> Result<Self, StoreError> {
        let refresh_signal = Arc::new(Notify::new());
        let name_hashes = shards.iter().map(|(name, _)| hash_name(name)).collect();
        let pools = shards
            .into_iter()
            .map(|(_, endpoint)| {
                ConnectionPool::start(connector, endpoint, connections, &refresh_signal)
                    .map(Arc::new)
            })
            .collect::<Result<Vec<_>, _>>()?;
        for pool in &pools {
            pool.wait_for_first_attempt().await;
        }
        Ok(Self { name_hashes, pools })
    }

    pub(super) fn shard_of(&self, tag: NameDigest) -> u16 {
        select_shard(&self.name_hashes, tag)
    }

    pub(super) fn pools(&self) -> Vec<Arc<ConnectionPool>> {
        self.pools.clone()
    }

    pub(super) fn pool(&self, shard: u16) -> Option<Arc<ConnectionPool>> {
        self.pools.get(usize::from(shard)).cloned()
    }

    pub(super) async fn call(
        &self,
        shard: u16,
        request: &ScriptCall,
        deadline: &mut CallDeadline,
    ) -> Result<ServerReply, StoreError> {
        let Some(pool) = self.pools.get(usize::from(shard)) else {
            let detail = "no such shard";
            return Err(StoreError::new(StoreErrorKind::Unreachable, detail));
        };
        let called = pool.call(request, CallMode::Plain, deadline).await;
        called.map_err(|failure| failure.error)
    }
}

/// The hash of a name. It must be the same in every process and version, so that keys are found again.
fn hash_name(name: &str) -> u64 {
    let mut hasher = SipHasher13::new();
    hasher.write(name.as_bytes());
    hasher.finish()
}

fn select_shard(name_hashes: &[u64], tag: NameDigest) -> u16 {
    let winner = name_hashes
        .iter()
        .zip(0_u16..)
        .max_by_key(|(name, _)| mix(tag.upper_half() ^ **name));
    winner.map_or(0, |(_, index)| index)
}

/// Mixes all bits: the finalizer of splitmix64.
const fn mix(mut x: u64) -> u64 {
    x ^= x >> 30;
    x = x.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x ^= x >> 27;
    x = x.wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use tollgate_store::StoreKey;

    use super::*;
    use crate::key_name::KeyHashSecret;

    fn hashes(names: &[&str]) -> Vec<u64> {
        names.iter().map(|name| hash_name(name)).collect()
    }

    fn tags() -> Vec<NameDigest> {
        let secret = KeyHashSecret::new(*b"0123456789abcdef");
        (0..10_000_u32)
            .map(|n| NameDigest::new(secret, &StoreKey::new(&n.to_be_bytes()).unwrap()))
            .collect()
    }

    #[test]
    fn keys_are_shared_evenly() {
        let name_hashes = hashes(&["north", "east", "south", "west"]);
        let mut counts = [0_u32; 4];
        for tag in tags() {
            counts[usize::from(select_shard(&name_hashes, tag))] += 1;
        }
        for count in counts {
            assert!((2_300..2_700).contains(&count), "{counts:?}");
        }
    }

    #[test]
    fn removing_a_server_moves_only_its_own_keys() {
        let (all, left) = (
            hashes(&["north", "east", "south"]),
            hashes(&["north", "south"]),
        );
        for tag in tags() {
            match select_shard(&all, tag) {
                0 => assert_eq!(select_shard(&left, tag), 0),
                2 => assert_eq!(select_shard(&left, tag), 1),
                _ => {}
            }
        }
    }

    #[test]
    fn the_order_of_the_servers_does_not_matter() {
        let (one, other) = (hashes(&["north", "east"]), hashes(&["east", "north"]));
        for tag in tags() {
            assert_eq!(select_shard(&one, tag), 1 - select_shard(&other, tag));
        }
    }

    /// If this fails, keys would be looked up on other servers than before.
    #[test]
    fn shards_of_keys_are_the_same_in_every_version() {
        let name_hashes = hashes(&["north", "east", "south"]);
        let first: Vec<u16> = tags()
            .iter()
            .take(12)
            .map(|tag| select_shard(&name_hashes, *tag))
            .collect();
        assert_eq!(first, [0, 1, 1, 2, 1, 2, 2, 1, 1, 1, 2, 1]);
    }
}
