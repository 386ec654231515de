//! When an idle reserve is lent: for a tenth of the time, so that the concurrency limit stays in use and can be measured.
//!
//! A reserve keeps requests below the limit, and a limit that is not in use cannot be measured. Without loans a limit that was
//! learned in a bad time would last for ever while only other classes send. Must not know: who borrows, how much is reserved.

use tollgate_core::{Nanos, Timestamp};

/// A loan lasts for this many latencies: a phase of the search takes two to five.
const LATENCIES: u64 = 10;
const SHORTEST: Nanos = Nanos::from_millis(100);
/// One loan in this many of its lengths.
const PERIOD: u64 = 10;

/// The loans of one reserve.
///
/// ```
/// use tollgate_core::{Nanos, Timestamp};
/// use tollgate_overload::ReserveLoan;
///
/// let latency = Nanos::from_millis(50);
/// let mut loan = ReserveLoan::new(Timestamp::from_secs(1));
/// assert!(!loan.is_lent(Timestamp::from_secs(1), latency));
/// assert!(loan.is_lent(Timestamp::from_secs(6), latency));
/// assert!(!loan.is_lent(Timestamp::from_secs(7), latency));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct ReserveLoan {
    /// When the last loan ends.
    end: Timestamp,
}

impl ReserveLoan {
    /// A reserve that is first lent some time after `now`.
    #[must_use]
    pub const fn new(now: Timestamp) -> Self {
        Self { end: now }
    }

    /// Whether the reserve is lent now. To be asked when a request needs it; `latency` is that of the upstream.
    pub fn is_lent(&mut self, now: Timestamp, latency: Nanos) -> bool {
        let length = times(latency, LATENCIES).max(SHORTEST);
        if now >= self.end.after(times(length, PERIOD - 1)) {
            self.end = now.after(length);
        }
        // A clock that went back makes no loan longer.
        now < self.end && self.end.since(now) <= length
    }
}

const fn times(span: Nanos, factor: u64) -> Nanos {
    Nanos::from_nanos(span.as_nanos().saturating_mul(factor))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_lent_a_tenth_of_the_time_also_with_strange_times() {
        let mut loan = ReserveLoan::new(Timestamp::EPOCH);
        let at = |millis| Timestamp::EPOCH.after(Nanos::from_millis(millis));
        let latency = Nanos::from_millis(50);
        let lent = (0..50_000).filter(|millis| loan.is_lent(at(*millis), latency));
        assert_eq!(lent.count(), 5_000);
        // Nothing is shorter than 100 ms.
        let mut loan = ReserveLoan::new(Timestamp::EPOCH);
        let lent = (0..10_000).filter(|millis| loan.is_lent(at(*millis), Nanos::ZERO));
        assert_eq!(lent.count(), 1_000);
        let mut loan = ReserveLoan::new(at(1_000_000));
        assert!(loan.is_lent(at(2_000_000), latency));
        assert!(!loan.is_lent(at(0), latency), "the clock went back");
        assert!(!loan.is_lent(at(3_000_000), Nanos::MAX));
    }
}
