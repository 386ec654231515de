//! The place of a request that runs, and the wait for one.
//!
//! A permit returns its place when it is dropped, whatever became of the request. Must not know: how places are given.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::timeout;
use tollgate_core::Timestamp;
use tollgate_overload::{Completion, CreditClient, PriorityClass};
use tollgate_policy::model::Mode;

use super::Shed;
use super::control::{EndedRequest, OverloadControl};

/// The longest wait. The queue expires requests earlier, but only while others arrive or end.
const LONGEST_WAIT: Duration = Duration::from_millis(100);

/// The place of a request that runs.
#[must_use = "dropping it gives the place back"]
pub struct OverloadPermit {
    /// `None` when the place was given back.
    control: Option<Arc<OverloadControl>>,
    started: Timestamp,
    class: PriorityClass,
}

impl OverloadPermit {
    pub(super) const fn new(
        control: Arc<OverloadControl>,
        started: Timestamp,
        class: PriorityClass,
    ) -> Self {
        Self {
            control: Some(control),
            started,
            class,
        }
    }

    /// Gives the place back after the work was done. A failure teaches the limit nothing.
    pub(crate) fn complete(mut self, now: Timestamp, completion: Completion) {
        if let Some((control, ended)) = self.take(completion) {
            control.finish(Some(now), ended);
        }
    }

    /// Takes the place out of the permit, so that dropping it does nothing.
    pub(super) fn take(
        &mut self,
        completion: Completion,
    ) -> Option<(Arc<OverloadControl>, EndedRequest)> {
        let ended = EndedRequest {
            started: self.started,
            class: self.class,
            completion,
        };
        Some((self.control.take()?, ended))
    }
}

impl Drop for OverloadPermit {
    fn drop(&mut self) {
        if let Some((control, ended)) = self.take(Completion::Ignored) {
            control.finish(None, ended);
        }
    }
}

impl fmt::Debug for OverloadPermit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OverloadPermit")
            .field("class", &self.class)
            .finish_non_exhaustive()
    }
}

/// A request that waits for a place. Dropping it ends the wait.
#[derive(Debug)]
#[must_use = "a request that waits has to be awaited"]
pub struct OverloadWait {
    pub(super) control: Arc<OverloadControl>,
    pub(super) class: PriorityClass,
    pub(super) credits: Mode,
    pub(super) client: Option<CreditClient>,
    pub(super) receiver: oneshot::Receiver<OverloadPermit>,
}

impl OverloadWait {
    /// Waits for the place.
    ///
    /// # Errors
    /// The request waited too long, or gave way to a more important one.
    pub async fn wait(self) -> Result<OverloadPermit, Shed> {
        match timeout(LONGEST_WAIT, self.receiver).await {
            Ok(Ok(permit)) => Ok(permit),
            // The queue dropped the sender, or nobody looked at the queue in time.
            Ok(Err(_)) | Err(_) => {
                Err(self
                    .control
                    .shed_queued(self.class, self.credits, self.client))
            }
        }
    }
}
