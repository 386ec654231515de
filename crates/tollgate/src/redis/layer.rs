//! A tower layer whose quotas many processes share, over Redis or Valkey.
//!
//! Joins the layer's service to a fleet and runs the tasks of a fleet node as long as the layer lives. Must not know: how
//! requests are decided, how scripts are called.

use std::error::Error;
use std::fmt;
use std::hash::{BuildHasher as _, RandomState};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::sleep;
use tollgate_fleet::Fleet;
use tollgate_redis::{KeyHashSecret, RedisOptions, RedisStore};
use tollgate_service::fleet::FleetMaintenance;
use tollgate_service::{InvalidSecret, RateLimitService, Secret, catch_panic};
use tollgate_store::{Clock as _, StoreError, SystemClock};
use tollgate_tower::{InvalidLayer, TollgateLayer, TollgateLayerBuilder};

/// The shortest delay between two probes of a store that does not answer. The longest is twice as long: processes that lost
/// their store at the same time do not probe it at the same time.
const PROBE_DELAY: Duration = Duration::from_millis(75);

/// How a layer reaches the processes that it shares its quotas with.
///
/// ```
/// use tollgate::redis::SharedLayerOptions;
///
/// let options = SharedLayerOptions::new("redis://127.0.0.1", "the same text in every process")?.nodes(3.try_into()?);
/// assert!(SharedLayerOptions::new("redis://127.0.0.1", "too short").is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "give them to `build_over_redis`"]
pub struct SharedLayerOptions {
    redis: RedisOptions,
    secret: Secret,
    nodes: Option<NonZeroU32>,
}

impl SharedLayerOptions {
    /// A store at this address ([`RedisOptions::address`]), shared by all processes with the same secret and policy, also by
    /// `tollgate serve` with that `--fleet-secret-file`.
    ///
    /// # Errors
    /// The secret is too short.
    pub fn new(address: &str, secret: &str) -> Result<Self, InvalidSecret> {
        let secret = Secret::from_shared_text(secret.as_bytes())?;
        let names = KeyHashSecret::new(secret.derive_key_name_secret());
        Ok(Self {
            redis: RedisOptions::new(address, names),
            secret,
            nodes: None,
        })
    }

    /// Sets how many processes share the quotas. While the store does not answer, each of them admits its part of every limit.
    /// Without it, each admits half of every limit.
    pub const fn nodes(mut self, nodes: NonZeroU32) -> Self {
        self.nodes = Some(nodes);
        self
    }

    /// Changes the options of the connections: deadlines, credentials, TLS.
    pub fn redis(mut self, change: impl FnOnce(&mut RedisOptions)) -> Self {
        change(&mut self.redis);
        self
    }
}

/// Why a layer over Redis cannot be built.
#[derive(Debug)]
#[non_exhaustive]
pub enum InvalidSharedLayer {
    /// The layer itself is invalid.
    Layer(InvalidLayer),
    /// The address or a certificate is invalid.
    Store(StoreError),
}

/// Builds layers whose quotas many processes share.
///
/// ```no_run
/// use tollgate::redis::{BuildOverRedis as _, SharedLayerOptions};
/// use tollgate::tower::{LimitSpec, TollgateLayer};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let options = SharedLayerOptions::new("redis://127.0.0.1", "the same text in every process")?;
/// let limit = LimitSpec::rate("per-client", "100/min").key("ip");
/// let layer = TollgateLayer::builder().limit(limit).build_over_redis(options).await?;
/// # Ok(())
/// # }
/// ```
pub trait BuildOverRedis {
    /// Builds the layer and joins its fleet. The store need not be reachable yet. Call it within a tokio runtime, which runs the
    /// connections and the tasks of the layer until its last clone is dropped.
    ///
    /// # Errors
    /// As for [`build`](TollgateLayerBuilder::build); or the address or a certificate is invalid.
    fn build_over_redis(
        self,
        options: SharedLayerOptions,
    ) -> impl Future<Output = Result<TollgateLayer, InvalidSharedLayer>> + Send;
}

impl BuildOverRedis for TollgateLayerBuilder {
    async fn build_over_redis(
        self,
        options: SharedLayerOptions,
    ) -> Result<TollgateLayer, InvalidSharedLayer> {
        let layer = self.secret(options.secret).build();
        let layer = layer.map_err(InvalidSharedLayer::Layer)?;
        let store = RedisStore::connect(options.redis).await;
        let store = Arc::new(store.map_err(InvalidSharedLayer::Store)?);
        let service = layer.rate_limit_service();
        let fleet = Fleet::new(Arc::<RedisStore>::clone(&store), SystemClock::new().now());
        let fleet = Arc::new(fleet.with_lease_broker(store));
        if let Some(nodes) = options.nodes {
            fleet.set_nodes(nodes.get());
        }
        service.join(&fleet);
        let mut tasks = JoinSet::new();
        tasks.spawn(Arc::new(FleetMaintenance::new(Arc::clone(service))).run());
        tasks.spawn(probe_store(fleet, Arc::clone(service)));
        layer.keep_alive(tasks);
        Ok(layer)
    }
}

/// Probes the parts of the store that do not answer, for ever.
async fn probe_store(fleet: Arc<Fleet>, service: Arc<RateLimitService<SystemClock>>) {
    let random = RandomState::new();
    for round in 0_u64.. {
        // A panic must not end the probes: then the layer would never use the store again.
        let _outcome = catch_panic(fleet.probe_unavailable(|| service.now())).await;
        let share = u32::try_from(random.hash_one(round) % 1_000).unwrap_or(0);
        sleep(PROBE_DELAY + PROBE_DELAY * share / 1_000).await;
    }
}

impl fmt::Display for InvalidSharedLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Layer(error) => error.fmt(f),
            Self::Store(error) => write!(f, "cannot connect: {error}"),
        }
    }
}

impl Error for InvalidSharedLayer {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Layer(error) => Some(error),
            Self::Store(error) => Some(error),
        }
    }
}
