//! [`RateLimitService`]: an engine over the memory store, and everything that transports share.
//!
//! Must not know: sockets, protocols, file formats.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use arc_swap::ArcSwap;
use tollgate_core::{Nanos, Timestamp};
use tollgate_engine::{Engine, Generation, Verdict};
use tollgate_fleet::Fleet;
use tollgate_http::Dialects;
use tollgate_policy::explain::{Explanation, explain};
use tollgate_policy::model::Policy;
use tollgate_policy::rules::Rules;
use tollgate_store::{Clock, LimitUsage, MemoryStore};

use crate::abandoned_waits::AbandonedWaits;
use crate::claims::ClaimVerifier;
use crate::denial_log::{DenialLog, DenialLogMode};
use crate::error::InvalidService;
use crate::header_fields::HeaderRenderer;
use crate::metrics::{Metrics, Transport};
use crate::open_request::PermitTable;
use crate::overload::OverloadTargets;
use crate::policy_features::PolicyFeatures;
use crate::redact::redact;
use crate::reload::PolicyReloader;
use crate::saturation::{DEFAULT_MAX_WAITING, Saturation};
use crate::secret::Secret;
use crate::state::InitialState;
use crate::tickets::TicketTable;
use crate::watchdog::Watchdog;

/// The largest random delay that can be added to `Retry-After`.
pub const MAX_RETRY_JITTER: Nanos = Nanos::HOUR;

/// A rate limit service: a policy, and everything that transports share to apply it.
///
/// Configure it by its `with_…` methods before it is shared. Over the memory store, futures of its methods are ready at the
/// first poll. After [`join`](Self::join) they may wait for the fleet's store.
#[derive(Debug)]
pub struct RateLimitService<C> {
    engine: Arc<Engine<MemoryStore<C>>>,
    /// The fleet, if the service has joined one.
    fleet: OnceLock<Arc<Fleet>>,
    /// Reloads the policy file, if the policy is from a file.
    reloader: Option<Arc<PolicyReloader<MemoryStore<C>>>>,
    pub(crate) tickets: TicketTable,
    pub(crate) headers: HeaderRenderer,
    saturation: Arc<Saturation>,
    pub(crate) watchdog: Watchdog,
    pub(crate) abandoned_waits: AbandonedWaits,
    /// The permits of requests whose end a transport learns of.
    pub(crate) permits: PermitTable,
    /// What sheds requests while the work behind is overloaded.
    pub(crate) overload: OverloadTargets,
    explanation: ArcSwap<PolicyExplanation>,
    /// Keys all digests of this process. It stays when the policy is replaced, so digests stay the same.
    secret: Secret,
    /// Locked while the policy is replaced, so that the explanation matches the rules.
    replacing: Mutex<()>,
    metrics: Arc<Metrics>,
    denial_log: DenialLog,
    claims: Arc<ClaimVerifier>,
    features: Arc<PolicyFeatures>,
}

/// What decides on requests: the engine, the tokens that the policy accepts, and what the policy has.
type Decides<C> = (
    Arc<Engine<MemoryStore<C>>>,
    Arc<ClaimVerifier>,
    Arc<PolicyFeatures>,
);

/// The explanation of a policy without its secrets, and the policy's generation.
#[derive(Debug)]
pub struct PolicyExplanation {
    /// The generation of the policy.
    pub generation: u64,
    /// The explanation.
    pub explanation: Explanation,
}

impl<C: Clock> RateLimitService<C> {
    /// A service with this policy and capacity for about `keys` keys at the same time.
    ///
    /// # Errors
    /// The policy is invalid, or `keys` is out of range.
    pub fn new(
        policy: &Policy,
        keys: usize,
        clock: C,
        secret: Secret,
    ) -> Result<Self, InvalidService> {
        Self::with_state(policy, InitialState::empty(keys, clock)?, secret)
    }

    /// Like [`new`](Self::new), with the state of an earlier process.
    ///
    /// # Errors
    /// The policy is invalid.
    pub fn with_state(
        policy: &Policy,
        state: InitialState<C>,
        secret: Secret,
    ) -> Result<Self, InvalidService> {
        let (rules, explanation) = compile(policy, &secret)?;
        let claims = Arc::<ClaimVerifier>::default();
        let prepared = claims.prepare(policy, &rules);
        claims.replace(prepared.map_err(InvalidService::Policy)?);
        let features = Arc::new(PolicyFeatures::new(&rules));
        let engine = Engine::with_limit_ids(rules, state.store, &state.limit_ids)
            .map_err(InvalidService::Numbers)?;
        let explanation = PolicyExplanation {
            generation: engine.generation().number(),
            explanation,
        };
        Ok(Self::with_engine(
            (Arc::new(engine), claims, features),
            None,
            explanation,
            secret,
        ))
    }

