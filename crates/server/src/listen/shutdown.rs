//! The shutdown signal of a server: triggered once, seen by every connection.
//!
//! Must not know: who triggers it, and how connections react.

use std::future::Future;

use tokio::sync::watch;

/// Triggers the signal. Dropping it triggers the signal too.
#[derive(Debug)]
pub struct ShutdownTrigger(watch::Sender<bool>);

/// Receives the signal.
#[derive(Clone, Debug)]
pub struct ShutdownSignal(watch::Receiver<bool>);

impl ShutdownTrigger {
    /// A trigger and its signal.
    #[must_use]
    pub fn new() -> (Self, ShutdownSignal) {
        let (sender, receiver) = watch::channel(false);
        (Self(sender), ShutdownSignal(receiver))
    }

    /// Triggers the signal.
    pub fn trigger(&self) {
        self.0.send_replace(true);
    }
}

impl ShutdownSignal {
    /// Whether the signal was triggered.
    #[must_use]
    pub fn is_triggered(&self) -> bool {
        // No receiver ever marks the first value as seen, so the change stays visible. This is one atomic load, and connections
        // call it after every batch.
        self.0.has_changed().unwrap_or(true)
    }

    /// Completes when the signal is triggered.
    pub fn wait(&self) -> impl Future<Output = ()> + Send + Sync + use<> {
        let mut receiver = self.0.clone();
        async move {
            // An error means that the trigger was dropped, which counts as triggered.
            let _triggered = receiver.wait_for(|triggered| *triggered).await.is_ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_signal_reaches_current_and_later_waiters() {
        let (stop, stopping) = ShutdownTrigger::new();
        assert!(!stopping.is_triggered());
        tokio::join!(stopping.wait(), async { stop.trigger() });
        stopping.wait().await;
        assert!(stopping.is_triggered());
    }

    #[tokio::test]
    async fn a_dropped_trigger_counts_as_triggered() {
        let (stop, stopping) = ShutdownTrigger::new();
        drop(stop);
        stopping.wait().await;
        assert!(stopping.is_triggered());
    }
}
