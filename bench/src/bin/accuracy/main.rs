//! How well the sliding window counter estimates an exact sliding window log: a study on synthetic heavy-tailed
//! traffic, on patterns made by hand, and on a real access log.
//!
//! `cargo xtask bench accuracy` runs it; `docs/accuracy.md` explains it and keeps its numbers. Prints to standard
//! output and touches nothing else.
//!
//! Must not know: stores, keys, clocks. Time is part of the traffic.

mod candidates;
mod counts;
mod log_file;
mod options;
mod patterns;
mod random;
mod replay;
mod report;
mod smoke;
mod study;
mod table;
mod traffic;
mod workers;

use std::process::ExitCode;

use tollgate_core::Nanos;

use crate::candidates::{Counter, Limit};
use crate::counts::DecisionCounts;
use crate::log_file::AccessLog;
use crate::options::Options;
use crate::patterns::Pattern;
use crate::replay::{Replay, WithinSecond};
use crate::study::StudyJudge;
use crate::table::Table;
use crate::traffic::Population;

/// The limit of the main table.
const MAIN: Limit = Limit::new(100, Nanos::MINUTE);

/// Others, each on a tenth of the requests and with near sources and attackers that are near and above *them*.
const OTHERS: [Limit; 3] = [
    Limit::new(10, Nanos::SECOND),
    Limit::new(100, Nanos::from_secs(10)),
    Limit::new(1_000, Nanos::MINUTE),
];

/// Limits a minute for the traffic of the main table: how often the counter is wrong depends first of all on how much
/// of the traffic is near the limit. The last is the largest that an exact log holds.
const MOVED: [u32; 6] = [30, 100, 300, 1_000, 3_000, 10_000];

/// Limits at which something happens in the access log.
const FOR_THE_LOG: [Limit; 5] = [
    Limit::new(10, Nanos::MINUTE),
    Limit::new(20, Nanos::MINUTE),
    Limit::new(60, Nanos::MINUTE),
    Limit::new(5, Nanos::from_secs(10)),
    Limit::new(10, Nanos::from_secs(10)),
];

fn main() -> ExitCode {
    if std::env::args().any(|arg| arg == "--help") {
        println!("{}", options::USAGE);
        return ExitCode::SUCCESS;
    }
    match Options::parse(std::env::args().skip(1)).and_then(|options| run(&options)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("accuracy: {message}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<(), String> {
    // Before the long part, so that a wrong path is told at once.
    let log = match &options.log {
        Some(path) if !options.smoke => Some(AccessLog::open(path)?),
        _ => None,
    };
    if !options.markdown {
        println!("{}\n", report::DEFINITIONS);
    }
    synthetic(options)?;
    if !options.smoke {
        show(options, &moved(options)?);
        show(options, &others(options)?);
    }
    show(options, &patterns()?);
    if let Some(log) = log {
        show(options, &replayed(&log)?);
    }
    Ok(())
}

fn synthetic(options: &Options) -> Result<(), String> {
    let population = Population::new(options.requests, options.sources, options.seed, MAIN);
    for line in population.parameters() {
        println!("- {line}");
    }
    println!();
    let by_kind = workers::judge(&population, &MAIN, options.threads)?;
    let all = workers::total(&by_kind);
    show(options, &report::main_table(&MAIN, &all));
    show(options, &report::kinds_table(&by_kind, &MAIN));
    if options.smoke {
        smoke::check_traffic(&MAIN, options.requests, &all)
    } else {
        smoke::check_any(&MAIN, &all)
    }
}

/// The very traffic of the main table, with sources near and far above 100 a minute, under lower and higher limits;
/// and its visitors by themselves, because it is for them that a limit is placed.
fn moved(options: &Options) -> Result<Table, String> {
    let population = Population::new(options.requests, options.sources, options.seed, MAIN);
    let mut found = Vec::new();
    for limit in MOVED.map(|limit| Limit::new(limit, Nanos::MINUTE)) {
        let by_kind = workers::judge(&population, &limit, options.threads)?;
        let all = workers::total(&by_kind);
        smoke::check_any(&limit, &all)?;
        found.push((format!("{}, everybody", report::name(&limit)), limit, all));
        let [visitors, _, _] = by_kind;
        found.push((
            format!("{}, visitors", report::name(&limit)),
            limit,
            visitors,
        ));
    }
    Ok(lines(
        "The same traffic under other limits",
        "limit",
        &found,
    ))
}

fn others(options: &Options) -> Result<Table, String> {
    let mut found = Vec::new();
    for limit in OTHERS {
        let (requests, sources) = (options.requests / 10, (options.sources / 10).max(10));
        let population = Population::new(requests, sources, options.seed, limit);
        let tally = workers::total(&workers::judge(&population, &limit, options.threads)?);
        smoke::check_any(&limit, &tally)?;
        found.push((report::name(&limit), limit, tally));
    }
    let title = "Traffic made for other limits, a tenth of the requests and sources";
    Ok(lines(title, "limit", &found))
}

fn lines(title: &str, first: &str, found: &[(String, Limit, DecisionCounts)]) -> Table {
    let cases = found
        .iter()
        .map(|(name, limit, tally)| (name.clone(), *limit, tally));
    report::wide(title, first, cases)
}

fn patterns() -> Result<Table, String> {
    let mut found = Vec::new();
    for pattern in Pattern::ALL {
        let mut tally = DecisionCounts::default();
        judge(&MAIN)?.source(pattern.arrivals(&MAIN), &mut tally);
        match pattern {
            Pattern::Even { percent } if percent < 100 => smoke::check_even_client(&MAIN, &tally)?,
            _ => smoke::check_any(&MAIN, &tally)?,
        }
        found.push((pattern.name(), MAIN, tally));
    }
    let title = format!("Patterns made by hand, {}, one client", report::name(&MAIN));
    Ok(lines(&title, "pattern", &found))
}

/// Each limit by the clock that wrote the log, then summed over clocks that are ahead by every second of the window:
/// where boundaries fall in the traffic is chance, and one clock shows one throw.
fn replayed(log: &AccessLog) -> Result<Table, String> {
    let mut found = Vec::new();
    for (within, word) in [
        (WithinSecond::FileOrder, "file order"),
        (WithinSecond::Spread, "spread"),
    ] {
        let replay = Replay::new(log, within);
        for limit in FOR_THE_LOG {
            let mut judge = judge(&limit)?;
            let phases = limit.window.as_secs_ceil();
            for (clocks, of) in [(1, "as recorded"), (phases, "every phase")] {
                let mut tally = DecisionCounts::default();
                for ahead in 0..clocks {
                    replay
                        .ahead_by(ahead)
                        .for_each(|source| judge.source(source, &mut tally));
                }
                smoke::check_any(&limit, &tally)?;
                found.push((
                    format!("{}, {word}, {of}", report::name(&limit)),
                    limit,
                    tally,
                ));
            }
        }
    }
    let title = format!(
        "The access log, {} requests from {} addresses (lines cut off in their last field: {})",
        table::count(log.requests.len() as u64),
        table::count(log.sources as u64),
        log.cut_off
    );
    Ok(lines(&title, "limit, within a second, clock", &found))
}

fn judge(limit: &Limit) -> Result<StudyJudge<Counter>, String> {
    let counter = Counter::new(limit).map_err(|error| error.to_string())?;
    StudyJudge::new(limit, counter).map_err(|error| error.to_string())
}

fn show(options: &Options, table: &Table) {
    println!("{}", table.render(options.markdown));
}
