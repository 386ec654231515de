//! [`RateLimitService`]: an engine over the memory store with everything that transports share.
//!
//! Must not know: sockets, protocols, what is in files.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use arc_swap::ArcSwap;
use tollgate_core::{Nanos, Timestamp};
use tollgate_engine::{Engine, Verdict};
use tollgate_fleet::Fleet;
use tollgate_http::Dialects;
use tollgate_policy::explain::{Explanation, explain};
use tollgate_policy::model::Policy;
use tollgate_policy::rules::Rules;
use tollgate_store::{Clock, MemoryStore};

use crate::denial_log::{DenialLog, DenialLogMode};
use crate::error::InvalidService;
use crate::header_fields::HeaderRenderer;
use crate::metrics::{Metrics, Transport};
use crate::redact::redact;
use crate::reload::PolicyReloader;
use crate::saturation::{DEFAULT_MAX_WAITING, Saturation};
use crate::secret::Secret;
use crate::tickets::TicketTable;
use crate::watchdog::Watchdog;

/// The largest random delay that can be added to `Retry-After`.
pub const MAX_RETRY_JITTER: Nanos = Nanos::HOUR;

/// A policy in force, and everything that transports share to serve it.
///
/// Configure it by its `with_…` methods before it is shared. Over the memory store every future of its methods is ready at
/// the first poll; after [`join`](Self::join) it may wait for the fleet's store.
#[derive(Debug)]
pub struct RateLimitService<C> {
    engine: Arc<Engine<MemoryStore<C>>>,
    /// The fleet that it shares state with, if it has joined one.
    fleet: OnceLock<Arc<Fleet>>,
    /// Loads the policy file again, if the policy comes from a file.
    reloader: Option<Arc<PolicyReloader<MemoryStore<C>>>>,
    pub(crate) tickets: TicketTable,
    pub(crate) headers: HeaderRenderer,
    saturation: Arc<Saturation>,
    pub(crate) watchdog: Watchdog,
    explanation: ArcSwap<PolicyExplanation>,
    /// Keys every digest of this process; every policy that replaces this one makes the same digests.
    secret: Secret,
    /// Held while a policy is replaced, so that the explanation is that of the rules.
    replacing: Mutex<()>,
    metrics: Arc<Metrics>,
    denial_log: DenialLog,
}

/// A policy in plain words, without its secrets, and the generation that verdicts name it by.
#[derive(Debug)]
pub struct PolicyExplanation {
    /// The generation of the policy.
    pub generation: u64,
    /// What it does.
    pub explanation: Explanation,
}

impl<C: Clock> RateLimitService<C> {
    /// A service that decides by `policy`, with room for about `keys` keys in use at the same time.
    ///
    /// # Errors
    /// The policy cannot be put in force, or there cannot be so many keys.
    pub fn new(
        policy: &Policy,
        keys: usize,
        clock: C,
        secret: Secret,
    ) -> Result<Self, InvalidService> {
        let (rules, explanation) = compile(policy, &secret)?;
        let store = MemoryStore::with_clock(keys, clock).map_err(InvalidService::Size)?;
        let engine = Engine::new(rules, store).map_err(InvalidService::Numbers)?;
        let explanation = PolicyExplanation {
            generation: engine.generation().number(),
            explanation,
        };
        Ok(Self::with_engine(
            Arc::new(engine),
            None,
            explanation,
            secret,
        ))
    }

    /// A service that decides by a policy file. Call [`look`](crate::reload::Reloader::look) of its [`reloader`](Self::reloader) when the file
    /// may have changed, or have a [`Watch`](crate::reload::Watch) do it.
    ///
    /// # Errors
    /// Everything that is wrong with the file, or there cannot be so many keys.
    pub fn from_file(
        path: &Path,
        keys: usize,
        clock: C,
        secret: Secret,
    ) -> Result<Self, InvalidService> {
        let store = MemoryStore::with_clock(keys, clock).map_err(InvalidService::Size)?;
        let reloader =
            PolicyReloader::open_policy(path, secret.0, store).map_err(InvalidService::Files)?;
        let (generation, policy) = reloader.engine().current_policy();
        let explanation = PolicyExplanation {
            generation,
            explanation: explain_redacted(&policy, &secret)?,
        };
        let engine = Arc::clone(reloader.engine().engine());
        let reloader = Some(Arc::new(reloader));
        Ok(Self::with_engine(engine, reloader, explanation, secret))
    }

