//! [`HttpApi`]: the HTTP API over a [`RateLimitService`], with what only HTTP needs: gateways and readiness.
//!
//! Must not know: sockets, connections, timeouts, what is in files.

use std::path::Path;
use std::sync::Arc;

use tollgate_core::Nanos;
use tollgate_engine::Engine;
use tollgate_envoy::EnvoyService;
use tollgate_envoy::config::EnvoyPolicy;
use tollgate_envoy::engine::is_envoy_config_path;
use tollgate_envoy::rlqs::QuotaBounds;
use tollgate_fleet::Fleet;
use tollgate_http::{Dialects, TrustedProxies};
use tollgate_policy::model::Policy;
use tollgate_service::{
    DenialLogMode, InvalidService, Metrics, RateLimitService, Saturation, Secret,
};
use tollgate_store::{Clock, MemoryStore};

use crate::http::forward_auth::Gateways;
use crate::http::welcome::{envoy_welcome, policy_welcome};
use crate::listen::counters::ListenerCounters;
use crate::listen::{LocalEndpoint, ShutdownSignal};

/// The HTTP API of a rate limit service.
#[derive(Debug)]
pub struct HttpApi<C> {
    pub(crate) service: Arc<RateLimitService<C>>,
    /// Envoy's rate limit services.
    pub(crate) envoy: Arc<EnvoyService<C>>,
    pub(crate) gateways: Gateways,
    /// Once this is said no more requests should be sent here.
    leaving: Option<ShutdownSignal>,
    counters: ListenerCounters,
}

/// The name of [`HttpApi`] before version 0.2. It goes with the next release.
pub type App<C> = HttpApi<C>;

impl<C: Clock> HttpApi<C> {
    /// An API that decides by `policy`, with room for about `keys` keys in use at the same time.
    ///
    /// # Errors
    /// The policy cannot be put in force, or there cannot be so many keys.
    pub fn new(policy: &Policy, keys: usize, clock: C) -> Result<Self, InvalidService> {
        Self::new_with_secret(policy, keys, clock, Secret::random())
    }

    /// The same, whose digests are keyed by a secret that others may share.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn new_with_secret(
        policy: &Policy,
        keys: usize,
        clock: C,
        secret: Secret,
    ) -> Result<Self, InvalidService> {
        let service = RateLimitService::new(policy, keys, clock, secret)?;
        Self::by_policy(service)
    }

    /// An API that decides by a policy file, or by a file or a directory of files of envoyproxy/ratelimit. Its
    /// [`EnvoyService::reload`] loads them again.
    ///
    /// # Errors
    /// Everything that is wrong with the file, or there cannot be so many keys.
    pub fn from_file(
        path: &Path,
        keys: usize,
        clock: C,
        secret: Secret,
    ) -> Result<Self, InvalidService> {
        if !is_envoy_config_path(path) {
            let service = RateLimitService::from_file(path, keys, clock, secret)?;
            return Self::by_policy(service);
        }
        let service = RateLimitService::new(&Policy::default(), keys, clock, secret)?;
        Ok(Self::from_envoy_service(EnvoyService::from_path(
            Arc::new(service),
            path,
        )?))
    }

    /// An API that decides by files of envoyproxy/ratelimit, and only on what Envoy asks.
    ///
    /// # Errors
    /// There cannot be so many keys.
    pub fn from_envoy_policy(
        files: EnvoyPolicy,
        keys: usize,
        clock: C,
    ) -> Result<Self, InvalidService> {
        let service = RateLimitService::new(&Policy::default(), keys, clock, Secret::random())?;
        let envoy = EnvoyService::from_config(Arc::new(service), files);
        Ok(Self::from_envoy_service(
            envoy.map_err(InvalidService::Numbers)?,
        ))
    }

    fn by_policy(service: RateLimitService<C>) -> Result<Self, InvalidService> {
        let envoy = EnvoyService::new(Arc::new(service));
        Ok(Self::from_envoy_service(
            envoy.map_err(InvalidService::Numbers)?,
        ))
    }

    /// The API over these services.
    #[must_use]
    pub fn from_envoy_service(envoy: EnvoyService<C>) -> Self {
        Self {
            service: Arc::clone(envoy.service()),
            envoy: Arc::new(envoy),
            gateways: Gateways::new(TrustedProxies::default()),
            leaving: None,
            counters: ListenerCounters::default(),
        }
    }

    /// The same API, which believes gateways in these networks only.
    #[must_use]
    pub fn with_trusted_proxies(mut self, trusted: TrustedProxies) -> Self {
        self.gateways = Gateways::new(trusted);
        self
    }

    /// The same API, which assigns quotas within these bounds.
    #[must_use]
    pub fn with_quota_bounds(self, bounds: QuotaBounds) -> Self {
        self.changed(|envoy| envoy.with_quota_bounds(bounds))
    }

    /// The same API, which is not ready any more once this is said.
    #[must_use]
    pub fn with_drain_signal(mut self, leaving: ShutdownSignal) -> Self {
        self.leaving = Some(leaving);
        self
    }

    /// The service that decides.
    #[must_use]
    pub const fn service(&self) -> &Arc<RateLimitService<C>> {
        &self.service
    }

    /// Envoy's services.
    #[must_use]
    pub const fn envoy(&self) -> &Arc<EnvoyService<C>> {
        &self.envoy
    }

    /// Whether no more requests should be sent here.
    pub(crate) fn is_draining(&self) -> bool {
        let leaving = self.leaving.as_ref();
        leaving.is_some_and(ShutdownSignal::is_triggered)
    }

    /// What the listener has counted so far.
    #[must_use]
    pub const fn counters(&self) -> &ListenerCounters {
        &self.counters
    }

    /// Shares state with a fleet from now on, for good. Call it before the first request. Returns whether it had joined
    /// none before.
    pub fn join(&self, fleet: &Arc<Fleet>) -> bool {
        self.service.join(fleet)
    }

    /// The policy in plain words and commands to try, for a server reached at `place`; `also` are further commands.
    #[must_use]
    pub fn welcome_text(&self, place: &LocalEndpoint, also: &[String]) -> String {
        match self.envoy.explain_rules() {
            Some(rules) => envoy_welcome(place, &rules, also),
            None => policy_welcome(place, &self.service.explanation().explanation, also),
        }
    }
}

