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
use tollgate_store::{Answer, Check, StoreError};

use crate::store::StateStore;

/// Somebody who decides on batches of checks, sooner or later.
pub(crate) trait Asks: Sync {
    /// What time it is for decisions.
    fn now(&self) -> Timestamp;

    /// Decides on a batch: [`tollgate_store::Store::decide`], awaited.
    fn ask(
        &self,
        checks: &[Check<'_>],
        answers: &mut [Answer],
    ) -> impl Future<Output = Result<Verdict, StoreError>> + Send;
}

/// A store that answers at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AtOnce<'s, S>(pub(crate) &'s S);

impl<S: StateStore> Asks for AtOnce<'_, S> {
    fn now(&self) -> Timestamp {
        self.0.now()
    }

    #[inline]
    fn ask(
        &self,
        checks: &[Check<'_>],
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
