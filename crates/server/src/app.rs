//! The server without its sockets: an engine, the policy in words, open tickets.
//!
//! Whatever is decided may have to be waited for if there is a fleet, and is there at once if there is none. Must not know: sockets, connections, timeouts, what is in files.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;
use tollgate_core::Nanos;
use tollgate_engine::fleet::Fleet;
use tollgate_engine::reload::{Reloader, is_envoys};
use tollgate_engine::{Engine, Verdict};
use tollgate_http::{Dialects, Networks};
use tollgate_policy::attributes::Attributes;
use tollgate_policy::explain::{Explanation, explain};
use tollgate_policy::model::Policy;
use tollgate_policy::rules::Rules;
use tollgate_store::{Clock, Memory};

use crate::counters::Counters;
use crate::denials::{Denials, LogDenials};
use crate::http::forward_auth::Gateways;
use crate::http::welcome::{introduction, introduction_of_files};
use crate::invalid::InvalidApp;
use crate::listen::{Reached, Stopping};
use crate::metrics::{Metrics, Transport};
use crate::redact::redacted;
use crate::rlqs::{QuotaBounds, QuotaCounts, Quotas};
use crate::rls::Rls;
use crate::saturation::{MOST_WAITING, Saturation};
use crate::secret::Secret;
use crate::tickets::Tickets;
use crate::words::Wording;

/// The longest that anyone is told to wait beyond what is needed.
pub const MOST_RETRY_JITTER: Nanos = Nanos::HOUR;

/// A policy in force, and the endpoints that ask it.
#[derive(Debug)]
pub struct App<C> {
    pub(crate) engine: Arc<Engine<Memory<C>>>,
    /// The file that the policy comes from, if it comes from one.
    reloader: Option<Arc<Reloader<Memory<C>>>>,
    /// What Envoy asks.
    pub(crate) rls: Rls<C>,
    /// What Envoy is given in advance.
    pub(crate) quotas: Quotas,
    pub(crate) tickets: Tickets,
    pub(crate) gateways: Gateways,
    pub(crate) wording: Wording,
    pub(crate) saturation: Arc<Saturation>,
    /// Once this is said no more requests should be sent here.
    leaving: Option<Stopping>,
    /// The policy in force, in words.
    told: ArcSwap<Told>,
    /// Keys every digest of this process; another policy must make the same ones.
    pub(crate) secret: [u8; 16],
    replacing: Mutex<()>,
    counters: Counters,
    metrics: Arc<Metrics>,
    denials: Denials,
}

/// A policy in words, and the number that verdicts name it by.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) generation: u64,
    pub(crate) explanation: Explanation,
}

impl<C: Clock> App<C> {
    /// An app that decides by `policy`, with room for about `keys` keys in use at the same time.
    ///
    /// # Errors
    /// The policy cannot be put in force, or there cannot be so many keys.
    pub fn new(policy: &Policy, keys: usize, clock: C) -> Result<Self, InvalidApp> {
        Self::keyed(policy, keys, clock, Secret::random())
    }

