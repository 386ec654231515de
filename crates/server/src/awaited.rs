//! Answers that may have to be waited for: looked at once where nobody waits, and whole whatever happens in between.
//!
//! Without a fleet every answer is there when it is first looked at, so whoever has no time to wait asks once. Must not know:
//! what is asked or answered.

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
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

/// What comes of work, or `None` if it panicked: that is a bug of ours, and costs one answer instead of the process. State is
/// safe to look at again because stores write it whole.
pub(crate) async fn guarded<T>(work: impl Future<Output = T>) -> Option<T> {
    let mut work = pin!(work);
    poll_fn(
        |context| match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(context))) {
            Ok(polled) => polled.map(Some),
            Err(_panic) => Poll::Ready(None),
        },
    )
    .await
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::{pending, ready};

    #[test]
    fn what_needs_no_waiting_is_there_and_what_does_is_not() {
        assert_eq!(at_once(pin!(async { ready(1).await + 1 })), Some(2));
        assert_eq!(at_once(pin!(pending::<()>())), None);
    }

    #[tokio::test]
    async fn a_panic_costs_the_answer_and_not_whoever_waits_for_it() {
        let late = guarded::<()>(async {
            tokio::task::yield_now().await;
            panic!("after a wait");
        });
        assert_eq!(late.await, None);
        assert_eq!(guarded(ready(7)).await, Some(7));
    }
}
