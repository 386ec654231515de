//! Envoy's question, whether a request may proceed, decided by files of envoyproxy/ratelimit or by a policy of ours.
//!
//! [`App::should_rate_limit`] is all of it; gRPC and `/json` bring the question in and carry the answer out. By files every
//! descriptor is charged on its own and what is denied counts too, as there; by a policy of ours all descriptors of a
//! request are charged or none. Must not know: gRPC, sockets, how files are read.

mod asked;
mod by_files;
mod by_policy;
mod files;
mod json;
mod labels;
pub(crate) mod message;
pub(crate) mod said;
mod shared;
mod standing;

use std::fmt;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;

use hyper::StatusCode;
use hyper::header::RETRY_AFTER;
use tollgate_core::{Nanos, Outcome};
use tollgate_engine::envoy::{EnvoyEngine, Undecided};
use tollgate_engine::fleet::Fleet;
use tollgate_engine::reload::EnvoyReloader;
use tollgate_engine::{Counted, Engine, OutOfNumbers};
use tollgate_http::{Standing, Words};
use tollgate_policy::envoy::{BadRequest, Code, EnvoyPolicy, FilesRefused, Modes, Request};
use tollgate_store::{Clock, ErrorKind, Memory, StoreError};

pub(crate) use self::asked::Asked;
use self::labels::Labels;
use self::said::Said;
use self::shared::SharedStore;
use crate::app::App;
use crate::awaited::at_once;
use crate::http::response::HttpResponse as Reply;
use crate::metrics::{Answered, Transport};

/// Envoy's rules, on the store of an app's engine.
pub(crate) struct Rls<C> {
    /// Decides by files, or where a policy of ours is in force on limits that come with descriptors.
    engine: Arc<EnvoyEngine<SharedStore<C>>>,
    /// What looks at the files, if they come from somewhere.
    reloader: Option<Arc<EnvoyReloader<SharedStore<C>>>>,
    /// Whether files of envoyproxy/ratelimit decide.
    by_files: bool,
    labels: Labels,
}

impl<C: Clock> Rls<C> {
    /// By files of envoyproxy/ratelimit.
    pub(crate) fn following(
        path: &Path,
        engine: &Arc<Engine<Memory<C>>>,
        secret: [u8; 16],
    ) -> Result<Self, FilesRefused> {
        let store = SharedStore(Arc::clone(engine));
        let reloader = EnvoyReloader::open(path, secret, store, &engine.numbering())?;
        Ok(Self {
            engine: Arc::clone(reloader.engine()),
            reloader: Some(Arc::new(reloader)),
            by_files: true,
            labels: Labels::default(),
        })
    }

    /// By files that were read by somebody else.
    pub(crate) fn by_files(
        policy: EnvoyPolicy,
        engine: &Arc<Engine<Memory<C>>>,
        secret: [u8; 16],
    ) -> Result<Self, OutOfNumbers> {
        let by_files = true;
        let rls = Self::new(policy, engine, secret)?;
        Ok(Self { by_files, ..rls })
    }

    /// By the engine's own policy.
    pub(crate) fn by_policy(
        engine: &Arc<Engine<Memory<C>>>,
        secret: [u8; 16],
    ) -> Result<Self, OutOfNumbers> {
        Self::new(by_policy::overrides(), engine, secret)
    }

    fn new(
        policy: EnvoyPolicy,
        engine: &Arc<Engine<Memory<C>>>,
        secret: [u8; 16],
    ) -> Result<Self, OutOfNumbers> {
        let store = SharedStore(Arc::clone(engine));
        let engine = EnvoyEngine::new(policy, secret, store, &engine.numbering())?;
        Ok(Self {
            engine: Arc::new(engine),
            reloader: None,
            by_files: false,
            labels: Labels::default(),
        })
    }

    /// Shares counters with a fleet from now on.
    pub(crate) fn join(&self, fleet: &Arc<Fleet>) -> bool {
        self.engine.join(Arc::clone(fleet))
    }

    /// What looks at the files, if files are in force.
    pub(crate) const fn reloader(&self) -> Option<&Arc<EnvoyReloader<SharedStore<C>>>> {
        self.reloader.as_ref()
    }

    /// What every rule of the files has decided, and limits that came with requests where any did.
    pub(crate) fn counted(&self) -> Vec<(Box<str>, Counted)> {
        let mut counted = self.engine.counted();
        let is_used = |counted: &Counted| *counted != Counted::default();
        counted.retain(|(name, counted)| !name.starts_with("override/") || is_used(counted));
        counted
    }

    /// Whether everything that files decide is in shadow: the kill switch.
    pub(crate) fn shadow(&self, is_halted: bool) {
        let modes = self.engine.modes();
        self.engine.set_modes(Modes {
            shadow_mode: is_halted,
            ..modes
        });
    }

