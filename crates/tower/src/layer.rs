//! The layer: what `Router::layer` and `ServiceBuilder::layer` take.
//!
//! Must not know: how requests are decided.

use std::path::Path;
use std::sync::{Arc, PoisonError};

use tollgate_service::{Clock, RateLimitService, SystemClock};
use tower_layer::Layer;

use crate::builder::{InvalidLayer, TollgateLayerBuilder};
use crate::layer_state::LayerState;
use crate::service::TollgateService;

/// A layer that limits requests by a policy. All clones, and all services made by them, share their counts.
///
/// It is not called `RateLimitLayer`, because tower has one, which counts for each clone of a service.
///
/// ```
/// use axum::Router;
/// use axum::routing::get;
/// use tollgate_tower::{LimitSpec, TollgateLayer};
///
/// let layer = TollgateLayer::builder()
///     .limit(LimitSpec::rate("per-client", "100/min").key("ip"))
///     .build()?;
/// let app: Router = Router::new().route("/", get(|| async { "hello" })).layer(layer);
/// # Ok::<(), tollgate_tower::InvalidLayer>(())
/// ```
#[derive(Debug)]
pub struct TollgateLayer<C = SystemClock> {
    state: Arc<LayerState<C>>,
}

impl<C> Clone for TollgateLayer<C> {
    fn clone(&self) -> Self {
        Self {
            state: Arc::clone(&self.state),
        }
    }
}

impl TollgateLayer {
    /// A layer whose limits are written in code, or which needs other settings.
    pub fn builder() -> TollgateLayerBuilder {
        TollgateLayerBuilder::new()
    }

    /// A layer with the policy of a file, which is loaded again when it changes. An invalid file keeps the policy before.
    ///
    /// ```no_run
    /// let layer = tollgate_tower::TollgateLayer::from_file("policy.yaml")?;
    /// # Ok::<(), tollgate_tower::InvalidLayer>(())
    /// ```
    ///
    /// # Errors
    /// The file cannot be read, or all problems of the policy.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, InvalidLayer> {
        Self::builder().policy_file(path).build()
    }

    /// A layer with a policy in YAML.
    ///
    /// ```
    /// use tollgate_tower::TollgateLayer;
    ///
    /// let layer = TollgateLayer::from_policy("limits: [{ name: per-client, key: ip, rate: 100/min }]")?;
    /// let error = TollgateLayer::from_policy("limits: [{ name: all, rate: lots }]").unwrap_err();
    /// assert!(error.to_string().contains("lots"), "{error}");
    /// # Ok::<(), tollgate_tower::InvalidLayer>(())
    /// ```
    ///
    /// # Errors
    /// All problems of the policy.
    pub fn from_policy(yaml: &str) -> Result<Self, InvalidLayer> {
        Self::builder().policy(yaml).build()
    }
}

impl<C: Clock + 'static> TollgateLayer<C> {
    pub(crate) fn new(state: LayerState<C>) -> Self {
        Self {
            state: Arc::new(state),
        }
    }

    /// Keeps a value until the last clone of the layer and of its services is dropped, for example the tasks of a fleet node.
    ///
    /// ```
    /// let layer = tollgate_tower::TollgateLayer::from_policy("limits: [{ name: all, rate: 5/s }]")?;
    /// let kept = std::sync::Arc::new(());
    /// layer.keep_alive(kept.clone());
    /// assert_eq!(std::sync::Arc::strong_count(&kept), 2);
    /// drop(layer);
    /// assert_eq!(std::sync::Arc::strong_count(&kept), 1);
    /// # Ok::<(), tollgate_tower::InvalidLayer>(())
    /// ```
    pub fn keep_alive(&self, value: impl Send + 'static) {
        let kept = self.state.kept_alive.lock();
        let mut kept = kept.unwrap_or_else(PoisonError::into_inner);
        kept.push(Box::new(value));
    }

    /// The service that decides: its metrics, operator actions and policy.
    ///
    /// ```
    /// let layer = tollgate_tower::TollgateLayer::from_policy("limits: [{ name: all, rate: 5/s }]")?;
    /// assert_eq!(layer.rate_limit_service().live_evictions(), 0);
    /// # Ok::<(), tollgate_tower::InvalidLayer>(())
    /// ```
    pub fn rate_limit_service(&self) -> &Arc<RateLimitService<C>> {
        &self.state.service
    }
}

impl<S, C> Layer<S> for TollgateLayer<C> {
    type Service = TollgateService<S, C>;

    fn layer(&self, inner: S) -> Self::Service {
        TollgateService::new(inner, Arc::clone(&self.state))
    }
}
