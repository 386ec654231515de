//! Shutdown: wait for the drain delay, stop listening, and let open connections finish. A second stop signal closes open
//! connections at once.
//!
//! Must not know: signals, listeners, protocols.

use std::time::Duration;

use tokio::task::{JoinError, JoinSet};
use tokio::time::sleep;
use tollgate_server::listen::{DrainOutcome, ShutdownTrigger};

/// Stops the listeners after `delay`. Returns how many connections were closed because they did not finish in time. If
/// `again` completes first, open connections are closed at once.
pub(super) async fn drain(
    mut listeners: JoinSet<DrainOutcome>,
    stopped: &ShutdownTrigger,
    delay: Duration,
    mut again: impl AsyncFnMut(),
) -> Result<usize, JoinError> {
    if !delay.is_zero() {
        tracing::info!(?delay, "stopping; listeners stay open for the drain delay");
        tokio::select! {
            biased;
            () = again() => {
                abort_all(listeners).await;
                return Ok(0);
            }
            () = sleep(delay) => {}
        }
    }
    stopped.trigger();
    // After the trigger: a client that connects when this is logged is not served any more.
    tracing::info!("stopping; waiting for open connections");
    let mut cut = 0_usize;
    loop {
        tokio::select! {
            biased;
            ended = listeners.join_next() => match ended {
                Some(ended) => cut = cut.saturating_add(ended?.aborted),
                None => return Ok(cut),
            },
            () = again() => {
                abort_all(listeners).await;
                return Ok(cut);
            }
        }
    }
}

async fn abort_all(mut listeners: JoinSet<DrainOutcome>) {
    tracing::warn!("second stop signal; closing open connections");
    listeners.shutdown().await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::pending;
    use tokio::sync::Notify;
    use tokio::time::Instant;
    use tollgate_server::listen::ShutdownSignal;

    const DELAY: Duration = Duration::from_secs(7);
    const WORK: Duration = Duration::from_secs(3);

    /// A listener whose connections take `finishing` to end after the stop.
    async fn listener(stopping: ShutdownSignal, finishing: Duration) -> DrainOutcome {
        stopping.wait().await;
        sleep(finishing).await;
        DrainOutcome { aborted: 2 }
    }

    #[tokio::test(start_paused = true)]
    async fn listeners_accept_during_the_delay_and_then_finish_their_work() {
        let (stop, stopping) = ShutdownTrigger::new();
        let mut listeners = JoinSet::new();
        listeners.spawn(listener(stopping.clone(), WORK));
        listeners.spawn(listener(stopping, Duration::ZERO));
        let begun = Instant::now();
        let cut = drain(listeners, &stop, DELAY, pending).await.unwrap();
        assert_eq!(cut, 4);
        assert!(begun.elapsed() >= DELAY + WORK);
    }

    #[tokio::test(start_paused = true)]
    async fn a_second_signal_ends_the_delay_and_the_work() {
        for (delay, until_second_signal) in [(DELAY, Duration::ZERO), (Duration::ZERO, WORK)] {
            let (stop, stopping) = ShutdownTrigger::new();
            let mut listeners = JoinSet::new();
            listeners.spawn(listener(stopping, Duration::from_secs(3_600)));
            let signal = Notify::new();
            let begun = Instant::now();
            let signalling = async {
                sleep(until_second_signal).await;
                signal.notify_one();
            };
            let drained = drain(listeners, &stop, delay, async || signal.notified().await);
            let (drained, ()) = tokio::join!(drained, signalling);
            assert_eq!(drained.unwrap(), 0);
            assert!(begun.elapsed() < until_second_signal + Duration::from_secs(1));
        }
    }
}