    fn with_engine(
        engine: Arc<Engine<MemoryStore<C>>>,
        reloader: Option<Arc<PolicyReloader<MemoryStore<C>>>>,
        explanation: PolicyExplanation,
        secret: Secret,
    ) -> Self {
        Self {
            engine,
            fleet: OnceLock::new(),
            reloader,
            tickets: TicketTable::default(),
            headers: HeaderRenderer::new(secret),
            saturation: Saturation::with_max_waiting(DEFAULT_MAX_WAITING),
            watchdog: Watchdog::default(),
            explanation: ArcSwap::from_pointee(explanation),
            secret,
            replacing: Mutex::default(),
            metrics: Arc::default(),
            denial_log: DenialLog::new(DenialLogMode::Off),
        }
    }

    /// The same service, which logs these denials.
    #[must_use]
    pub fn with_denial_log(mut self, which: DenialLogMode) -> Self {
        self.denial_log = DenialLog::new(which);
        self
    }

    /// The same service, which holds back at most `most` requests at the same time until they may go on. For further
    /// requests that would have to wait their limits decide: `on_store_failure` in the policy.
    #[must_use]
    pub fn with_max_waiting(mut self, most: usize) -> Self {
        self.saturation = Saturation::with_max_waiting(most);
        self
    }

    /// The same service, which tells clients about their limits in these dialects. The default is the current draft.
    #[must_use]
    pub fn with_dialects(mut self, dialects: Dialects) -> Self {
        self.headers = self.headers.with_dialects(dialects);
        self
    }

    /// The same service, which adds a random delay of at most `jitter` to `Retry-After`, so that denied clients do not
    /// return together. It is at most [`MAX_RETRY_JITTER`].
    #[must_use]
    pub fn with_retry_jitter(mut self, jitter: Nanos) -> Self {
        self.headers = self.headers.with_jitter(jitter.min(MAX_RETRY_JITTER));
        self
    }

    /// Puts another policy in force, for every request that is decided after this. State stays with limits of the same
    /// identity. Returns the number of the new generation.
    ///
    /// # Errors
    /// The policy cannot be put in force. Then the one before stays.
    pub fn replace(&self, policy: &Policy) -> Result<u64, InvalidService> {
        let _one_at_a_time = self.replacing();
        let (rules, explanation) = compile(policy, &self.secret)?;
        let generation = self
            .engine
            .replace(rules)
            .map_err(InvalidService::Numbers)?;
        self.explanation.store(Arc::new(PolicyExplanation {
            generation,
            explanation,
        }));
        Ok(generation)
    }

    /// Shares state with a fleet from now on, for good. Call it before the first request: what was decided before stays on
    /// this node. Returns whether the service had joined no fleet before.
    pub fn join(&self, fleet: &Arc<Fleet>) -> bool {
        self.fleet.set(Arc::clone(fleet)).is_ok()
    }

    /// The fleet that the service has joined. Then a decision may have to wait for the store that the nodes share.
    #[must_use]
    pub fn fleet(&self) -> Option<&Arc<Fleet>> {
        self.fleet.get()
    }

    /// The engine that decides.
    #[must_use]
    pub const fn engine(&self) -> &Arc<Engine<MemoryStore<C>>> {
        &self.engine
    }

    /// What loads the policy file again, if the policy comes from a file.
    #[must_use]
    pub const fn reloader(&self) -> Option<&Arc<PolicyReloader<MemoryStore<C>>>> {
        self.reloader.as_ref()
    }

    /// The time by which the service decides.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.engine.store().now()
    }

    /// The secret that keys every digest of this process.
    #[must_use]
    pub const fn secret(&self) -> Secret {
        self.secret
    }

    /// How header fields are rendered.
    #[must_use]
    pub const fn headers(&self) -> &HeaderRenderer {
        &self.headers
    }

    /// How busy the service is.
    #[must_use]
    pub const fn saturation(&self) -> &Arc<Saturation> {
        &self.saturation
    }

    /// What was answered so far, over all transports.
    #[must_use]
    pub const fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// How many keys were forgiven what they owed because there was no room for them.
    #[must_use]
    pub fn live_evictions(&self) -> u64 {
        self.engine.store().usage().evictions
    }

    /// The policy in force in plain words. After the file has changed this explains the new policy at the first call.
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
        // What compiled can be explained; if not, the explanation before is better than none.
        if let Ok(explanation) = explain_redacted(&policy, &self.secret) {
            self.explanation.store(Arc::new(PolicyExplanation {
                generation,
                explanation,
            }));
        }
        self.explanation.load_full()
    }

    /// The one place where a verdict is counted and, if it denies, logged. [`check`](Self::check) calls it; a transport
    /// that decides by [`check_uncounted`](Self::check_uncounted) passes one verdict for the request here.
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
