//! The layout of the servers: finds a key's server and calls it. Single server, sentinels, cluster or independent
//! shards.
//!
//! A call that may have been executed is never repeated. The next server is found in the background, never by a caller.
//! Must not know: what is in a call, how replies are read.

mod cluster;
mod inspect;
mod sentinel;
mod shards;
mod single;
mod slot;

use std::sync::Arc;
use std::time::Duration;

use tollgate_store::StoreError;

use self::cluster::Cluster;
use self::sentinel::Sentinel;
use self::shards::Shards;
use self::single::SingleServer;
use crate::address::{AddressLayout, ParsedAddress};
use crate::key_name::NameDigest;
use crate::options::RedisOptions;
use crate::pool::{CallDeadline, ConnectionPool, Connector};
use crate::wire::{ScriptCall, ServerReply};

pub use self::inspect::{ServerWarning, ServerWarningKind};

/// The unit that one call can reach: a cluster slot, one of several servers, or the only server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct HashSlot(u16);

impl HashSlot {
    /// The number of the slot or of the server.
    pub(crate) const fn number(self) -> u16 {
        self.0
    }
}

#[derive(Debug)]
pub(crate) enum Topology {
    Single(SingleServer),
    Sentinel(Sentinel),
    Cluster(Cluster),
    Shards(Shards),
}

impl Topology {
    /// Starts connecting and waits at most a few connect deadlines for the first connections.
    pub(crate) async fn open(options: &RedisOptions) -> Result<Self, StoreError> {
        let ParsedAddress {
            layout: shape,
            template,
        } = ParsedAddress::parse(&options.address)?;
        let connector = Connector::new(&template, options)?;
        Ok(match shape {
            AddressLayout::Single(endpoint) => {
                Self::Single(SingleServer::open(&connector, endpoint, options.connections).await?)
            }
            AddressLayout::Sentinel { sentinels, master } => {
                let sentinel_connector =
                    connector.with_credentials(options.sentinel_credentials.clone());
                let client = sentinel::SentinelClient::new(sentinel_connector, sentinels, master);
                Self::Sentinel(Sentinel::open(connector, client, options.connections).await?)
            }
            AddressLayout::Cluster(seeds) => {
                Self::Cluster(Cluster::open(connector, seeds, options.connections).await?)
            }
            AddressLayout::Shards(shards) => {
                Self::Shards(Shards::open(&connector, shards, options.connections).await?)
            }
        })
    }

    /// The slot of a key with this tag.
    pub(crate) fn slot_of(&self, tag: NameDigest) -> HashSlot {
        HashSlot(match self {
            Self::Single(_) | Self::Sentinel(_) => 0,
            Self::Cluster(_) => slot::hash_slot(&tag.to_text()),
            Self::Shards(shards) => shards.shard_of(tag),
        })
    }

    /// The slot of a key with a literal hash tag.
    pub(crate) fn slot_of_name(&self, tag: &[u8]) -> HashSlot {
        HashSlot(match self {
            Self::Single(_) | Self::Sentinel(_) => 0,
            Self::Cluster(_) => slot::hash_slot(tag),
            Self::Shards(shards) => shards.shard_of(NameDigest::from_name(tag)),
        })
    }

    /// Calls a script on the server of its keys, once.
    pub(crate) async fn call(
        &self,
        slot: HashSlot,
        request: &ScriptCall,
        deadline: &mut CallDeadline,
    ) -> Result<ServerReply, StoreError> {
        match self {
            Self::Single(single) => single.call(request, deadline).await,
            Self::Sentinel(sentinel) => sentinel.call(request, deadline).await,
            Self::Cluster(cluster) => cluster.call(slot.0, request, deadline).await,
            Self::Shards(shards) => shards.call(slot.0, request, deadline).await,
        }
    }

    /// The pools of all known servers that decide.
    pub(crate) fn pools(&self) -> Vec<Arc<ConnectionPool>> {
        match self {
            Self::Single(single) => vec![single.pool()],
            Self::Sentinel(sentinel) => sentinel.pool().into_iter().collect(),
            Self::Cluster(cluster) => cluster.pools(),
            Self::Shards(shards) => shards.pools(),
        }
    }

    /// Queries `INFO` of every server and returns warnings.
    pub(crate) async fn inspect(&self, timeout: Duration) -> Vec<ServerWarning> {
        let is_cluster = matches!(self, Self::Cluster(_));
        let pools = self.pools();
        let mut warnings = Vec::new();
        if pools.is_empty() {
            warnings.push(inspect::no_answer_warning("the address", false));
        }
        for pool in pools {
            let server = pool.endpoint().to_string();
            match pool.query(&redis::cmd("INFO"), timeout).await {
                Ok(info) => match redis::from_redis_value::<String>(info) {
                    Ok(info) => {
                        warnings.extend(inspect::server_warnings(&server, &info, is_cluster));
                    }
                    Err(_unreadable) => warnings.push(inspect::no_answer_warning(&server, true)),
                },
                Err(error) => {
                    warnings.push(inspect::no_answer_warning(&server, error.code().is_some()));
                }
            }
        }
        warnings
    }

    /// Discards the call's connection after an invalid reply: later replies on it cannot be trusted.
    pub(crate) fn discard_connection(&self, slot: HashSlot) {
        let pool = match self {
            Self::Single(single) => Some(single.pool()),
            Self::Sentinel(sentinel) => sentinel.pool(),
            Self::Cluster(cluster) => cluster.owner(slot.0),
            Self::Shards(shards) => shards.pool(slot.0),
        };
        if let Some(pool) = pool {
            pool.discard_connection();
        }
    }

    /// Whether any server is connected.
    pub(crate) fn is_connected(&self) -> bool {
        self.pools().iter().any(|pool| pool.is_connected())
    }
}
