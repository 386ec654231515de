//! A histogram of durations with fixed buckets.
//!
//! Must not know: what is measured, how it is exposed.

use tollgate_core::Nanos;

use tollgate_engine::ShardedCounters;

/// The upper bounds of buckets in nanoseconds, and as text in seconds. A decision takes microseconds, so most buckets are
/// there; the last ones are for slow requests.
pub(super) const LATENCY_BUCKETS: [(u64, &str); 15] = [
    (1_000, "1e-06"),
    (2_500, "2.5e-06"),
    (5_000, "5e-06"),
    (10_000, "1e-05"),
    (25_000, "2.5e-05"),
    (50_000, "5e-05"),
    (100_000, "0.0001"),
    (250_000, "0.00025"),
    (500_000, "0.0005"),
    (1_000_000, "0.001"),
    (2_500_000, "0.0025"),
    (5_000_000, "0.005"),
    (10_000_000, "0.01"),
    (100_000_000, "0.1"),
    (1_000_000_000, "1.0"),
];

/// The same for waits before admission, which take milliseconds to minutes.
pub(super) const WAIT_BUCKETS: [(u64, &str); 9] = [
    (10_000_000, "0.01"),
    (50_000_000, "0.05"),
    (100_000_000, "0.1"),
    (500_000_000, "0.5"),
    (1_000_000_000, "1.0"),
    (5_000_000_000, "5.0"),
    (10_000_000_000, "10.0"),
    (30_000_000_000, "30.0"),
    (60_000_000_000, "60.0"),
];

/// Durations, counted by bucket. `N` is the number of bounds plus two: one counter for longer durations, one for the
/// sum.
#[derive(Debug)]
pub(super) struct Histogram<const N: usize> {
    ends: &'static [(u64, &'static str)],
    counters: ShardedCounters<N>,
}

/// The values of a histogram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HistogramSnapshot {
    /// Each upper bound as text, and the number of durations up to it.
    pub(super) cumulative: Vec<(&'static str, u64)>,
    /// The number of durations.
    pub(super) count: u64,
    /// Their sum in nanoseconds.
    pub(super) sum: u64,
}

impl<const N: usize> Histogram<N> {
    pub(super) fn new(ends: &'static [(u64, &'static str)]) -> Self {
        debug_assert_eq!(ends.len().saturating_add(2), N);
        Self {
            ends,
            counters: ShardedCounters::new(),
        }
    }

    /// Records a duration `times` times: each request of a batch takes as long as the batch.
    #[inline]
    pub(super) fn observe(&self, span: Nanos, times: u64) {
        let nanos = span.as_nanos();
        let bucket = self.ends.partition_point(|(end, _)| *end < nanos);
        self.counters.add(bucket, times);
        self.counters
            .add(N.saturating_sub(1), nanos.saturating_mul(times));
    }

    pub(super) fn read(&self) -> HistogramSnapshot {
        let sums = self.counters.read();
        let (sum, buckets) = sums.split_last().unwrap_or((&0, &[]));
        let mut count = 0_u64;
        let mut up_to = Vec::with_capacity(self.ends.len());
        for (index, bucket) in buckets.iter().enumerate() {
            count = count.saturating_add(*bucket);
            if let Some((_, text)) = self.ends.get(index) {
                up_to.push((*text, count));
            }
        }
        HistogramSnapshot {
            cumulative: up_to,
            count,
            sum: *sum,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENDS: &[(u64, &str)] = &[(10, "ten"), (20, "twenty")];

    #[test]
    fn an_upper_bound_belongs_to_its_bucket_and_buckets_are_cumulative() {
        let histogram = Histogram::<4>::new(ENDS);
        for nanos in [0, 10, 11, 20, 21, u64::MAX >> 1] {
            histogram.observe(Nanos::from_nanos(nanos), 1);
        }
        let spans = histogram.read();
        assert_eq!(spans.cumulative, [("ten", 2), ("twenty", 4)]);
        assert_eq!(spans.count, 6);
        assert_eq!(spans.sum, 62 + (u64::MAX >> 1));
    }

    #[test]
    fn each_request_of_a_batch_takes_as_long_as_the_batch() {
        let histogram = Histogram::<4>::new(ENDS);
        histogram.observe(Nanos::from_nanos(15), 16);
        let spans = histogram.read();
        assert_eq!((spans.count, spans.sum), (16, 240));
        assert_eq!(spans.cumulative, [("ten", 0), ("twenty", 16)]);
    }

    #[test]
    fn upper_bounds_increase_and_match_their_text_in_seconds() {
        for ends in [&LATENCY_BUCKETS[..], &WAIT_BUCKETS[..]] {
            assert!(ends.is_sorted_by(|one, next| one.0 < next.0));
            for (nanos, text) in ends {
                let seconds: f64 = text.parse().unwrap();
                let span = std::time::Duration::try_from_secs_f64(seconds).unwrap();
                assert_eq!(span.as_nanos(), u128::from(*nanos), "{text}");
            }
        }
    }
}
