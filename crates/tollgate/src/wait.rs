//! Waiting on the calling thread until a limit has room.
//!
//! Must not know: how to sleep, how state is kept.

use std::time::Duration;

use tollgate_core::Nanos;
use tollgate_store::Clock;

use crate::admission::Admission;
use crate::error::Error;
use crate::key::AsKey;
use crate::limiter::Limiter;

impl<C: Clock> Limiter<C> {
    /// Holds the calling thread until one unit is there, but at most `max`. If it is known from the start that `max` is
    /// not enough, answers at once. Nothing is charged unless the answer is yes.
    ///
    /// Threads that wait for one key are not in a line: whoever wakes first goes first.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::Limiter;
    ///
    /// let limiter = Limiter::per_second(1_000).burst(1).build()?;
    /// for _job in 0..5 {
    ///     limiter.wait("jobs", Duration::from_secs(1))?;
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The time is too short, the cost is never admitted, or the key is too long.
    pub fn wait(&self, key: impl AsKey, max: Duration) -> Result<Admission, Error> {
        self.wait_n(key, 1, max)
    }

    /// Like [`wait`](Self::wait), for `cost` units.
    ///
    /// # Errors
    /// The time is too short, the cost is never admitted, or the key is too long.
    pub fn wait_n(&self, key: impl AsKey, cost: u64, max: Duration) -> Result<Admission, Error> {
        let key = key.as_key()?;
        let shared = &*self.shared;
        let deadline = shared.table.memory.now().after(Nanos::from(max));
        loop {
            let (pause, denied) = match shared.spend(&key, cost) {
                Ok(allowed) if allowed.wait().is_zero() => return Ok(allowed),
                // A place in a queue is ours from now on; only the time has to pass.
                Ok(allowed) => {
                    let left = deadline.since(shared.table.memory.now()).into();
                    if allowed.wait() <= left {
                        shared.sleeper.sleep(allowed.wait());
                        return Ok(allowed);
                    }
                    let denied = allowed.to_denial(cost);
                    shared.settle(&key, &allowed, 0)?;
                    return Err(denied.into());
                }
                Err(Error::Denied(denied)) => match denied.retry_after() {
                    Some(pause) => (pause, denied),
                    None => return Err(denied.into()),
                },
                Err(error) => return Err(error),
            };
            let left = deadline.since(shared.table.memory.now()).into();
            if pause > left {
                return Err(denied.into());
            }
            shared
                .sleeper
                .sleep(shared.sleeper.with_jitter(pause).min(left));
        }
    }
}
