//! The overload study: adaptive concurrency in simulated time, beside published limits and an oracle.
//!
//! - `[--measurements FILE]`: prints tables as markdown; the file gets what the plots show. Every number is the same on every machine.
//! - `--real-time TOLLGATE [--envoy ENVOY] [--quick]`: runs small traces through the gateway and beside Envoy, in two minutes
#![allow(
    clippy::disallowed_types,
    reason = "with --real-time it measures the machine's time"
)]

mod real_time;
mod seeds;

use std::fmt::Write as _;
use std::process::ExitCode;

use tollgate_bench::overload::{
    ControllerKind, Run, Scenario, Score, TimeBucket, WORKERS, gcl, ramp, run, steps,
};

const KINDS: [ControllerKind; 8] = [
    ControllerKind::Oracle,
    ControllerKind::Ours,
    ControllerKind::Gradient2,
    ControllerKind::Aimd,
    ControllerKind::Vegas,
    ControllerKind::Static(WORKERS / 6),
    ControllerKind::Static(WORKERS),
    ControllerKind::Static(3 * WORKERS),
];
/// The controllers of the plots. A panel has three colours.
const PLOTTED: [ControllerKind; 3] = [
    ControllerKind::Ours,
    ControllerKind::Gradient2,
    ControllerKind::Vegas,
];
const FACTORS: [f64; 5] = [1.4, 2.0, 5.0, 10.0, 12.0];
/// The seconds of gcl whose shed shares are printed: the server becomes slower in second 20.
const SECONDS: std::ops::Range<usize> = 19..32;
/// Buckets of 10 ms that make one point of a plot.
const POINT: usize = 50;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let file = match words.as_slice() {
        [] => None,
        ["--measurements", file] => Some(*file),
        ["--real-time", tollgate, rest @ ..] => return in_real_time(tollgate, rest),
        _ => {
            eprintln!(
                "usage: bench overload [--measurements FILE | --real-time TOLLGATE [--envoy ENVOY] [--quick]]"
            );
            return ExitCode::FAILURE;
        }
    };
    let mut points = String::new();
    let (traces, steps) = (traces(), FACTORS.map(|factor| steps(factor, 6.0)));
    let tables = [
        changing_service(&mut points, &traces),
        load_steps(&mut points, &steps),
        seeds::changing_service(&traces),
        seeds::seconds(&gcl(80.0), SECONDS),
        seeds::load_steps(&steps),
    ];
    println!("{}", tables.join("\n"));
    match file.map(|file| std::fs::write(file, points)) {
        Some(Err(error)) => {
            eprintln!("bench overload: {error}");
            ExitCode::FAILURE
        }
        _ => ExitCode::SUCCESS,
    }
}

/// The small traces in real time.
fn in_real_time(tollgate: &str, words: &[&str]) -> ExitCode {
    let envoy = words.iter().position(|word| *word == "--envoy");
    let options = real_time::Options {
        tollgate: tollgate.into(),
        envoy: envoy.and_then(|index| words.get(index + 1)).map(Into::into),
        is_quick: words.contains(&"--quick"),
    };
    match real_time::run(&options) {
        Ok(table) => {
            println!("{table}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("bench overload: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Traces whose service time or demand changes slowly.
fn traces() -> [Scenario; 3] {
    let mut random = gcl(80.0);
    random.is_service_random = true;
    random.name = "gcl, exponential service times".to_owned();
    let mut growing = ramp(46.0);
    growing.name = "demand grows from 0.8× to 3×".to_owned();
    [gcl(80.0), random, growing]
}

fn changing_service(points: &mut String, traces: &[Scenario]) -> String {
    let mut table = String::from(
        "| trace | controller | good responses | of the oracle | mean latency |\n|---|---|---|---|---|\n",
    );
    for scenario in traces {
        let mut best = None;
        for kind in KINDS {
            let ran = run(scenario, kind);
            let score = Score::new(scenario, &ran);
            let best = *best.get_or_insert(score.good);
            line(
                &mut table,
                &format!(
                    "| {} | {} | {} of {} | {:.1} % | {:.0} ms |",
                    scenario.name,
                    kind.name(),
                    score.good,
                    score.arrived,
                    percent(score.good, best),
                    1e3 * score.latency
                ),
            );
            if scenario.name == "gcl" && PLOTTED.contains(&kind) {
                plot(points, scenario, kind, &ran);
            }
        }
    }
    table
}

/// Steps of demand.
fn load_steps(points: &mut String, steps: &[Scenario]) -> String {
    let mut table = String::from(
        "| demand | controller | goodput of the capacity | critical requests in time | stable after | shed share moves |\n|---|---|---|---|---|---|\n",
    );
    for scenario in steps {
        for kind in KINDS {
            let ran = run(scenario, kind);
            let score = Score::new(scenario, &ran);
            let Some(step) = score.stages.get(1) else {
                continue;
            };
            let stable = match step.stable_after {
                Some(after) => format!("{:.0} ms", 1e3 * after),
                None => "never".to_owned(),
            };
            line(
                &mut table,
                &format!(
                    "| {} | {} | {:.1} % | {:.2} % | {stable} | {:.2} % |",
                    scenario.name,
                    kind.name(),
                    100.0 * step.goodput,
                    100.0 * step.critical,
                    100.0 * step.shed_moves
                ),
            );
            if scenario.name == "12×" && PLOTTED.contains(&kind) {
                plot(points, scenario, kind, &ran);
            }
        }
    }
    table
}

/// Adds the limit and the good responses of each half second.
fn plot(points: &mut String, scenario: &Scenario, kind: ControllerKind, ran: &Run) {
    let role = match kind {
        ControllerKind::Ours => "ours",
        _ => "peer",
    };
    for (index, part) in ran.buckets.chunks_exact(POINT).enumerate() {
        let seconds = index as f64 * POINT as f64 / 100.0;
        let good: u32 = part.iter().flat_map(|bucket| bucket.good).sum();
        let limit = part
            .iter()
            .map(|bucket: &TimeBucket| f64::from(bucket.limit));
        let limit = limit.sum::<f64>() / POINT as f64;
        let rate = f64::from(good) * 100.0 / POINT as f64;
        for (what, unit, value) in [
            ("limit", "requests in flight", limit),
            ("goodput", "good responses/s", rate),
        ] {
            line(
                points,
                &format!(
                    "overload {} {what}\t{}\t{role}\t{seconds}\t{unit}\t{value}\t{value}\t{value}",
                    scenario.name,
                    kind.name()
                ),
            );
        }
    }
}

fn line(text: &mut String, line: &str) {
    // Writing into a string does not fail.
    let _written = writeln!(text, "{line}");
}

fn percent(part: u64, of: u64) -> f64 {
    100.0 * part as f64 / of.max(1) as f64
}
