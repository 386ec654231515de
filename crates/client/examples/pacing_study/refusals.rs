//! When the refusals of the hidden quota happen, and how many of them follow one of another client.
//!
//! Must not know: how a pacer decides.

use crate::simulation::Outcome;
use crate::{
    DROP, RATE, SECONDS, TABLE_RUNS, TWO_PROCESS_RUNS, hidden_quota, in_parallel, least_fairness,
    mean, paced,
};

/// What a client does in each part of the story.
const SPANS: [(&str, f64, f64); 7] = [
    ("start", 0.0, 20.0),
    ("measuring", 20.0, 60.0),
    ("held rate", 60.0, DROP.from),
    ("reduction", DROP.from, DROP.from + 5.0),
    ("looks", DROP.from + 5.0, DROP.to),
    ("return", DROP.to, DROP.to + 40.0),
    ("held rate", DROP.to + 40.0, SECONDS),
];
/// A refusal so many seconds after one of another client has the same cause.
const SAME_CAUSE: f64 = 0.25;

/// Prints the means of so many runs, from this seed.
pub(crate) fn print(runs: Option<u64>, seed: u64) {
    for (processes, table_runs) in [(2, TWO_PROCESS_RUNS), (50, TABLE_RUNS)] {
        let count = runs.unwrap_or(table_runs);
        let run = |seed| hidden_quota(processes, seed, &paced());
        let outcomes = in_parallel(seed..seed + count, run);
        println!(
            "{processes} processes, {count} runs: used {:.1}%, refused {:.1} ({:.2} each), recovery {:.1}s, fairness {:.3}, at least {:.3}",
            mean(&outcomes, |run| run.utilization(SECONDS)) * 100.0,
            mean(&outcomes, |run| run.total_refused() as f64),
            mean(&outcomes, |run| run.total_refused() as f64) / f64::from(processes),
            mean(&outcomes, |run| run.recovery(DROP.to, RATE)),
            mean(&outcomes, Outcome::fairness),
            least_fairness(&outcomes),
        );
        println!("                         refused  of them after another client");
        for (name, from, to) in SPANS {
            let refused = mean(&outcomes, |run| count_between(run, from, to, false));
            let following = mean(&outcomes, |run| count_between(run, from, to, true));
            println!("{name:<10} {from:>4} s to {to:>3} s {refused:>8.2} {following:>9.2}");
        }
    }
}

/// Refusals in a time span; only those that follow one of another client, if that is asked for.
fn count_between(run: &Outcome, from: f64, to: f64, following: bool) -> f64 {
    let mut count = 0;
    for (index, (at, client)) in run.refusals.iter().enumerate() {
        let previous = index.checked_sub(1).map(|index| run.refusals[index]);
        let is_following = previous.is_some_and(|(previous_at, previous_client)| {
            previous_client != *client && at - previous_at < SAME_CAUSE
        });
        count += u32::from((from..to).contains(at) && (is_following || !following));
    }
    f64::from(count)
}