    /// A service with the policy of a file. Call [`reload_if_changed`](crate::reload::Reloader::reload_if_changed) of its
    /// [`reloader`](Self::reloader) when the file may have changed, or use a [`FileWatcher`](crate::reload::FileWatcher).
    ///
    /// # Errors
    /// All problems of the file, or `keys` is out of range.
    pub fn from_file(
        path: &Path,
        keys: usize,
        clock: C,
        secret: Secret,
    ) -> Result<Self, InvalidService> {
        Self::from_file_with_state(path, InitialState::empty(keys, clock)?, secret)
    }

    /// Like [`from_file`](Self::from_file), with the state of an earlier process.
    ///
    /// # Errors
    /// All problems of the file.
    pub fn from_file_with_state(
        path: &Path,
        state: InitialState<C>,
        secret: Secret,
    ) -> Result<Self, InvalidService> {
        let InitialState { store, limit_ids } = state;
        let reloader =
            PolicyReloader::open_policy_with_limit_ids(path, secret.0, store, &limit_ids)
                .map_err(InvalidService::Files)?;
        let (generation, policy) = reloader.engine().current_policy();
        let explanation = PolicyExplanation {
            generation,
            explanation: explain_redacted(&policy, &secret)?,
        };
        let engine = Arc::clone(reloader.engine().engine());
        let claims = Arc::clone(reloader.engine().claims());
        let features = Arc::clone(reloader.engine().features());
        let reloader = Some(Arc::new(reloader));
        let decides = (engine, claims, features);
        Ok(Self::with_engine(decides, reloader, explanation, secret))
    }

    fn with_engine(
        (engine, claims, features): Decides<C>,
        reloader: Option<Arc<PolicyReloader<MemoryStore<C>>>>,
        explanation: PolicyExplanation,
        secret: Secret,
    ) -> Self {
        Self {
            engine,
            claims,
            features,
            fleet: OnceLock::new(),
            reloader,
            tickets: TicketTable::default(),
            headers: HeaderRenderer::new(secret),
            saturation: Saturation::with_max_waiting(DEFAULT_MAX_WAITING),
            watchdog: Watchdog::default(),
            abandoned_waits: AbandonedWaits::default(),
            permits: PermitTable::default(),
            overload: OverloadTargets::default(),
            explanation: ArcSwap::from_pointee(explanation),
            secret,
            replacing: Mutex::default(),
            metrics: Arc::default(),
            denial_log: DenialLog::new(DenialLogMode::Off),
        }
    }

    /// Sets which denials are logged.
    #[must_use]
    pub fn with_denial_log(mut self, which: DenialLogMode) -> Self {
        self.denial_log = DenialLog::new(which);
        self
    }

    /// Sets the most requests that may wait at the same time. Further requests that would have to wait are decided by
    /// `on_store_failure` of their limits.
    #[must_use]
    pub fn with_max_waiting(mut self, most: usize) -> Self {
        self.saturation = Saturation::with_max_waiting(most);
        self
    }

    /// Sets the dialects of header fields. The default is the current draft.
    #[must_use]
    pub fn with_dialects(mut self, dialects: Dialects) -> Self {
        self.headers = self.headers.with_dialects(dialects);
        self
    }

    /// Adds a random delay of at most `jitter` to `Retry-After`, so that denied clients do not return at the same time. It is
    /// capped at [`MAX_RETRY_JITTER`].
    #[must_use]
    pub fn with_retry_jitter(mut self, jitter: Nanos) -> Self {
        self.headers = self.headers.with_jitter(jitter.min(MAX_RETRY_JITTER));
        self
    }

    /// Replaces the policy for all requests that are decided after this. Limits with the same identity keep their state.
    /// Returns the number of the new generation.
    ///
    /// # Errors
    /// The policy is invalid. Then the current policy stays.
    pub fn replace(&self, policy: &Policy) -> Result<u64, InvalidService> {
        let _one_at_a_time = self.replacing();
        let (rules, explanation) = compile(policy, &self.secret)?;
        let claims = self.claims.prepare(policy, &rules);
        self.claims.replace(claims.map_err(InvalidService::Policy)?);
        let generation = self
            .features
            .replace(&self.engine, rules)
            .map_err(InvalidService::Numbers)?;
        self.explanation.store(Arc::new(PolicyExplanation {
            generation,
            explanation,
        }));
        Ok(generation)
    }

