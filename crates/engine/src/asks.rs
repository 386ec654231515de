//! Whom a decision asks: a store that answers at once, or one that has to be waited for.
//!
//! There is one procedure for both. It is written as a future; over a store that answers at once the future is complete
//! when it is first looked at, so nothing waits, nothing is boxed, and callers see a plain function. Must not know: what is
//! asked, and why.

use std::future::{Future, ready};
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use tollgate_core::Timestamp;
use tollgate_core::compose::Verdict;
use tollgate_core::limit::Limit;
use tollgate_policy::model::{Consistency, OnStoreFailure};
use tollgate_store::{Answer, Check, ErrorKind, Key, StoreError};

use crate::deny_cache::Keep;
use crate::store::StateStore;

/// Somebody who decides on batches of checks, sooner or later.
pub(crate) trait Asks: Sync {
    /// Whether it has to be waited for.
    const WAITS: bool;
    /// Whether it cares where states lie, and how they are shared.
    const SHARES: bool;

    /// What time it is for decisions.
    fn now(&self) -> Timestamp;

    /// Decides on a batch, where nobody has to be waited for.
    fn ask_at_once(
        &self,
        checks: &[Check<'_>],
        shared: &impl Shared,
        answers: &mut [Answer],
    ) -> Result<Verdict, StoreError> {
        let _ = (checks, shared, answers);
        let detail = "this store has to be waited for";
        Err(StoreError::new(ErrorKind::BadRequest, detail))
    }

    /// Decides on a batch: [`tollgate_store::Store::decide`], awaited. How a fleet shares each check is asked for where it
    /// matters.
    fn ask(
        &self,
        checks: &[Check<'_>],
        shared: &impl Shared,
        answers: &mut [Answer],
    ) -> impl Future<Output = Result<Verdict, StoreError>> + Send;
}

/// Whoever knows how a fleet shares the states of a batch.
pub(crate) trait Shared: Sync {
    /// How it shares the one that the check at this position is about.
    fn sharing(&self, position: usize) -> Sharing<'_>;
}

/// Nothing is said about any of them.
pub(crate) struct Plainly;

impl Shared for Plainly {
    fn sharing(&self, _position: usize) -> Sharing<'_> {
        Sharing::EXACT
    }
}

/// All of them are Envoy's counters.
pub(crate) struct Counters;

impl Shared for Counters {
    fn sharing(&self, _position: usize) -> Sharing<'_> {
        Sharing::COUNTER
    }
}

/// How a fleet shares the state that one check is about.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sharing<'a> {
    /// The version of the policy that asks.
    pub(crate) generation: u64,
    /// Whether it is this process' own and nobody else's.
    pub(crate) is_local: bool,
    pub(crate) consistency: Consistency,
    /// What is decided without the shared store.
    pub(crate) on_failure: OnStoreFailure,
    /// How long a denial may be answered without asking again.
    pub(crate) keep: Keep,
    /// Where the state lies, if not where its own key says.
    pub(crate) place: Option<Key<'a>>,
    /// The quota itself, where the one that is asked has a wait added to it.
    pub(crate) plain: Option<&'a Limit>,
    /// Whether it is one of Envoy's counters: the last unit is one too many, and what is refused counts too.
    pub(crate) is_counter: bool,
}

impl Sharing<'_> {
    /// What nothing is said about.
    pub(crate) const EXACT: Self = Self {
        generation: 0,
        is_local: false,
        consistency: Consistency::Exact,
        on_failure: OnStoreFailure::Local,
        keep: Keep::Never,
        place: None,
        plain: None,
        is_counter: false,
    };

    /// One of Envoy's counters.
    pub(crate) const COUNTER: Self = Self {
        is_counter: true,
        ..Self::EXACT
    };
}

/// A store that answers at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AtOnce<'s, S>(pub(crate) &'s S);

impl<S: StateStore> Asks for AtOnce<'_, S> {
    const WAITS: bool = false;
    const SHARES: bool = false;

    fn now(&self) -> Timestamp {
        self.0.now()
    }

    #[inline]
    fn ask_at_once(
        &self,
        checks: &[Check<'_>],
        _shared: &impl Shared,
        answers: &mut [Answer],
    ) -> Result<Verdict, StoreError> {
        self.0.decide(checks, answers)
    }

    #[inline]
    fn ask(
        &self,
        checks: &[Check<'_>],
        _shared: &impl Shared,
        answers: &mut [Answer],
    ) -> impl Future<Output = Result<Verdict, StoreError>> + Send {
        ready(self.0.decide(checks, answers))
    }
}

/// What comes of a procedure that has nobody to wait for. `None` would mean that it waited after all.
#[inline]
pub(crate) fn at_once<T>(procedure: impl Future<Output = T>) -> Option<T> {
    match pin!(procedure).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(done) => Some(done),
        Poll::Pending => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_needs_no_waiting_is_there_and_what_does_is_not() {
        assert_eq!(at_once(async { ready(1).await + 1 }), Some(2));
        assert_eq!(at_once(std::future::pending::<()>()), None);
    }
}
