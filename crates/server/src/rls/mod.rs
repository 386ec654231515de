//! Envoy's question, whether a request may proceed, decided by files of envoyproxy/ratelimit or by a policy of ours.
//!
//! [`App::should_rate_limit`] is all of it; gRPC and `/json` bring the question in and carry the answer out. By files every
//! descriptor is charged on its own and what is denied counts too, as there; by a policy of ours all descriptors of a
//! request are charged or none. Must not know: gRPC, sockets, how files are read.

mod by_files;
mod by_policy;
mod labels;
pub(crate) mod message;
pub(crate) mod said;
mod shared;
#[cfg(test)]
mod tests;

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;

use tollgate_core::Nanos;
use tollgate_engine::envoy::{EnvoyEngine, Undecided};
use tollgate_engine::{Engine, OutOfNumbers};
use tollgate_http::Words;
use tollgate_policy::envoy::{self, BadRequest, EnvoyPolicy, Request};
use tollgate_store::{Clock, Memory, StoreError};

use self::labels::Labels;
use self::said::Said;
use self::shared::SharedStore;
use crate::app::App;

/// Envoy's rules, on the store of an app's engine.
pub(crate) struct Rls<C> {
    engine: Arc<EnvoyEngine<SharedStore<C>>>,
    labels: Labels,
    /// Whether files of envoyproxy/ratelimit are in force. If not, a policy of ours is, and this decides on limits that come
    /// with descriptors.
    by_files: bool,
}

impl<C: Clock> Rls<C> {
    /// By files of envoyproxy/ratelimit.
    pub(crate) fn by_files(
        engine: &Arc<Engine<Memory<C>>>,
        policy: EnvoyPolicy,
        secret: [u8; 16],
    ) -> Result<Self, OutOfNumbers> {
        Self::new(engine, policy, secret, true)
    }

    /// By the engine's own policy.
    pub(crate) fn by_policy(
        engine: &Arc<Engine<Memory<C>>>,
        secret: [u8; 16],
    ) -> Result<Self, OutOfNumbers> {
        // Only to have a domain in which limits that come with descriptors are counted; it can be loaded, as a test shows.
        let none = envoy::load(&[("", by_policy::OVERRIDES)]);
        let none = none.or_else(|_| envoy::load(&[])).ok();
        let none = none.ok_or(OutOfNumbers)?;
        Self::new(engine, none, secret, false)
    }

    fn new(
        engine: &Arc<Engine<Memory<C>>>,
        policy: EnvoyPolicy,
        secret: [u8; 16],
        by_files: bool,
    ) -> Result<Self, OutOfNumbers> {
        let store = SharedStore(Arc::clone(engine));
        let engine = EnvoyEngine::new(policy, secret, store, &engine.numbering())?;
        Ok(Self {
            engine: Arc::new(engine),
            labels: Labels::default(),
            by_files,
        })
    }

    /// What decides by files.
    pub(crate) const fn engine(&self) -> &Arc<EnvoyEngine<SharedStore<C>>> {
        &self.engine
    }

    /// Whether files of envoyproxy/ratelimit are in force.
    pub(crate) const fn is_by_files(&self) -> bool {
        self.by_files
    }
}

impl<C: Clock> App<C> {
    /// Decides on a request, charges it, and hands the answer over.
    pub(crate) fn should_rate_limit<T>(
        &self,
        request: &Request<'_>,
        see: impl FnOnce(&Said<'_>) -> T,
    ) -> Result<T, Refused> {
        if self.rls.by_files {
            self.rls.decide_by_files(request, see)
        } else {
            self.decide_by_policy(request, see)
        }
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

impl From<Undecided> for Refused {
    fn from(undecided: Undecided) -> Self {
        match undecided {
            Undecided::BadRequest(reason) => Self::BadRequest(reason),
            Undecided::Store(error) => Self::Store(error),
            // What is not known yet is no fault of whoever asks.
            other => Self::Store(StoreError::new(
                tollgate_store::ErrorKind::Garbled,
                other.to_string(),
            )),
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

/// This thread's room for header fields.
fn with_words<T>(work: impl FnOnce(&mut Words) -> T) -> T {
    thread_local! {
        static OWN: Cell<Option<Box<Words>>> = const { Cell::new(None) };
    }
    let mut words = OWN.take().unwrap_or_default();
    words.clear();
    let done = work(&mut words);
    OWN.set(Some(words));
    done
}

impl<C> fmt::Debug for Rls<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rls")
            .field("by_files", &self.by_files)
            .finish_non_exhaustive()
    }
}
