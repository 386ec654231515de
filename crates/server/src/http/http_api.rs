//! [`HttpApi`]: the HTTP API over a [`RateLimitService`], with the gateways and the readiness that only HTTP needs.
//!
//! Must not know: sockets, connections, timeouts, file formats.

use std::path::Path;
use std::sync::Arc;

use tollgate_core::Nanos;
use tollgate_engine::Engine;
use tollgate_envoy::config::EnvoyPolicy;
use tollgate_envoy::engine::is_envoy_config_path;
use tollgate_envoy::rlqs::QuotaBounds;
use tollgate_envoy::{EnvoyOptions, EnvoyService};
use tollgate_files::FileWorker;
use tollgate_fleet::Fleet;
use tollgate_http::{Dialects, TrustedProxies};
use tollgate_policy::model::Policy;
use tollgate_service::state::InitialState;
use tollgate_service::{
    DenialLogMode, InvalidService, Metrics, RateLimitService, Saturation, Secret,
};
use tollgate_store::{Clock, MemoryStore};

use crate::http::forward_auth::Gateways;
use crate::http::prefer::BodyForm;
use crate::http::welcome::{envoy_welcome, policy_welcome};
use crate::listen::counters::ListenerCounters;
use crate::listen::{BufferBudget, LocalEndpoint, ShutdownSignal};

/// The HTTP API of a rate limit service.
#[derive(Debug)]
pub struct HttpApi<C> {
    pub(crate) service: Arc<RateLimitService<C>>,
    /// The Envoy rate limit services.
    pub(crate) envoy: Arc<EnvoyService<C>>,
    pub(crate) gateways: Gateways,
    /// The body of responses to checks, unless the client prefers another.
    pub(crate) body_form: BodyForm,
    /// Triggers when load balancers should stop sending requests here.
    drain_signal: Option<ShutdownSignal>,
    counters: ListenerCounters,
    buffers: Arc<BufferBudget>,
}

/// The name of [`HttpApi`] before version 0.2. It will be removed in the next release.
pub type App<C> = HttpApi<C>;

impl<C: Clock> HttpApi<C> {
    /// An API that decides by `policy`, with room for about `keys` keys in use at the same time.
    ///
    /// The policy cannot be used, or the store cannot hold this many keys.
    pub fn new(policy: &Policy, keys: usize, clock: C) -> Result<Self, InvalidService> {
        Self::new_with_secret(policy, keys, clock, Secret::random())
    }

