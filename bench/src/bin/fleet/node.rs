//! Engines as nodes of a fleet, in this process, and the requests that they are asked.
//!
//! Must not know: what is measured.

use std::sync::Arc;
use std::time::Duration;

use tollgate_engine::{CheckOptions, Engine, Verdict};
use tollgate_fleet::{Fleet, FleetEngine};
use tollgate_policy::attributes::{Attribute, Attributes};
use tollgate_policy::load;
use tollgate_policy::rules::Rules;
use tollgate_policy::source::SourceFormat;
use tollgate_redis::{KeyHashSecret, RedisOptions, RedisStore};
use tollgate_store::MemoryStore;

use crate::Failure;

/// What names are derived with, by all nodes.
pub(crate) const SECRET: [u8; 16] = *b"measured beside ";
/// Connections of each node to the server, and of the client that is measured beside it.
pub(crate) const CONNECTIONS: usize = 3;
/// So long that a machine that is busy elsewhere does not turn a measurement into an outage.
pub(crate) const LONG_DEADLINE: Duration = Duration::from_secs(10);

/// How often slices are looked after, at least.
const MAINTENANCE_INTERVAL: Duration = Duration::from_millis(50);

/// A request of somebody.
#[derive(Clone, Debug)]
pub(crate) struct Request(Vec<u8>);

impl Request {
    /// Of the caller with this number. All have names of one length.
    pub(crate) fn of(number: u64) -> Self {
        Self(format!("caller-{number:08}").into_bytes())
    }
}

impl Attributes for Request {
    fn get(&self, attribute: &Attribute) -> Option<&[u8]> {
        match attribute {
            Attribute::Header(name) if &**name == "x-api-key" => Some(&self.0),
            _ => None,
        }
    }
}

/// One node.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    engine: Arc<Engine<MemoryStore>>,
    /// The fleet that it shares its limits with, if it does.
    fleet: Option<Arc<Fleet>>,
}

impl Node {
    /// An engine that shares nothing.
    pub(crate) fn local(quota: &str) -> Result<Self, Failure> {
        let text = format!("limits:\n  - name: per-key\n    key: header.x-api-key\n{quota}");
        let policy =
            load(&text, "policy.yaml", SourceFormat::Yaml).map_err(|bad| bad.to_string())?;
        let rules = Rules::compile(&policy, SECRET).map_err(|bad| format!("{bad:?}"))?;
        let engine = Engine::new(rules, MemoryStore::for_keys(100_000)?)?;
        Ok(Self {
            engine: Arc::new(engine),
            fleet: None,
        })
    }

    /// One that shares its limits with all others at this address.
    pub(crate) async fn sharing(
        quota: &str,
        url: &str,
        deadline: Duration,
    ) -> Result<Self, Failure> {
        let mut node = Self::local(quota)?;
        let mut options = RedisOptions::new(url, KeyHashSecret::new(SECRET));
        options.deadline = deadline;
        options.connections = CONNECTIONS;
        let remote = Arc::new(RedisStore::connect(options).await?);
        let fleet = Fleet::new(Arc::clone(&remote) as _, node.engine.store().now());
        let fleet = fleet.with_lease_broker(remote);
        node.fleet = Some(Arc::new(fleet));
        Ok(node)
    }

    pub(crate) fn engine(&self) -> &Engine<MemoryStore> {
        &self.engine
    }

    pub(crate) fn fleet(&self) -> Result<&Fleet, Failure> {
        let fleet = self.fleet.as_deref();
        Ok(fleet.ok_or("the node has joined no fleet")?)
    }

    /// Borrows ahead and gives back what nobody uses, for ever.
    pub(crate) async fn maintain_leases(self) {
        let Some(fleet) = &self.fleet else {
            return;
        };
        loop {
            // Either way it is tended: when something is wanted at once, otherwise now and then.
            let _waited =
                tokio::time::timeout(MAINTENANCE_INTERVAL, fleet.wait_for_lease_demand()).await;
            fleet.maintain_leases(|| self.engine.store().now()).await;
        }
    }

    /// Decides together with the nodes that share its limits.
    pub(crate) async fn ask(&self, request: &Request) -> Verdict {
        let options = CheckOptions::default();
        match &self.fleet {
            Some(fleet) => {
                let engine = FleetEngine::new(&self.engine, fleet);
                engine.check(request, options).await
            }
            None => self.engine.check(request, options),
        }
    }
}
