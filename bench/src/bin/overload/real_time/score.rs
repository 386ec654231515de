//! What became of the requests of one contender, as the columns of a table.
//!
//! Must not know: clocks, who answered.

use std::time::Duration;

use tollgate_bench::overload::DEADLINE;

use super::ratio;

/// What became of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The response of the upstream, so long after the request was due.
    Served(Duration),
    /// Status 503: it was shed.
    Refused,
    /// Another status, no response, or no connection.
    Failed,
}

/// The score of one contender.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct RealTimeScore {
    good: u64,
    refused: u64,
    late_or_failed: u64,
    /// The mean latency of the good responses.
    latency: Duration,
}

impl RealTimeScore {
    pub(super) fn new(outcomes: &[Outcome]) -> Self {
        let deadline = Duration::from_nanos(DEADLINE.as_nanos());
        let mut score = Self {
            good: 0,
            refused: 0,
            late_or_failed: 0,
            latency: Duration::ZERO,
        };
        let mut sum = Duration::ZERO;
        for outcome in outcomes {
            match outcome {
                Outcome::Served(latency) if *latency <= deadline => {
                    score.good += 1;
                    sum += *latency;
                }
                Outcome::Refused => score.refused += 1,
                Outcome::Served(_) | Outcome::Failed => score.late_or_failed += 1,
            }
        }
        score.latency = sum / u32::try_from(score.good.max(1)).unwrap_or(u32::MAX);
        score
    }

    /// The part of all requests that was done in time.
    pub(super) fn good_part(&self) -> f64 {
        ratio(self.good, self.all())
    }

    /// The columns behind the name. `part` is that of the oracle's good responses.
    pub(super) fn columns(&self, part: f64) -> String {
        let percent = |count| 100.0 * ratio(count, self.all());
        format!(
            "{} of {} | {:.1} % | {} ms | {:.1} % | {:.1} %",
            self.good,
            self.all(),
            100.0 * part,
            self.latency.as_millis(),
            percent(self.refused),
            percent(self.late_or_failed)
        )
    }

    const fn all(&self) -> u64 {
        self.good + self.refused + self.late_or_failed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn responses_after_the_deadline_are_not_good_and_do_not_count_for_the_latency() {
        let millis = |millis| Outcome::Served(Duration::from_millis(millis));
        let outcomes = [
            millis(100),
            millis(300),
            millis(301),
            millis(9_000),
            Outcome::Refused,
            Outcome::Refused,
            Outcome::Refused,
            Outcome::Failed,
        ];
        let score = RealTimeScore::new(&outcomes);
        assert_eq!(
            score.columns(0.5),
            "2 of 8 | 50.0 % | 200 ms | 37.5 % | 37.5 %"
        );
        assert!((score.good_part() - 0.25).abs() < 1e-9);
    }

    #[test]
    fn no_request_is_no_score() {
        let score = RealTimeScore::new(&[]);
        assert_eq!(score.columns(0.0), "0 of 0 | 0.0 % | 0 ms | 0.0 % | 0.0 %");
    }
}