    /// The same, with the secret that keys its digests. The nodes of a fleet share it.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn new_with_secret(
        policy: &Policy,
        keys: usize,
        clock: C,
        secret: Secret,
    ) -> Result<Self, InvalidService> {
        Self::with_state(policy, InitialState::empty(keys, clock)?, secret)
    }

    /// Like [`new_with_secret`](Self::new_with_secret), with the state of an earlier process.
    ///
    /// The policy is invalid.
    pub fn with_state(
        policy: &Policy,
        state: InitialState<C>,
        secret: Secret,
    ) -> Result<Self, InvalidService> {
        Self::from_service(RateLimitService::with_state(policy, state, secret)?)
    }

    /// An API that decides by a policy file, or by a file or directory of envoyproxy/ratelimit configuration.
    /// [`EnvoyService::reloader`] reloads it.
    ///
    /// All errors of the file, or the store cannot hold this many keys.
    pub fn from_file(
        path: &Path,
        keys: usize,
        clock: C,
        secret: Secret,
    ) -> Result<Self, InvalidService> {
        let options = EnvoyOptions::default();
        Self::from_file_with_state(path, InitialState::empty(keys, clock)?, secret, options)
    }

    /// Like [`from_file`](Self::from_file), with the state of an earlier process, and with options for envoyproxy/ratelimit
    /// configuration. A policy file ignores the options.
    ///
    /// All errors of the file.
    pub fn from_file_with_state(
        path: &Path,
        state: InitialState<C>,
        secret: Secret,
        options: EnvoyOptions,
    ) -> Result<Self, InvalidService> {
        let asked = path.to_owned();
        let kind = FileWorker::new("read").run(move || is_envoy_config_path(&asked));
        // If the file system does not answer, the policy's reader says so.
        if !kind.unwrap_or(false) {
            let service = RateLimitService::from_file_with_state(path, state, secret)?;
            return Self::from_service(service);
        }
        let service = RateLimitService::with_state(&Policy::default(), state, secret)?;
        Ok(Self::from_envoy_service(EnvoyService::from_path(
            Arc::new(service),
            path,
            options,
        )?))
    }

    /// An API that decides by envoyproxy/ratelimit configuration. It answers only Envoy's requests.
    ///
    /// The store cannot hold this many keys.
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

    fn from_service(service: RateLimitService<C>) -> Result<Self, InvalidService> {
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
            body_form: BodyForm::default(),
            drain_signal: None,
            counters: ListenerCounters::default(),
            buffers: Arc::default(),
        }
    }

    /// Accepts forward-auth requests only from gateways in these networks.
    #[must_use]
    pub fn with_trusted_proxies(mut self, trusted: TrustedProxies) -> Self {
        self.gateways = Gateways::new(trusted);
        self
    }

    /// Sets the body of responses to `/v1/check`, for clients that state no preference.
    #[must_use]
    pub const fn with_body_form(mut self, form: BodyForm) -> Self {
        self.body_form = form;
        self
    }

    /// Sets the limits of RLQS quota assignments.
    #[must_use]
    pub fn with_quota_bounds(self, bounds: QuotaBounds) -> Self {
        self.configure_envoy(|envoy| envoy.with_quota_bounds(bounds))
    }

    /// Reports not ready once `drain_signal` triggers.
    #[must_use]
    pub fn with_drain_signal(mut self, drain_signal: ShutdownSignal) -> Self {
        self.drain_signal = Some(drain_signal);
        self
    }

    /// Shares this buffer budget with other listeners.
    #[must_use]
    pub fn with_buffers(mut self, buffers: Arc<BufferBudget>) -> Self {
        self.buffers = buffers;
        self
    }

    /// The bytes buffered for clients.
    #[must_use]
    pub const fn buffers(&self) -> &Arc<BufferBudget> {
        &self.buffers
    }

    /// The service that decides.
    #[must_use]
    pub const fn service(&self) -> &Arc<RateLimitService<C>> {
        &self.service
    }

    /// The Envoy rate limit services.
    #[must_use]
    pub const fn envoy(&self) -> &Arc<EnvoyService<C>> {
        &self.envoy
    }

    /// Whether load balancers should stop sending requests here.
    pub(crate) fn is_draining(&self) -> bool {
        let drain_signal = self.drain_signal.as_ref();
        drain_signal.is_some_and(ShutdownSignal::is_triggered)
    }

    /// The counters of the listener.
    #[must_use]
    pub const fn counters(&self) -> &ListenerCounters {
        &self.counters
    }

    /// Shares state with a fleet from now on. Call it before the first request. Returns false if a fleet was joined before.
    pub fn join(&self, fleet: &Arc<Fleet>) -> bool {
        self.service.join(fleet)
    }

    /// The number of limits in effect.
    #[must_use]
    pub fn limit_count(&self) -> usize {
        match self.envoy.explain_rules() {
            Some(rules) => rules.len(),
            None => self.service.explanation().explanation.limits.len(),
        }
    }

    /// The policy in plain words and commands to try, for a server reached at `endpoint`. `also` are further commands.
    #[must_use]
    pub fn welcome_text(&self, endpoint: &LocalEndpoint, also: &[String]) -> String {
        match self.envoy.explain_rules() {
            Some(rules) => envoy_welcome(endpoint, &rules, also),
            None => policy_welcome(endpoint, &self.service.explanation().explanation, also),
        }
    }
}

/// Settings of the [`RateLimitService`].
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
        self.configure_envoy(|envoy| envoy.map_service(change))
    }

    /// Changes the services, which must not be shared yet.
    fn configure_envoy(mut self, change: impl FnOnce(EnvoyService<C>) -> EnvoyService<C>) -> Self {
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
