//! What being one of a fleet costs, beside what it is made of: `cargo xtask bench fleet`.
//!
//! Starts a Redis server of its own, measures by processor time and by the server's own counters, prints tables, and judges
//! what does not depend on the machine's mood: that everything was decided as it must be. Nothing here asserts a time. Must
//! not know: how a node decides.
#![allow(
    clippy::disallowed_types,
    reason = "it measures the machine's time; nothing decides by it"
)]

mod exact;
mod flood;
mod leased;
mod node;
mod options;
mod redis_server;
mod skewed_keys;
mod store_down;
mod timed_runs;
mod usage;

// The same files as in the benchmarks beside other limiters, which lie outside the workspace and cannot be depended on.
#[path = "../../../peers/src/clock.rs"]
#[expect(dead_code, reason = "resident memory is not measured here")]
mod clock;
#[path = "../../../servers/src/goals.rs"]
#[expect(dead_code, reason = "memory is not measured here")]
mod goals;
#[path = "../../../peers/src/stats.rs"]
mod stats;

use std::process::ExitCode;

use goals::Goals;
use options::{FleetStudy, Options};
use redis_server::BenchRedis;

/// Whatever stops a measurement.
type Failure = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match Options::parse(&words)
        .map_err(Failure::from)
        .and_then(|options| run(&options))
    {
        Ok(report) => {
            println!("{report}");
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("bench fleet: {why}");
            ExitCode::FAILURE
        }
    }
}

/// Measures everything, and words it.
fn run(options: &Options) -> Result<String, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(measure(options))
}

async fn measure(options: &Options) -> Result<String, Failure> {
    let mut server = BenchRedis::start()?;
    let mut goals = Goals::new();
    let mut tables = Vec::new();
    for part in &options.parts {
        tables.extend(match part {
            FleetStudy::Exact => exact::measure(&mut server, options, &mut goals).await?,
            FleetStudy::Leased => leased::measure(&mut server, options, &mut goals).await?,
            FleetStudy::Flood => flood::measure(&mut server, options, &mut goals).await?,
            FleetStudy::Dead => store_down::measure(options, &mut goals).await?,
            FleetStudy::Zipf => skewed_keys::measure(options)?,
        });
    }
    tables.extend(goals.into_table());
    let mut report = format!(
        "{}, {} rounds of {} calls\n\n",
        server.version()?,
        options.rounds,
        options.calls
    );
    for table in tables {
        report.push_str(&table.render(options.markdown));
        report.push('\n');
    }
    Ok(report)
}

/// A count as a number to calculate with. Nothing here counts further than this is exact.
fn number(count: u64) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run too short to mean anything: everything is asked, decided as it must be, and put into tables.
    #[test]
    fn a_tiny_run_measures_everything() {
        let mut options = Options::parse(&[]).unwrap();
        options.shorten();
        options.markdown = true;
        options.rounds = 1;
        options.calls = 640;
        options.local = 6_400;
        options.keys = 100;
        options.seconds = 1;
        let report = run(&options).unwrap();
        for what in [
            "exact, 1 key, 64 callers",
            "exact, 100 keys, 1 caller",
            "100 times the limit",
            "leased, one hot key",
            "server falls silent",
            "server away, one key",
            "s = 1.2",
        ] {
            assert!(report.contains(what), "{what} is missing in\n{report}");
        }
        assert!(!report.contains("NaN"), "{report}");
    }
}
