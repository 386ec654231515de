//! The end of a server: say that it is not ready, wait for others to notice, stop listening, let connections finish. Whoever
//! tells it to stop a second time has no patience for that.
//!
//! Must not know: signals, listeners, protocols.

use std::time::Duration;

use tokio::task::{JoinError, JoinSet};
use tokio::time::sleep;
use tollgate_server::listen::{DrainOutcome, ShutdownTrigger};

/// Sees the listeners end after `delay`, and answers how many connections were cut because they took too long. If `again`
/// completes before the end, whatever is still open is cut at once.
pub(super) async fn drain(
    mut listeners: JoinSet<DrainOutcome>,
    stopped: &ShutdownTrigger,
    delay: Duration,
    mut again: impl AsyncFnMut(),
) -> Result<usize, JoinError> {
    if !delay.is_zero() {
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
    tracing::warn!("told to stop again: open connections are cut");
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

    /// A listener whose connections take so long to finish once it is told to stop.
    async fn listener(stopping: ShutdownSignal, finishing: Duration) -> DrainOutcome {
        stopping.wait().await;
        sleep(finishing).await;
        DrainOutcome { aborted: 2 }
    }

    #[tokio::test(start_paused = true)]
    async fn listeners_go_on_during_the_delay_and_then_finish_their_work() {
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
    async fn told_again_it_waits_neither_for_the_delay_nor_for_the_work() {
        for (delay, patience) in [(DELAY, Duration::ZERO), (Duration::ZERO, WORK)] {
            let (stop, stopping) = ShutdownTrigger::new();
            let mut listeners = JoinSet::new();
            listeners.spawn(listener(stopping, Duration::from_secs(3_600)));
            let signal = Notify::new();
            let begun = Instant::now();
            let telling = async {
                sleep(patience).await;
                signal.notify_one();
            };
            let drained = drain(listeners, &stop, delay, async || signal.notified().await);
            let (drained, ()) = tokio::join!(drained, telling);
            assert_eq!(drained.unwrap(), 0);
            assert!(begun.elapsed() < patience + Duration::from_secs(1));
        }
    }
}