    /// The version of the files, if files are in force.
    pub(crate) fn generation(&self) -> Option<u64> {
        self.is_by_files().then(|| self.engine.generation())
    }

    /// What every rule of the files does, if files are in force.
    pub(crate) fn rules_in_words(&self) -> Option<Vec<String>> {
        self.is_by_files().then(|| self.engine.explain())
    }

    /// Whether files of envoyproxy/ratelimit are in force.
    pub(crate) const fn is_by_files(&self) -> bool {
        self.by_files
    }
}

impl<C: Clock> App<C> {
    /// Decides on a request, charges it, and hands the answer over.
    pub(crate) async fn should_rate_limit<T>(
        &self,
        transport: Transport,
        request: &Request<'_>,
        see: impl FnOnce(&Said<'_>) -> T + Send,
    ) -> Result<T, Refused> {
        let began = self.engine.store().now();
        let decided = if self.waits() {
            // In a box, and the other not in this future at all: what is large is copied again and again on its way.
            Box::pin(self.decide_for_envoy(transport, request, see)).await
        } else {
            let decided = pin!(self.decide_for_envoy(transport, request, see));
            at_once(decided).unwrap_or_else(|| Err(Refused::waited()))
        };
        if decided.is_err() {
            self.metrics().count_answer(transport, Answered::Failed);
        }
        // What comes by HTTP is measured with all else that does.
        if transport == Transport::Grpc {
            let span = self.engine.store().now().since(began);
            self.metrics().took(transport, span, 1);
        }
        decided
    }

    async fn decide_for_envoy<T>(
        &self,
        transport: Transport,
        request: &Request<'_>,
        see: impl FnOnce(&Said<'_>) -> T + Send,
    ) -> Result<T, Refused> {
        if !self.rls.is_by_files() {
            return self.decide_by_policy(transport, request, see).await;
        }
        let see = |said: &Said<'_>| {
            let answered = match said.overall {
                Code::Ok => Answered::Allowed,
                Code::OverLimit => Answered::Denied,
            };
            self.metrics().count_answer(transport, answered);
            see(said)
        };
        self.decide_by_files(request, see).await
    }
    /// The same question and answer as JSON, with the status that envoyproxy/ratelimit gives them.
    pub(crate) async fn should_rate_limit_json(&self, body: &[u8]) -> Reply {
        let answered = self.answer_json(body).await;
        answered.unwrap_or_else(|reason| Reply::plain(StatusCode::BAD_REQUEST, reason))
    }

    async fn answer_json(&self, body: &[u8]) -> Result<Reply, String> {
        let question = json::read_json(body)?;
        let entries = question.entries()?;
        let descriptors = question.descriptors(&entries)?;
        let request = question.request(&descriptors)?;
        let answered = self.should_rate_limit(Transport::Http, &request, |said| {
            let reply = Reply::json(json::write_json(said));
            let reply = match said.overall {
                Code::Ok => reply,
                Code::OverLimit => reply.answered_with(StatusCode::TOO_MANY_REQUESTS),
            };
            match said.wait.is_zero() {
                true => reply,
                false => reply.after(said.wait).at(self.saturation.enter()),
            }
        });
        answered.await.or_else(|refused| match refused {
            Refused::BadRequest(reason) => Err(reason.to_string()),
            Refused::Store(error) => {
                let status = StatusCode::SERVICE_UNAVAILABLE;
                Ok(Reply::plain(status, error.to_string()).with(RETRY_AFTER, "1"))
            }
        })
    }

    /// Writes the header fields that tell of limits, wherever they stand.
    fn word(&self, outcome: Outcome, standings: &[Standing<'_>], words: &mut Words) {
        let now = || self.engine.store().now();
        let answer = self.wording.about(outcome, standings, now);
        answer.write(self.wording.dialects(), words);
    }
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The question makes no sense. Nothing was charged.
    BadRequest(BadRequest),
    /// The store did not answer.
    Store(StoreError),
}

impl Refused {
    /// Whoever needs not be waited for was.
    fn waited() -> Self {
        let detail = "an answer that is there at once was not";
        Self::Store(StoreError::new(ErrorKind::Garbled, detail))
    }
}

impl From<Undecided> for Refused {
    fn from(undecided: Undecided) -> Self {
        match undecided {
            Undecided::BadRequest(reason) => Self::BadRequest(reason),
            Undecided::Store(error) => Self::Store(error),
            // What is not known yet is no fault of whoever asks.
            other => Self::Store(StoreError::new(ErrorKind::Garbled, other.to_string())),
        }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BadRequest(reason) => reason.fmt(f),
            Self::Store(error) => error.fmt(f),
        }
    }
}

/// Whole seconds, rounded up.
fn seconds(span: Nanos) -> u64 {
    span.as_nanos().div_ceil(1_000_000_000)
}

impl<C> fmt::Debug for Rls<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rls")
            .field("by_files", &self.by_files)
            .finish_non_exhaustive()
    }
}
