//! Measures the request rate of a client's bucket from its reports.
//!
//! Must not know: limits, shares.

use tollgate_core::Nanos;

/// Rates are stored in millionths of a request per second.
const MILLIONTHS: u128 = 1_000_000;
/// Shorter reports are accumulated: the first report of a bucket has an elapsed time of zero.
const MIN_REPORT_SPAN: Nanos = Nanos::SECOND;

/// The request rate of a bucket.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DemandMeter {
    millionths: u64,
    requests: u64,
    elapsed: Nanos,
}

impl DemandMeter {
    /// Records the requests of a report. Returns whether there is a new rate.
    pub(super) fn record(&mut self, requests: u64, elapsed: Nanos) -> bool {
        self.requests = self.requests.saturating_add(requests);
        self.elapsed = self.elapsed.saturating_add(elapsed);
        if self.elapsed < MIN_REPORT_SPAN {
            return false;
        }
        let in_a_second = u128::from(self.requests)
            .saturating_mul(MILLIONTHS)
            .saturating_mul(Nanos::SECOND.as_nanos().into())
            / u128::from(self.elapsed.as_nanos());
        self.millionths = u64::try_from(in_a_second).unwrap_or(u64::MAX);
        (self.requests, self.elapsed) = (0, Nanos::ZERO);
        true
    }

    /// The requests in a window at the current rate, rounded up.
    pub(super) fn in_window(&self, window: Nanos) -> u64 {
        let units = u128::from(self.millionths)
            .saturating_mul(window.as_nanos().into())
            .div_ceil(MILLIONTHS * u128::from(Nanos::SECOND.as_nanos()));
        u64::try_from(units).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_that_of_the_last_report() {
        let mut demand = DemandMeter::default();
        let five = Nanos::from_secs(5);
        assert!(demand.record(501, five));
        assert_eq!(demand.in_window(Nanos::SECOND), 101);
        assert!(demand.record(0, five));
        assert_eq!(demand.in_window(Nanos::SECOND), 0);
        assert!(demand.record(1_000, five));
        assert_eq!(demand.in_window(Nanos::MINUTE), 12_000);
    }

    #[test]
    fn a_report_without_elapsed_time_is_added_to_the_next() {
        let mut demand = DemandMeter::default();
        assert!(!demand.record(1, Nanos::ZERO));
        assert_eq!(demand.in_window(Nanos::HOUR), 0);
        assert!(demand.record(9, Nanos::from_secs(5)));
        assert_eq!(demand.in_window(Nanos::SECOND), 2);
    }

    #[test]
    fn extreme_values_saturate() {
        let mut demand = DemandMeter::default();
        assert!(demand.record(u64::MAX, Nanos::SECOND));
        assert_eq!(demand.in_window(Nanos::SECOND), u64::MAX / 1_000_000 + 1);
        assert!(demand.record(u64::MAX, Nanos::MAX));
        assert!(demand.record(1, Nanos::MAX));
        assert_eq!(demand.in_window(Nanos::MAX), 0);
    }
}