    /// The same, whose digests are keyed by a secret that others may share.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn keyed(
        policy: &Policy,
        keys: usize,
        clock: C,
        Secret(secret): Secret,
    ) -> Result<Self, InvalidApp> {
        let (rules, explanation) = compile(policy, secret)?;
        let store = Memory::with_clock(keys, clock).map_err(InvalidApp::Size)?;
        let engine = Engine::new(rules, store).map_err(InvalidApp::Numbers)?;
        let generation = engine.generation().number();
        let told = Told {
            generation,
            explanation,
        };
        Self::made(Arc::new(engine), None, told, secret)
    }

    /// An app that decides by what a file says: a policy of ours, or a file or a directory of files of envoyproxy/ratelimit.
    /// Whoever holds its [`reload`](Self::reload) says when to look at it again.
    ///
    /// # Errors
    /// Everything that is wrong with the file, or there cannot be so many keys.
    pub fn following(
        path: &Path,
        keys: usize,
        clock: C,
        secret: Secret,
    ) -> Result<Self, InvalidApp> {
        if is_envoys(path) {
            return Self::following_files(path, keys, clock, secret);
        }
        let Secret(secret) = secret;
        let store = Memory::with_clock(keys, clock).map_err(InvalidApp::Size)?;
        let reloader = Reloader::open(path, secret, store).map_err(InvalidApp::File)?;
        let (generation, policy) = reloader.in_force();
        let told = Told {
            generation,
            explanation: explain(&redacted(&policy, &secret)).map_err(InvalidApp::Policy)?,
        };
        let engine = Arc::clone(reloader.engine());
        Self::made(engine, Some(Arc::new(reloader)), told, secret)
    }

    fn made(
        engine: Arc<Engine<Memory<C>>>,
        reloader: Option<Arc<Reloader<Memory<C>>>>,
        told: Told,
        secret: [u8; 16],
    ) -> Result<Self, InvalidApp> {
        let rls = Rls::by_policy(&engine, secret).map_err(InvalidApp::Numbers)?;
        let quotas = Quotas::new(QuotaBounds::default(), engine.store().now());
        Ok(Self {
            engine,
            reloader,
            rls,
            quotas,
            tickets: Tickets::default(),
            gateways: Gateways::in_networks(Networks::default()),
            wording: Wording::keyed_by(secret),
            saturation: Saturation::with_room_for(MOST_WAITING),
            leaving: None,
            told: ArcSwap::from_pointee(told),
            secret,
            replacing: Mutex::default(),
            counters: Counters::default(),
            metrics: Arc::default(),
            denials: Denials::new(LogDenials::Off),
        })
    }

    /// The same app, logging denials so far.
    #[must_use]
    pub fn logging(mut self, which: LogDenials) -> Self {
        self.denials = Denials::new(which);
        self
    }

    /// The same app, taking the word of gateways in these networks only.
    #[must_use]
    pub fn trusting(mut self, trusted: Networks) -> Self {
        self.gateways = Gateways::in_networks(trusted);
        self
    }

    /// The same app, holding back at most so many requests at the same time until they may go on. Of further ones that
    /// would have to wait their limits say what becomes: `on_store_failure` in the policy.
    #[must_use]
    pub fn holding_back(mut self, most: usize) -> Self {
        self.saturation = Saturation::with_room_for(most);
        self
    }

    /// The same app, giving out quotas within these bounds.
    #[must_use]
    pub fn sharing(mut self, bounds: QuotaBounds) -> Self {
        self.quotas = Quotas::new(bounds, self.engine.store().now());
        self
    }

    /// The same app, saying that it is not ready any more once this is said.
    #[must_use]
    pub fn until(mut self, leaving: Stopping) -> Self {
        self.leaving = Some(leaving);
        self
    }

    /// How busy it is.
    #[must_use]
    pub const fn saturation(&self) -> &Arc<Saturation> {
        &self.saturation
    }

    /// The same app, telling clients about their limits in these dialects; without this, in the current draft.
    #[must_use]
    pub fn speaking(mut self, dialects: Dialects) -> Self {
        self.wording = self.wording.speaking(dialects);
        self
    }

    /// The same app, telling those who are denied to wait up to so much longer than needed, each another time, so that
    /// they do not all come back at once. More than [`MOST_RETRY_JITTER`] is that.
    #[must_use]
    pub fn spreading(mut self, jitter: Nanos) -> Self {
        self.wording = self.wording.spreading(jitter.min(MOST_RETRY_JITTER));
        self
    }

    /// Puts another policy in force, for every request that is decided after this; states stay with limits of the same
    /// identity. Answers the number of the new version.
    ///
    /// # Errors
    /// The policy cannot be put in force. Then the one before stays.
    pub fn replace(&self, policy: &Policy) -> Result<u64, InvalidApp> {
        // One after another, so that the words are those of the rules.
        let _one_at_a_time = self.replacing();
        let (rules, explanation) = compile(policy, self.secret)?;
        let generation = self.engine.replace(rules).map_err(InvalidApp::Numbers)?;
        self.told.store(Arc::new(Told {
            generation,
            explanation,
        }));
        Ok(generation)
    }

    /// The engine that decides.
    pub const fn engine(&self) -> &Arc<Engine<Memory<C>>> {
        &self.engine
    }

    /// What looks at the policy's file, if it comes from one.
    pub const fn reloader(&self) -> Option<&Arc<Reloader<Memory<C>>>> {
        self.reloader.as_ref()
    }

    /// The policy in force in words. After the file has changed they are found when somebody asks.
    pub(crate) fn told(&self) -> Arc<Told> {
        let told = self.told.load_full();
        let Some(reloader) = &self.reloader else {
            return told;
        };
        let (generation, policy) = reloader.in_force();
        if told.generation == generation {
            return told;
        }
        let _one_at_a_time = self.replacing();
        // What compiled can be explained; if not, the words before are better than none.
        if let Ok(explanation) = explain(&redacted(&policy, &self.secret)) {
            self.told.store(Arc::new(Told {
                generation,
                explanation,
            }));
        }
        self.told.load_full()
    }

    /// Whether decisions may have to be waited for: whether there is a fleet.
    pub(crate) fn waits(&self) -> bool {
        self.engine.fleet().is_some()
    }

    /// Shares states with a fleet from now on, for good. To be said before anybody is served: connections that are open wait
    /// for nobody. Answers whether it had joined none before.
    pub fn join(&self, fleet: &Arc<Fleet>) -> bool {
        self.rls.join(fleet) && self.engine.join(Arc::clone(fleet))
    }

    /// Whether no more requests should be sent here.
    pub(crate) fn is_leaving(&self) -> bool {
        let leaving = self.leaving.as_ref();
        leaving.is_some_and(Stopping::is_said)
    }

    fn replacing(&self) -> MutexGuard<'_, ()> {
        self.replacing
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// What went wrong and was survived so far.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// What the server has answered so far, over all transports that count here.
    pub const fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// The one place where a verdict is counted and, if it denies, logged. [`ask`](Self::ask) does it; whoever asks the engine
    /// past that passes the verdict here.
    pub fn observe(
        &self,
        transport: Transport,
        request: &dyn Attributes,
        verdict: &Verdict,
        is_look: bool,
    ) {
        let now = || self.engine.store().now();
        self.metrics.count(transport, verdict, is_look, now);
        if !is_look && !verdict.is_admitted() {
            let metrics = &self.metrics;
            self.denials.note(metrics, transport, request, verdict, now);
        }
    }

    /// How many keys were forgiven what they owed because there was no room for them.
    #[must_use]
    pub fn forgiven(&self) -> u64 {
        self.engine.store().usage().forgiven
    }

    /// What was done about quotas so far.
    #[must_use]
    pub fn quotas_given(&self) -> QuotaCounts {
        self.quotas.counts()
    }

    /// How many tickets were given up because there was no room for more.
    #[must_use]
    pub fn tickets_given_up(&self) -> u64 {
        self.tickets.usage().0
    }

    /// The policy in plain words and commands to try, for a server reached at `place`; `also` are further commands.
    #[must_use]
    pub fn introduction(&self, place: &Reached, also: &[String]) -> String {
        match self.rls.rules_in_words() {
            Some(rules) => introduction_of_files(place, &rules, also),
            None => introduction(place, &self.told().explanation, also),
        }
    }
}

fn compile(policy: &Policy, secret: [u8; 16]) -> Result<(Rules, Explanation), InvalidApp> {
    let rules = Rules::compile(policy, secret).map_err(InvalidApp::Policy)?;
    let explanation = explain(&redacted(policy, &secret)).map_err(InvalidApp::Policy)?;
    Ok((rules, explanation))
}
