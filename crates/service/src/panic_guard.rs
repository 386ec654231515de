//! Catches panics of a future.
//!
//! Must not know: what the future does.

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;

/// The result of `work`, or `None` if it panicked. A panic is a bug; it costs one response instead of the process. Shared
/// state stays consistent because stores write it atomically.
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
    async fn a_panic_costs_the_response_and_not_the_caller() {
        let late = catch_panic::<()>(async {
            tokio::task::yield_now().await;
            panic!("after a wait");
        });
        assert_eq!(late.await, None);
        assert_eq!(catch_panic(ready(7)).await, Some(7));
    }
}
