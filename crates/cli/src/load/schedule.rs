//! When requests are due: at equal or random distances, in steps, or as a log recorded them.
//!
//! Pure: an iterator of instants, counted from the beginning of the run. Must not know: clocks, requests that are under way.

use std::time::Duration;

/// A rate for a while.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Step {
    /// The mean distance between two requests in nanoseconds, above 0.
    interval: f64,
    length: Duration,
}

impl Step {
    pub(super) const fn new(interval: f64, length: Duration) -> Self {
        Self { interval, length }
    }
}

/// How instants are spread over a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrivals {
    Even,
    Poisson { seed: u64 },
}

/// What is sent at an instant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DueRequest {
    pub(super) at: Duration,
    /// The line of a log, if one is replayed.
    pub(super) line: Option<LogRequest>,
}

/// A request of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LogRequest {
    pub(super) method: String,
    pub(super) path: String,
}

/// All requests of a run in the order of their instants.
#[derive(Debug)]
pub(super) struct Schedule {
    length: Duration,
    expected: u64,
    source: Source,
}

#[derive(Debug)]
enum Source {
    Steps {
        steps: std::vec::IntoIter<Step>,
        current: Option<(Duration, Step)>,
        /// The next instant within the current step, in nanoseconds.
        next: f64,
        random: Option<ExponentialRandom>,
    },
    Log(std::vec::IntoIter<DueRequest>),
}

impl Schedule {
    pub(super) fn from_steps(steps: Vec<Step>, arrivals: Arrivals) -> Self {
        let lengths = steps.iter().map(|step| step.length);
        let length = lengths.fold(Duration::ZERO, Duration::saturating_add);
        let requests = steps.iter().map(expected_requests);
        let expected = requests.fold(0, u64::saturating_add);
        Self {
            length,
            expected,
            source: Source::Steps {
                steps: steps.into_iter(),
                current: None,
                next: 0.0,
                random: match arrivals {
                    Arrivals::Even => None,
                    Arrivals::Poisson { seed } => Some(ExponentialRandom::new(seed)),
                },
            },
        }
    }

    /// The requests of a log, in the order of their instants.
    pub(super) fn from_log(requests: Vec<DueRequest>) -> Self {
        Self {
            length: requests.last().map_or(Duration::ZERO, |last| last.at),
            expected: u64::try_from(requests.len()).unwrap_or(u64::MAX),
            source: Source::Log(requests.into_iter()),
        }
    }

    /// How long the run takes.
    pub(super) const fn length(&self) -> Duration {
        self.length
    }

    /// About how many requests are due; exactly, unless instants are random.
    pub(super) const fn expected_requests(&self) -> u64 {
        self.expected
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a float beyond u64 becomes its largest value, and the run is refused"
)]
fn expected_requests(step: &Step) -> u64 {
    (nanos(step.length) / step.interval).ceil() as u64
}

impl Iterator for Schedule {
    type Item = DueRequest;

    fn next(&mut self) -> Option<DueRequest> {
        let (steps, current, next, random) = match &mut self.source {
            Source::Log(requests) => return requests.next(),
            Source::Steps {
                steps,
                current,
                next,
                random,
            } => (steps, current, next, random),
        };
        loop {
            if let Some((begin, step)) = *current
                && *next < nanos(step.length)
            {
                let at = begin + from_nanos(*next);
                *next += distance(random.as_mut(), step.interval);
                return Some(DueRequest { at, line: None });
            }
            let begin = current.map_or(Duration::ZERO, |(begin, step)| begin + step.length);
            let step = steps.next()?;
            // Even distances begin with the step; random ones have no memory, so the first is random too.
            *next = match random {
                Some(_) => distance(random.as_mut(), step.interval),
                None => 0.0,
            };
            *current = Some((begin, step));
        }
    }
}

/// The distance to the next request.
fn distance(random: Option<&mut ExponentialRandom>, interval: f64) -> f64 {
    match random {
        Some(random) => random.next() * interval,
        None => interval,
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a run of hours needs no more digits"
)]
fn nanos(duration: Duration) -> f64 {
    duration.as_nanos() as f64
}

fn from_nanos(nanos: f64) -> Duration {
    Duration::from_secs_f64(nanos / 1e9)
}

/// Exponentially distributed numbers with mean 1: the distances of a Poisson process.
#[derive(Debug)]
struct ExponentialRandom(u64);

impl ExponentialRandom {
    const fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> f64 {
        // SplitMix64: small, and the same numbers on every machine.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        // 53 bits between 0 and 1, never 0, so that the logarithm exists.
        #[expect(clippy::cast_precision_loss, reason = "53 bits fit into a float")]
        let uniform = ((mixed >> 11) as f64 + 1.0) / 9_007_199_254_740_993.0;
        -uniform.ln()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instants(schedule: Schedule) -> Vec<Duration> {
        schedule.map(|request| request.at).collect()
    }

    #[test]
    fn even_requests_have_equal_distances_and_steps_follow_each_other() {
        let steps = vec![
            Step::new(100e6, Duration::from_millis(300)),
            Step::new(50e6, Duration::from_millis(100)),
        ];
        let schedule = Schedule::from_steps(steps, Arrivals::Even);
        assert_eq!(schedule.length(), Duration::from_millis(400));
        assert_eq!(schedule.expected_requests(), 5);
        let millis = [0, 100, 200, 300, 350].map(Duration::from_millis);
        assert_eq!(instants(schedule), millis);
    }

    #[test]
    fn a_poisson_process_has_the_rate_and_the_spread_of_one() {
        let steps = vec![Step::new(1e6, Duration::from_secs(100))];
        let instants = instants(Schedule::from_steps(
            steps.clone(),
            Arrivals::Poisson { seed: 7 },
        ));
        assert!(instants.is_sorted());
        // 100,000 are expected; the standard deviation of a Poisson count is its root, 316.
        assert!(
            instants.len().abs_diff(100_000) < 1_600,
            "{}",
            instants.len()
        );
        // Distances above the mean are a share of 1/e of all; equal distances would have none.
        let long = instants
            .windows(2)
            .filter(|pair| pair[1] - pair[0] > Duration::from_millis(1));
        let share = long.count() as f64 / instants.len() as f64;
        assert!((share - 0.3679).abs() < 0.01, "{share}");
        let again: Vec<Duration> = Schedule::from_steps(steps, Arrivals::Poisson { seed: 7 })
            .map(|request| request.at)
            .collect();
        assert_eq!(instants, again);
    }

    /// Two rates that are too high ended the program with an overflow, where one was refused.
    #[test]
    fn too_many_requests_in_several_steps_are_as_many_as_in_one() {
        let step = Step::new(1e-10, Duration::MAX);
        let schedule = Schedule::from_steps(vec![step; 3], Arrivals::Even);
        assert_eq!(schedule.expected_requests(), u64::MAX);
        assert_eq!(schedule.length(), Duration::MAX);
    }

    #[test]
    fn no_step_and_an_empty_log_send_nothing() {
        let no_step = Schedule::from_steps(Vec::new(), Arrivals::Even);
        assert_eq!(no_step.count(), 0);
        assert_eq!(Schedule::from_log(Vec::new()).count(), 0);
    }
}
