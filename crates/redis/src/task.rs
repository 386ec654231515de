//! Background tasks; the only module that starts any. A task that ends or panics is started again. Dropping the handle
//! ends it.
//!
//! Must not know: what a task does.

use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

use tokio::task::{AbortHandle, JoinSet};
use tollgate_store::{StoreError, StoreErrorKind};

/// The longest pause before a task that has ended is started again.
const MAX_RESTART_PAUSE: Duration = Duration::from_secs(2);

/// A task that runs until this handle is dropped.
#[derive(Debug)]
pub(crate) struct SupervisedTask(AbortHandle);

impl SupervisedTask {
    /// Starts the future that `make` returns, and again whenever it ends.
    ///
    /// # Errors
    ///
    /// There is no tokio runtime.
    pub(crate) fn start<F>(make: impl Fn() -> F + Send + 'static) -> Result<Self, StoreError>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        if tokio::runtime::Handle::try_current().is_err() {
            let detail = "no tokio runtime: connect the store within one";
            return Err(StoreError::new(StoreErrorKind::BadRequest, detail));
        }
        #[expect(
            clippy::disallowed_methods,
            reason = "this is the supervised module: the task watches another and starts it again"
        )]
        let watching = tokio::spawn(async move {
            loop {
                let mut set = JoinSet::new();
                set.spawn(make());
                set.join_next().await;
                tokio::time::sleep(jittered(MAX_RESTART_PAUSE)).await;
            }
        });
        Ok(Self(watching.abort_handle()))
    }
}

impl Drop for SupervisedTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A task that ends by itself, or when this handle is dropped.
#[derive(Debug)]
pub(crate) struct OwnedTask(AbortHandle);

impl OwnedTask {
    /// Starts a task. Must be called within a tokio runtime. A panic ends the task, and its drop tells those who wait for it.
    pub(crate) fn start(future: impl Future<Output = ()> + Send + 'static) -> Self {
        #[expect(
            clippy::disallowed_methods,
            reason = "this is the supervised module: the supervisor of a connection notices that it has ended"
        )]
        let running = tokio::spawn(future);
        Self(running.abort_handle())
    }
}

impl Drop for OwnedTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A random duration below `most`. Full jitter: nodes that lost their server at the same time do not reconnect at the
/// same time.
pub(crate) fn jittered(max: Duration) -> Duration {
    let random = RandomState::new().hash_one(0_u8);
    let max = u64::try_from(max.as_nanos()).unwrap_or(u64::MAX).max(1);
    Duration::from_nanos(random.checked_rem(max).unwrap_or(0))
}
