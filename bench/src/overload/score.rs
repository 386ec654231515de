//! Judges a run: completions in time against the oracle, when it became stable, and how steady the shed share is.

use super::scenarios::{Scenario, Stage};
use super::simulation::{Run, TimeBucket};

/// Buckets in a second, and in the window that decides whether a run is stable.
const SECOND: usize = 100;
const WINDOW: usize = 10;
/// Stable means at least this part of the attainable throughput.
const STABLE: f64 = 0.95;

/// The score of a run.
#[derive(Clone, Debug)]
pub struct Score {
    /// Requests that were done in time.
    pub good: u64,
    /// Requests that arrived.
    pub arrived: u64,
    /// The part of the critical requests that were done in time.
    pub critical: f64,
    /// The mean latency of good requests, in seconds.
    pub latency: f64,
    /// Stage by stage.
    pub stages: Vec<StageScore>,
}

/// The score of a stage.
#[derive(Clone, Copy, Debug)]
pub struct StageScore {
    /// Good requests against the smaller of demand and capacity.
    pub goodput: f64,
    /// The time until a window of 100 ms has 95 % of the attainable throughput, and the mean of all later ones has it, too.
    /// `None` if that never happens.
    pub stable_after: Option<f64>,
    /// The most that the shed share moves from one second to the next, leaving out the first second.
    pub shed_moves: f64,
    /// The same, if a shed request counts in the second in which it arrived.
    pub shed_moves_by_arrival: f64,
    /// The part of the critical requests that were done in time.
    pub critical: f64,
}

impl Score {
    /// Judges a run.
    #[must_use]
    pub fn new(scenario: &Scenario, run: &Run) -> Self {
        let mut begin = 0.0;
        let stages = scenario.stages.iter().map(|stage| {
            let from = bucket_index(begin);
            begin += stage.seconds;
            let to = bucket_index(begin).min(run.buckets.len());
            StageScore::new(stage, &run.buckets[from..to])
        });
        let stages = stages.collect();
        let all = &run.buckets;
        let good = sum(all, |bucket| bucket.good);
        Self {
            good,
            arrived: sum(all, |bucket| bucket.arrived),
            critical: critical(all),
            latency: all.iter().map(|bucket| bucket.latency).sum::<f64>() / float(good).max(1.0),
            stages,
        }
    }
}

impl StageScore {
    fn new(stage: &Stage, buckets: &[TimeBucket]) -> Self {
        let attainable = stage.demand().min(stage.capacity());
        let good = float(sum(buckets, |bucket| bucket.good));
        Self {
            goodput: good / (attainable * stage.seconds),
            stable_after: stable_after(attainable, buckets),
            shed_moves: most_moved(&shed_shares(buckets, |bucket| bucket.shed)),
            shed_moves_by_arrival: most_moved(&shed_shares(buckets, |bucket| {
                bucket.shed_of_arrived
            })),
            critical: critical(buckets),
        }
    }
}

/// The share of requests that were shed, second by second.
#[must_use]
pub fn shed_shares(buckets: &[TimeBucket], shed: impl Fn(&TimeBucket) -> [u32; 2]) -> Vec<f64> {
    let seconds = buckets.chunks_exact(SECOND).map(|second| {
        let shed = float(sum(second, &shed));
        shed / float(sum(second, |bucket| bucket.arrived)).max(1.0)
    });
    seconds.collect()
}

/// The largest change from one second to the next, leaving out the first second.
fn most_moved(shares: &[f64]) -> f64 {
    let moves = shares.windows(2).skip(1);
    let moves = moves.map(|pair| (pair[1] - pair[0]).abs());
    moves.fold(0.0, f64::max)
}

fn stable_after(attainable: f64, buckets: &[TimeBucket]) -> Option<f64> {
    let least = STABLE * attainable;
    let rate = |part: &[TimeBucket]| {
        float(sum(part, |bucket| bucket.good)) * float(SECOND as u64) / float(part.len() as u64)
    };
    let mut unstable = None;
    let whole_seconds = buckets.len().saturating_sub(SECOND);
    for (index, window) in buckets.windows(WINDOW).enumerate().take(whole_seconds) {
        // A window may be a little low, because the limit is varied; the windows of a second must not.
        let is_low = rate(window) < (2.0 * STABLE - 1.0) * attainable;
        let from_here = &buckets[index..buckets.len().min(index + SECOND)];
        if is_low || rate(from_here) < least {
            unstable = Some(index);
        }
    }
    match unstable {
        None => Some(0.0),
        Some(last) if last + 1 >= whole_seconds => None,
        Some(last) => Some(float(last as u64 + 1) / float(SECOND as u64)),
    }
}

fn critical(buckets: &[TimeBucket]) -> f64 {
    let arrived: u64 = buckets.iter().map(|one| u64::from(one.arrived[0])).sum();
    let good: u64 = buckets
        .iter()
        .map(|one| u64::from(one.good_of_arrived[0]))
        .sum();
    match arrived {
        0 => 1.0,
        _ => float(good) / float(arrived),
    }
}

fn sum(buckets: &[TimeBucket], counts: impl Fn(&TimeBucket) -> [u32; 2]) -> u64 {
    buckets
        .iter()
        .flat_map(|bucket| counts(bucket).map(u64::from))
        .sum()
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a trace has minutes"
)]
fn bucket_index(seconds: f64) -> usize {
    (seconds * float(SECOND as u64)).round() as usize
}

#[expect(
    clippy::cast_precision_loss,
    reason = "counts of a simulation are small"
)]
fn float(count: u64) -> f64 {
    count as f64
}
