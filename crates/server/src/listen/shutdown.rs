//! The word that a server begins to stop, said once and heard by every connection.
//!
//! Must not know: who says it, and what a connection does about it.

use std::future::Future;

use tokio::sync::watch;

/// Says it. Dropped without a word it says it too: nobody is left who could.
#[derive(Debug)]
pub struct ShutdownTrigger(watch::Sender<bool>);

/// Hears it.
#[derive(Clone, Debug)]
pub struct ShutdownSignal(watch::Receiver<bool>);

impl ShutdownTrigger {
    /// A word to be said, and a listener to it.
    #[must_use]
    pub fn new() -> (Self, ShutdownSignal) {
        let (sender, receiver) = watch::channel(false);
        (Self(sender), ShutdownSignal(receiver))
    }

    /// From now on it is said.
    pub fn trigger(&self) {
        self.0.send_replace(true);
    }
}

impl ShutdownSignal {
    /// Whether it has been said.
    #[must_use]
    pub fn is_triggered(&self) -> bool {
        // Nobody has looked at the first value through this receiver or one it was cloned from, so a change is seen for
        // ever; this is an atomic load, and connections ask after every batch.
        self.0.has_changed().unwrap_or(true)
    }

    /// Completes when it is said.
    pub fn wait(&self) -> impl Future<Output = ()> + Send + Sync + use<> {
        let mut receiver = self.0.clone();
        async move {
            // An error means that nobody can say it any more, which is the end too.
            let _said = receiver.wait_for(|said| *said).await.is_ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn it_is_heard_by_those_who_wait_and_by_those_who_come_later() {
        let (stop, stopping) = ShutdownTrigger::new();
        assert!(!stopping.is_triggered());
        tokio::join!(stopping.wait(), async { stop.trigger() });
        stopping.wait().await;
        assert!(stopping.is_triggered());
    }

    #[tokio::test]
    async fn a_server_that_is_gone_has_stopped() {
        let (stop, stopping) = ShutdownTrigger::new();
        drop(stop);
        stopping.wait().await;
        assert!(stopping.is_triggered());
    }
}
