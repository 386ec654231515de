//! Counts and latencies of a run.
//!
//! Must not know: how requests are sent, how results are shown.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;

use crate::http_client::RequestFailure;

/// Three digits of every latency are kept.
const DIGITS: u8 = 3;
/// The longest latency that is told apart from longer ones: a day, which no request reaches.
const MAX_MICROS: u64 = 86_400_000_000;

/// How a request ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    /// When it was due, from the beginning of the run.
    pub(super) due: Duration,
    pub(super) sent: Duration,
    pub(super) done: Duration,
    /// The status, or why there is none.
    pub(super) outcome: Result<u16, RequestFailure>,
}

/// The kinds of responses that a limited server gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ResponseClass {
    /// 1xx to 3xx.
    Admitted,
    /// 429: this client sent too much.
    Limited,
    /// 503: the server has too much to do.
    Shed,
    /// Every other status.
    Other,
}

impl ResponseClass {
    pub(super) const ALL: [Self; 4] = [Self::Admitted, Self::Limited, Self::Shed, Self::Other];

    const fn of_status(status: u16) -> Self {
        match status {
            ..400 => Self::Admitted,
            429 => Self::Limited,
            503 => Self::Shed,
            _ => Self::Other,
        }
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Admitted => "admitted",
            Self::Limited => "limited",
            Self::Shed => "shed",
            Self::Other => "other",
        }
    }
}

/// Latencies in microseconds. An empty one has no quantiles.
#[derive(Debug)]
pub(super) struct Latencies(Option<Histogram<u64>>);

impl Default for Latencies {
    fn default() -> Self {
        // It fails only for digits above 5 and for bounds in the wrong order. It takes about 220 KiB.
        Self(Histogram::new_with_bounds(1, MAX_MICROS, DIGITS).ok())
    }
}

impl Latencies {
    fn record(&mut self, latency: Duration) {
        let micros = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
        if let Some(histogram) = &mut self.0 {
            histogram.saturating_record(micros.max(1));
        }
    }

    pub(super) fn count(&self) -> u64 {
        self.0.as_ref().map_or(0, Histogram::len)
    }

    /// The latency that this share of requests did not exceed.
    pub(super) fn quantile(&self, share: f64) -> Option<Duration> {
        let histogram = self.0.as_ref().filter(|histogram| !histogram.is_empty())?;
        Some(Duration::from_micros(histogram.value_at_quantile(share)))
    }

    fn clear(&mut self) {
        if let Some(histogram) = &mut self.0 {
            histogram.reset();
        }
    }
}

/// One second of the run, by when requests ended.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct SecondRow {
    pub(super) by_class: BTreeMap<ResponseClass, u64>,
    pub(super) failed: u64,
    pub(super) p50: Option<Duration>,
    pub(super) p99: Option<Duration>,
}

/// Everything that was measured.
#[derive(Debug, Default)]
pub(super) struct Measurements {
    next_number: u64,
    /// Requests that were given up because the run was interrupted.
    pub(super) unsent: u64,
    pub(super) is_interrupted: bool,
    pub(super) statuses: BTreeMap<u16, u64>,
    pub(super) failures: BTreeMap<&'static str, u64>,
    pub(super) latencies: BTreeMap<ResponseClass, Latencies>,
    /// How long after its instant each request was sent: the part of a latency that the generator itself added.
    pub(super) send_delays: Latencies,
    pub(super) rows: Vec<SecondRow>,
    current: SecondRow,
    current_latencies: Latencies,
    pub(super) length: Duration,
}

impl Measurements {
    /// The number of the next request.
    pub(super) const fn next_number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    pub(super) const fn sent(&self) -> u64 {
        self.next_number
    }

    pub(super) fn count(&self, class: ResponseClass) -> u64 {
        self.latencies.get(&class).map_or(0, Latencies::count)
    }

    pub(super) fn failed(&self) -> u64 {
        self.failures.values().sum()
    }

    pub(super) fn record(&mut self, sample: Sample) {
        self.close_rows(sample.done.as_secs());
        self.send_delays
            .record(sample.sent.saturating_sub(sample.due));
        let latency = sample.done.saturating_sub(sample.due);
        match sample.outcome {
            Ok(status) => {
                let class = ResponseClass::of_status(status);
                *self.statuses.entry(status).or_default() += 1;
                self.latencies.entry(class).or_default().record(latency);
                self.current_latencies.record(latency);
                *self.current.by_class.entry(class).or_default() += 1;
            }
            Err(failure) => {
                *self.failures.entry(failure.name()).or_default() += 1;
                self.current.failed += 1;
            }
        }
    }

    /// Records that the run is interrupted, and how many requests are given up.
    pub(super) fn interrupt(&mut self, unsent: usize) {
        self.is_interrupted = true;
        self.unsent = u64::try_from(unsent).unwrap_or(u64::MAX);
    }

    pub(super) fn end(&mut self, length: Duration) {
        self.length = length;
        self.close_rows(length.as_secs());
        if self.current != SecondRow::default() {
            self.close_rows(length.as_secs() + 1);
        }
    }

    /// Closes the rows of all seconds before this one.
    fn close_rows(&mut self, second: u64) {
        let second = usize::try_from(second).unwrap_or(usize::MAX);
        while self.rows.len() < second {
            let mut row = std::mem::take(&mut self.current);
            row.p50 = self.current_latencies.quantile(0.5);
            row.p99 = self.current_latencies.quantile(0.99);
            self.current_latencies.clear();
            self.rows.push(row);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(due: u64, done: u64, outcome: Result<u16, RequestFailure>) -> Sample {
        Sample {
            due: Duration::from_millis(due),
            sent: Duration::from_millis(due + 1),
            done: Duration::from_millis(done),
            outcome,
        }
    }

    /// Coordinated omission: a server that stalls for two seconds makes every request wait that was due meanwhile.
    #[test]
    fn latency_counts_from_when_a_request_was_due() {
        let mut measurements = Measurements::default();
        for due in [0, 500, 1_000, 1_500] {
            measurements.record(sample(due, 2_000, Ok(200)));
        }
        measurements.end(Duration::from_secs(2));
        let admitted = &measurements.latencies[&ResponseClass::Admitted];
        let millis = |share| admitted.quantile(share).unwrap().as_millis();
        assert_eq!((millis(0.25), millis(0.75)), (500, 1_500));
        assert!((1_999..=2_001).contains(&millis(1.0)));
        assert_eq!(
            measurements.send_delays.quantile(1.0),
            Some(Duration::from_millis(1))
        );
    }

    #[test]
    fn limited_and_shed_requests_are_counted_apart_in_the_second_in_which_they_ended() {
        let mut measurements = Measurements::default();
        for (done, outcome) in [
            (100, Ok(204)),
            (200, Ok(429)),
            (2_100, Ok(503)),
            (2_200, Ok(500)),
            (2_300, Err(RequestFailure::Timeout)),
        ] {
            measurements.record(sample(0, done, outcome));
        }
        measurements.end(Duration::from_millis(2_300));
        for class in ResponseClass::ALL {
            assert_eq!(measurements.count(class), 1, "{class:?}");
        }
        assert_eq!(measurements.failed(), 1);
        let per_second: Vec<u64> = measurements
            .rows
            .iter()
            .map(|row| row.by_class.values().sum::<u64>() + row.failed)
            .collect();
        assert_eq!(per_second, [2, 0, 3]);
        assert_eq!(
            measurements.rows[1].p99, None,
            "no response ended in that second"
        );
    }
}
