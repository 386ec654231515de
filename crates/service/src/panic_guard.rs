//! A future that survives a panic of the work inside it.
//!
//! Must not know: what the work is.

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;

/// The result of `work`, or `None` if it panicked. A panic is a bug of ours; it costs one answer instead of the process.
/// Shared state is safe to read afterwards because stores write it whole.
pub async fn catch_panic<T>(work: impl Future<Output = T>) -> Option<T> {
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
    use std::future::ready;

    #[tokio::test]
    async fn a_panic_costs_the_answer_and_not_whoever_waits_for_it() {
        let late = catch_panic::<()>(async {
            tokio::task::yield_now().await;
            panic!("after a wait");
        });
        assert_eq!(late.await, None);
        assert_eq!(catch_panic(ready(7)).await, Some(7));
    }
}
