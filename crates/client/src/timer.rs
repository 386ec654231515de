//! One thread that waits for the next time at which a request may be sent, whichever runtime the tasks run on.
//!
//! There is one timer for all waiters. Must not know: what is done when it fires.

use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::thread;
use std::time::Duration;

/// What the thread waits for.
#[derive(Debug, Default)]
struct TimerState {
    /// A new time was set since the thread looked.
    is_changed: bool,
    is_started: bool,
    is_stopped: bool,
}

/// The thread's bell.
#[derive(Debug, Default)]
pub(crate) struct Timer {
    state: Mutex<TimerState>,
    changed: Condvar,
}

/// Something that fires.
pub(crate) trait OnTimer: Send + Sync + 'static {
    /// Does what is due. Returns the time until the next call; `None` waits for a change.
    fn fire(&self) -> Option<Duration>;
}

impl Timer {
    /// Makes the thread look again, because a waiter may be due earlier. Starts the thread if there is none.
    pub(crate) fn notify<T: OnTimer>(self: &Arc<Self>, target: &Arc<T>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.is_changed = true;
        if !state.is_started {
            state.is_started = true;
            let (timer, target) = (Arc::clone(self), Arc::downgrade(target));
            let thread = thread::Builder::new().name("tollgate-pacer".to_owned());
            // Without a thread, responses still grant what is due; only idle waits would not end.
            state.is_started = thread.spawn(move || timer.run(&target)).is_ok();
        }
        drop(state);
        self.changed.notify_one();
    }

    /// Ends the thread.
    pub(crate) fn stop(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.is_stopped = true;
        drop(state);
        self.changed.notify_one();
    }

    fn run<T: OnTimer>(&self, target: &Weak<T>) {
        loop {
            // The target is not kept alive while the thread waits.
            let Some(wait) = target.upgrade().map(|target| target.fire()) else {
                return;
            };
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            if !state.is_changed && !state.is_stopped {
                state = match wait {
                    Some(wait) => {
                        let waited = self.changed.wait_timeout(state, wait);
                        waited.unwrap_or_else(PoisonError::into_inner).0
                    }
                    None => self
                        .changed
                        .wait(state)
                        .unwrap_or_else(PoisonError::into_inner),
                };
            }
            if state.is_stopped {
                return;
            }
            state.is_changed = false;
        }
    }
}
