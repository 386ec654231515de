//! How much the study depends on its random numbers: the median and the worst of several seeds.
//!
//! Must not know: how a trace is made or judged.

use tollgate_bench::overload::{ControllerKind, Scenario, Score, StageScore, run, shed_shares};

use super::line;

/// The seeds are 1 to this.
const SEEDS: u64 = 10;

/// The median and the worst of some numbers, as text.
struct Spread {
    median: String,
    worst: String,
}

impl Spread {
    /// `values` in any order.
    fn new(values: &[f64], is_more_better: bool, text: impl Fn(f64) -> String) -> Self {
        let mut values = values.to_vec();
        values.sort_by(f64::total_cmp);
        if is_more_better {
            values.reverse();
        }
        // The worse of the two in the middle, so that the number is one of a run.
        let median = values.get(values.len() / 2).copied();
        let worst = values.last().copied();
        let text = |value: Option<f64>| value.map_or_else(String::new, &text);
        Self {
            median: text(median),
            worst: text(worst),
        }
    }
}

/// Our score and that of the oracle, for each seed.
fn scores(scenario: &Scenario) -> Vec<[Score; 2]> {
    let seeds = (1..=SEEDS).map(|seed| {
        let mut scenario = scenario.clone();
        scenario.seed = seed;
        [ControllerKind::Ours, ControllerKind::Oracle]
            .map(|kind| Score::new(&scenario, &run(&scenario, kind)))
    });
    seeds.collect()
}

/// Traces whose service time or demand changes slowly.
pub(super) fn changing_service(scenarios: &[Scenario]) -> String {
    let mut table = table_head(
        "trace, 10 seeds",
        &[
            "of the oracle",
            "shed share moves",
            "by arrival",
            "the oracle's moves",
            "by arrival",
        ],
    );
    for scenario in scenarios {
        let scores = scores(scenario);
        let parts = collect(&scores, |[ours, oracle]| {
            ours.good as f64 / oracle.good as f64
        });
        let moves = |score_of: fn(&[Score; 2]) -> &Score, read: fn(&StageScore) -> f64| {
            let moves = collect(&scores, |both| {
                let moves = score_of(both).stages.iter().map(read);
                moves.fold(0.0, f64::max)
            });
            Spread::new(&moves, false, |part| percent(part, 1))
        };
        let spreads = [
            Spread::new(&parts, true, |part| percent(part, 1)),
            moves(|[ours, _]| ours, |stage| stage.shed_moves),
            moves(|[ours, _]| ours, |stage| stage.shed_moves_by_arrival),
            moves(|[_, oracle]| oracle, |stage| stage.shed_moves),
            moves(|[_, oracle]| oracle, |stage| stage.shed_moves_by_arrival),
        ];
        row(&mut table, &scenario.name, &spreads);
    }
    table
}

/// Steps of demand.
pub(super) fn load_steps(scenarios: &[Scenario]) -> String {
    let mut table = table_head(
        "demand, 10 seeds",
        &[
            "goodput",
            "critical in time",
            "stable after",
            "shed share moves",
            "by arrival",
        ],
    );
    for scenario in scenarios {
        let scores = scores(scenario);
        let step = |read: fn(&StageScore) -> f64| {
            collect(&scores, |[ours, _]| {
                ours.stages.get(1).map_or(f64::NAN, read)
            })
        };
        let stable = |after: f64| match after.is_finite() {
            true => format!("{:.0} ms", 1e3 * after),
            false => "never".to_owned(),
        };
        let moves = |part| percent(part, 2);
        let spreads = [
            Spread::new(&step(|step| step.goodput), true, |part| percent(part, 1)),
            Spread::new(&step(|step| step.critical), true, |part| percent(part, 2)),
            Spread::new(
                &step(|step| step.stable_after.unwrap_or(f64::INFINITY)),
                false,
                stable,
            ),
            Spread::new(&step(|step| step.shed_moves), false, moves),
            Spread::new(&step(|step| step.shed_moves_by_arrival), false, moves),
        ];
        row(&mut table, &scenario.name, &spreads);
    }
    table
}

/// The shed share of some seconds, second by second.
pub(super) fn seconds(scenario: &Scenario, seconds: std::ops::Range<usize>) -> String {
    let mut table = String::from(
        "| second of gcl | tollgate sheds | by arrival | the oracle sheds | by arrival |\n|---|---|---|---|---|\n",
    );
    let [ours, oracle] = [ControllerKind::Ours, ControllerKind::Oracle].map(|kind| {
        let buckets = run(scenario, kind).buckets;
        [
            shed_shares(&buckets, |bucket| bucket.shed),
            shed_shares(&buckets, |bucket| bucket.shed_of_arrived),
        ]
    });
    for second in seconds {
        let shares = [&ours, &oracle].into_iter().flatten();
        let shares = shares.map(|shares| percent(shares.get(second).copied().unwrap_or(0.0), 1));
        let shares: Vec<String> = shares.collect();
        line(
            &mut table,
            &format!("| {second} | {} |", shares.join(" | ")),
        );
    }
    table
}

/// Two columns for each spread.
fn table_head(first: &str, spreads: &[&str]) -> String {
    let columns: Vec<String> = spreads
        .iter()
        .map(|spread| format!("{spread}: median | worst"))
        .collect();
    let rule = "---|".repeat(2 * spreads.len() + 1);
    format!("| {first} | {} |\n|{rule}\n", columns.join(" | "))
}

fn row(table: &mut String, name: &str, spreads: &[Spread]) {
    let numbers: Vec<String> = spreads
        .iter()
        .map(|one| format!("{} | {}", one.median, one.worst))
        .collect();
    line(table, &format!("| {name} | {} |", numbers.join(" | ")));
}

fn collect(scores: &[[Score; 2]], read: impl Fn(&[Score; 2]) -> f64) -> Vec<f64> {
    scores.iter().map(read).collect()
}

fn percent(part: f64, digits: usize) -> String {
    format!("{:.digits$} %", 100.0 * part)
}
