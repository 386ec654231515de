//! The machine's monotonic clock: it never goes back, and all processes of one machine read the same, so that what they wrote
//! down can be put in one order.
//!
//! Must not know: what is timed.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds since the machine began to count.
#[must_use]
pub fn monotonic() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(now.tv_nsec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(nanos)
}

/// Time that has passed since an instant of [`monotonic`].
#[must_use]
pub fn since(began: u64) -> Duration {
    Duration::from_nanos(monotonic().saturating_sub(began))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_never_goes_back() {
        let mut last = monotonic();
        for _ in 0..1_000 {
            let now = monotonic();
            assert!(now >= last);
            last = now;
        }
        assert!(since(last) < Duration::from_secs(60));
    }
}
