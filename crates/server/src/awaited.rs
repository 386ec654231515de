//! Answers that may have to be waited for: looked at once where nobody waits.
//!
//! Without a fleet every answer is there when it is first looked at, so whoever has no time to wait asks once. Must not know:
//! what is asked or answered.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

/// What comes of work that has nobody to wait for. `None` would mean that it waited after all. It is pinned by whoever calls,
/// because work is large and would be copied on its way here.
#[inline]
pub(crate) fn at_once<F: Future>(work: Pin<&mut F>) -> Option<F::Output> {
    match work.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(done) => Some(done),
        Poll::Pending => None,
    }
}

pub(crate) use tollgate_service::guarded;

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::{pending, ready};
    use std::pin::pin;

    #[test]
    fn what_needs_no_waiting_is_there_and_what_does_is_not() {
        assert_eq!(at_once(pin!(async { ready(1).await + 1 })), Some(2));
        assert_eq!(at_once(pin!(pending::<()>())), None);
    }
}
