//! `wait`: blocks the calling thread until a limit admits.
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
    /// Blocks the calling thread until one unit is available, for at most `max`. Returns an error at once if `max` is too
    /// short. Charges nothing unless it returns `Ok`.
    ///
    /// Threads that wait for the same key are not queued: the first thread that wakes up goes first.
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
    /// `max` is too short, a limit of zero never admits, or the key is too long.
    pub fn wait(&self, key: impl AsKey, max: Duration) -> Result<Admission, Error> {
        self.wait_n(key, 1, max)
    }

    /// Like [`wait`](Self::wait), for `cost` units.
    ///
    /// # Errors
    /// `max` is too short, the cost exceeds what a limit ever admits, or the key is too long.
    pub fn wait_n(&self, key: impl AsKey, cost: u64, max: Duration) -> Result<Admission, Error> {
        let key = key.as_key()?;
        let shared = &*self.shared;
        let deadline = shared.table.memory.now().after(Nanos::from(max));
        loop {
            let (pause, denial) = match shared.spend(&key, cost) {
                Ok(admission) if admission.wait().is_zero() => return Ok(admission),
                // The charge is made. The caller only has to wait for its slot in the queue.
                Ok(admission) => {
                    let left = deadline.since(shared.table.memory.now()).into();
                    if admission.wait() <= left {
                        shared.sleeper.sleep(admission.wait());
                        return Ok(admission);
                    }
                    let denial = admission.to_denial(cost);
                    shared.settle(&key, &admission, 0)?;
                    return Err(denial.into());
                }
                Err(Error::Denied(denial)) => match denial.retry_after() {
                    Some(pause) => (pause, denial),
                    None => return Err(denial.into()),
                },
                Err(error) => return Err(error),
            };
            let left = deadline.since(shared.table.memory.now()).into();
            if pause > left {
                return Err(denial.into());
            }
            shared
                .sleeper
                .sleep(shared.sleeper.with_jitter(pause).min(left));
        }
    }
}
