//! Which server has a key, and calling it there: one server, the one that sentinels name, a cluster, or several
//! independent ones.
//!
//! A call that may have been carried out is never made again, whatever the servers say afterwards. Who is asked next is
//! found out in the background and never by a caller. Must not know: what is in a call, how replies are read.

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
use self::single::Single;
use crate::address::{Address, Shape};
use crate::link::{Dial, Link};
use crate::name::Digest;
use crate::options::Options;
use crate::wire::ScriptCall;

pub use self::inspect::{Finding, Unwise};

/// What a call can reach together: a slot of a cluster, one of several servers, or all there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place(u16);

impl Place {
    /// Its number: of a slot, or of a server.
    pub(crate) const fn number(self) -> u16 {
        self.0
    }
}

/// The servers.
#[derive(Debug)]
pub(crate) enum Topology {
    Single(Single),
    Sentinel(Sentinel),
    Cluster(Cluster),
    Shards(Shards),
}

impl Topology {
    /// Starts connecting, and waits at most a few connection deadlines for the first connections to be up.
    pub(crate) async fn open(options: &Options) -> Result<Self, StoreError> {
        let Address { shape, template } = Address::read(&options.address)?;
        let dial = Dial::new(&template, options)?;
        Ok(match shape {
            Shape::Single(endpoint) => {
                Self::Single(Single::open(&dial, endpoint, options.connections).await?)
            }
            Shape::Sentinel { sentinels, master } => {
                let asking = dial.with_credentials(options.sentinel_credentials.clone());
                let finder = sentinel::Finder::new(asking, sentinels, master);
                Self::Sentinel(Sentinel::open(dial, finder, options.connections).await?)
            }
            Shape::Cluster(seeds) => {
                Self::Cluster(Cluster::open(dial, seeds, options.connections).await?)
            }
            Shape::Shards(shards) => {
                Self::Shards(Shards::open(&dial, shards, options.connections).await?)
            }
        })
    }

    /// Where a key with this tag is.
    pub(crate) fn place(&self, tag: Digest) -> Place {
        Place(match self {
            Self::Single(_) | Self::Sentinel(_) => 0,
            Self::Cluster(_) => slot::of(&tag.text()),
            Self::Shards(shards) => shards.place(tag),
        })
    }

    /// Where a key is whose tag is a name that we have chosen.
    pub(crate) fn place_of_name(&self, tag: &[u8]) -> Place {
        Place(match self {
            Self::Single(_) | Self::Sentinel(_) => 0,
            Self::Cluster(_) => slot::of(tag),
            Self::Shards(shards) => shards.place(Digest::of_name(tag)),
        })
    }

    /// Calls a script where its keys are, once.
    pub(crate) async fn call(
        &self,
        place: Place,
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

    /// The servers that decide, as far as they are known.
    pub(crate) fn links(&self) -> Vec<Arc<Link>> {
        match self {
            Self::Single(single) => vec![single.link()],
            Self::Sentinel(sentinel) => sentinel.link().into_iter().collect(),
            Self::Cluster(cluster) => cluster.links(),
            Self::Shards(shards) => shards.links(),
        }
    }

    /// Asks every server about itself, and says what is unwise.
    pub(crate) async fn inspect(&self, within: Duration) -> Vec<Finding> {
        let is_cluster = matches!(self, Self::Cluster(_));
        let links = self.links();
        let mut found = Vec::new();
        if links.is_empty() {
            found.push(inspect::unanswered("the address", false));
        }
        for link in links {
            let server = link.endpoint().to_string();
            match link.ask(&redis::cmd("INFO"), within).await {
                Ok(info) => match redis::from_redis_value::<String>(info) {
                    Ok(info) => found.extend(inspect::findings(&server, &info, is_cluster)),
                    Err(_unreadable) => found.push(inspect::unanswered(&server, true)),
                },
                Err(error) => found.push(inspect::unanswered(&server, error.code().is_some())),
            }
        }
        found
    }

    /// After a reply that made no sense: whatever else comes on its connection is not to be trusted.
    pub(crate) fn distrust(&self, place: Place, request: &ScriptCall) {
        let link = match self {
            Self::Single(single) => Some(single.link()),
            Self::Sentinel(sentinel) => sentinel.link(),
            Self::Cluster(cluster) => cluster.owner(place.0),
            Self::Shards(shards) => shards.link(place.0),
        };
        if let Some(link) = link {
            link.distrust(request);
        }
    }

    /// Whether any server can be asked.
    pub(crate) fn is_connected(&self) -> bool {
        self.links().iter().any(|link| link.is_connected())
    }
}