/// What the service does, by the names that it had here before version 0.2.
impl<C: Clock> HttpApi<C> {
    /// See [`RateLimitService::with_denial_log`].
    #[must_use]
    pub fn with_denial_log(self, which: DenialLogMode) -> Self {
        self.configured(|service| service.with_denial_log(which))
    }

    /// See [`RateLimitService::with_max_waiting`].
    #[must_use]
    pub fn with_max_waiting(self, most: usize) -> Self {
        self.configured(|service| service.with_max_waiting(most))
    }

    /// See [`RateLimitService::with_dialects`].
    #[must_use]
    pub fn with_dialects(self, dialects: Dialects) -> Self {
        self.configured(|service| service.with_dialects(dialects))
    }

    /// See [`RateLimitService::with_retry_jitter`].
    #[must_use]
    pub fn with_retry_jitter(self, jitter: Nanos) -> Self {
        self.configured(|service| service.with_retry_jitter(jitter))
    }

    fn configured(self, change: impl FnOnce(RateLimitService<C>) -> RateLimitService<C>) -> Self {
        self.changed(|envoy| envoy.map_service(change))
    }

    /// Changes the services before they are shared.
    fn changed(mut self, change: impl FnOnce(EnvoyService<C>) -> EnvoyService<C>) -> Self {
        let Self { service, envoy, .. } = self;
        drop(service);
        self.envoy = match Arc::try_unwrap(envoy) {
            Ok(envoy) => Arc::new(change(envoy)),
            Err(shared) => {
                debug_assert!(false, "a service is configured before it is shared");
                shared
            }
        };
        self.service = Arc::clone(self.envoy.service());
        self
    }

    /// See [`RateLimitService::engine`].
    #[must_use]
    pub fn engine(&self) -> &Arc<Engine<MemoryStore<C>>> {
        self.service.engine()
    }

    /// See [`RateLimitService::metrics`].
    #[must_use]
    pub fn metrics(&self) -> &Arc<Metrics> {
        self.service.metrics()
    }

    /// See [`RateLimitService::saturation`].
    #[must_use]
    pub fn saturation(&self) -> &Arc<Saturation> {
        self.service.saturation()
    }
}
