//! Runs several futures concurrently, without spawning tasks.
//!
//! Must not know: what is called.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

/// Waits for all futures, and returns their outputs in the order of completion.
pub(crate) async fn join_all<F: Future>(mut running: Vec<Pin<Box<F>>>) -> Vec<F::Output> {
    let mut done = Vec::with_capacity(running.len());
    poll_fn(|context| {
        running.retain_mut(|one| match one.as_mut().poll(context) {
            Poll::Pending => true,
            Poll::Ready(output) => {
                done.push(output);
                false
            }
        });
        match running.is_empty() {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    })
    .await;
    done
}

#[cfg(test)]
mod tests {
    use std::future::ready;
    use std::pin::pin;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::task::{Context, Waker};

    use super::*;

    #[test]
    fn all_futures_are_polled_concurrently() {
        let is_open = AtomicBool::new(false);
        let one = |wait: bool, number: u32| {
            let is_open = &is_open;
            Box::pin(async move {
                poll_fn(|_| match wait && !is_open.load(Ordering::Relaxed) {
                    true => Poll::Pending,
                    false => Poll::Ready(()),
                })
                .await;
                ready(number).await
            })
        };
        let mut all = pin!(join_all(vec![one(true, 1), one(false, 2)]));
        let mut context = Context::from_waker(Waker::noop());
        assert!(all.as_mut().poll(&mut context).is_pending());
        is_open.store(true, Ordering::Relaxed);
        assert_eq!(all.poll(&mut context), Poll::Ready(vec![2, 1]));
    }
}
