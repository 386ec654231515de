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

use redis::Value;
use tokio::time::Instant;
use tollgate_store::StoreError;

use self::cluster::Cluster;
use self::sentinel::Sentinel;
use self::shards::Shards;
use self::single::SingleServer;
use crate::address::{AddressLayout, ParsedAddress};
use crate::key_name::NameDigest;
use crate::options::RedisOptions;
use crate::pool::{ConnectionPool, Connector};
use crate::wire::ScriptCall;

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
        let dial = Connector::new(&template, options)?;
        Ok(match shape {
            AddressLayout::Single(endpoint) => {
                Self::Single(SingleServer::open(&dial, endpoint, options.connections).await?)
            }
            AddressLayout::Sentinel { sentinels, master } => {
                let asking = dial.with_credentials(options.sentinel_credentials.clone());
                let finder = sentinel::SentinelClient::new(asking, sentinels, master);
                Self::Sentinel(Sentinel::open(dial, finder, options.connections).await?)
            }
            AddressLayout::Cluster(seeds) => {
                Self::Cluster(Cluster::open(dial, seeds, options.connections).await?)
            }
            AddressLayout::Shards(shards) => {
                Self::Shards(Shards::open(&dial, shards, options.connections).await?)
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
        place: HashSlot,
        request: &ScriptCall,
        until: Instant,
    ) -> Result<Value, StoreError> {
        match self {
            Self::Single(single) => single.call(request, until).await,
            Self::Sentinel(sentinel) => sentinel.call(request, until).await,
            Self::Cluster(cluster) => cluster.call(place.0, request, until).await,
            Self::Shards(shards) => shards.call(place.0, request, until).await,
        }
    }

    /// The pools of all known servers that decide.
    pub(crate) fn links(&self) -> Vec<Arc<ConnectionPool>> {
        match self {
            Self::Single(single) => vec![single.link()],
            Self::Sentinel(sentinel) => sentinel.link().into_iter().collect(),
            Self::Cluster(cluster) => cluster.links(),
            Self::Shards(shards) => shards.links(),
        }
    }

    /// Queries `INFO` of every server and returns warnings.
    pub(crate) async fn inspect(&self, within: Duration) -> Vec<ServerWarning> {
        let is_cluster = matches!(self, Self::Cluster(_));
        let links = self.links();
        let mut found = Vec::new();
        if links.is_empty() {
            found.push(inspect::no_answer_warning("the address", false));
        }
        for link in links {
            let server = link.endpoint().to_string();
            match link.query(&redis::cmd("INFO"), within).await {
                Ok(info) => match redis::from_redis_value::<String>(info) {
                    Ok(info) => found.extend(inspect::server_warnings(&server, &info, is_cluster)),
                    Err(_unreadable) => found.push(inspect::no_answer_warning(&server, true)),
                },
                Err(error) => {
                    found.push(inspect::no_answer_warning(&server, error.code().is_some()))
                }
            }
        }
        found
    }

    /// Discards the call's connection after an invalid reply: later replies on it cannot be trusted.
    pub(crate) fn discard_connection(&self, place: HashSlot, request: &ScriptCall) {
        let link = match self {
            Self::Single(single) => Some(single.link()),
            Self::Sentinel(sentinel) => sentinel.link(),
            Self::Cluster(cluster) => cluster.owner(place.0),
            Self::Shards(shards) => shards.link(place.0),
        };
        if let Some(link) = link {
            link.discard_connection(request);
        }
    }

    /// Whether any server is connected.
    pub(crate) fn is_connected(&self) -> bool {
        self.links().iter().any(|link| link.is_connected())
    }
}