    /// Joins a fleet, for good. Call it before the first request: earlier decisions stay on this node. Returns `false` if the
    /// service has already joined a fleet.
    pub fn join(&self, fleet: &Arc<Fleet>) -> bool {
        self.fleet.set(Arc::clone(fleet)).is_ok()
    }

    /// Which rarely used parts the current policy has.
    pub(crate) fn features(&self) -> &PolicyFeatures {
        &self.features
    }

    /// Whether the current policy may read a cookie: then a transport has to
    /// [resolve](crate::HttpAttributes::resolve_duplicates) cookies that are sent twice.
    #[must_use]
    pub fn may_read_cookies(&self) -> bool {
        self.features.may_read_cookies()
    }

    /// The fleet, if the service has joined one. Then a decision may wait for the shared store.
    #[must_use]
    pub fn fleet(&self) -> Option<&Arc<Fleet>> {
        self.fleet.get()
    }

    /// The engine.
    #[must_use]
    pub const fn engine(&self) -> &Arc<Engine<MemoryStore<C>>> {
        &self.engine
    }

    /// The tokens that the policy accepts.
    #[must_use]
    pub const fn claims(&self) -> &Arc<ClaimVerifier> {
        &self.claims
    }

    /// The reloader of the policy file, if the policy is from a file.
    #[must_use]
    pub const fn reloader(&self) -> Option<&Arc<PolicyReloader<MemoryStore<C>>>> {
        self.reloader.as_ref()
    }

    /// The current time of the service's clock.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.engine.store().now()
    }

    /// The secret of all digests of this process.
    #[must_use]
    pub const fn secret(&self) -> Secret {
        self.secret
    }

    /// The renderer of header fields.
    #[must_use]
    pub const fn headers(&self) -> &HeaderRenderer {
        &self.headers
    }

    /// The wait queue and the runtime's delay.
    #[must_use]
    pub const fn saturation(&self) -> &Arc<Saturation> {
        &self.saturation
    }

    /// The counters of all transports.
    #[must_use]
    pub const fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// What the limit of this index uses of the memory store, all of its states together.
    pub(crate) fn limit_usage(&self, generation: &Generation, rule: usize) -> LimitUsage {
        let mut sum = LimitUsage::default();
        for id in generation.limit_ids_of(rule) {
            sum.add(&self.engine.store().limit_usage(id));
        }
        sum
    }

    /// The number of live states that the memory store evicted for want of slots.
    #[must_use]
    pub fn live_evictions(&self) -> u64 {
        self.engine.store().usage().evictions
    }

    /// The explanation of the current policy. After a reload the first call computes it.
    #[must_use]
    pub fn explanation(&self) -> Arc<PolicyExplanation> {
        let known = self.explanation.load_full();
        let Some(reloader) = &self.reloader else {
            return known;
        };
        let (generation, policy) = reloader.engine().current_policy();
        if known.generation == generation {
            return known;
        }
        let _one_at_a_time = self.replacing();
        // A policy that compiles can be explained. If not, the previous explanation is better than none.
        if let Ok(explanation) = explain_redacted(&policy, &self.secret) {
            self.explanation.store(Arc::new(PolicyExplanation {
                generation,
                explanation,
            }));
        }
        self.explanation.load_full()
    }

    /// Counts a verdict and logs it if it denies. [`check`](Self::check) calls this. A transport that calls
    /// [`check_uncounted`](Self::check_uncounted) passes one verdict for the request here.
    #[inline]
    pub fn observe(&self, transport: Transport, verdict: &Verdict, is_peek: bool) {
        let now = || self.now();
        self.metrics
            .record_verdict(transport, verdict, is_peek, now);
        if !is_peek && !verdict.is_admitted() {
            let metrics = &self.metrics;
            self.denial_log.record(metrics, transport, verdict, now);
        }
    }

    fn replacing(&self) -> MutexGuard<'_, ()> {
        self.replacing
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

fn compile(policy: &Policy, secret: &Secret) -> Result<(Rules, Explanation), InvalidService> {
    let rules = Rules::compile(policy, secret.0).map_err(InvalidService::Policy)?;
    Ok((rules, explain_redacted(policy, secret)?))
}

fn explain_redacted(policy: &Policy, secret: &Secret) -> Result<Explanation, InvalidService> {
    explain(&redact(policy, &secret.0)).map_err(InvalidService::Policy)
}
