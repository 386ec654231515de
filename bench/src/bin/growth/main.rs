//! How the cost of a decision grows: with keys, with limits, with threads, with the length of keys, with the way to Redis.
//!
//! `cargo xtask bench growth` starts it; growth with connections is in `bench/servers`. Nothing here asserts a time. Must not
//! know: how anything decides.
#![allow(
    clippy::disallowed_types,
    reason = "it measures the machine's time; nothing decides by it"
)]

mod keys;
mod options;
mod policies;
mod redis_latency;
mod requests;
mod series;

// The same files as in the benchmarks beside other limiters, which lie outside the workspace and cannot be depended on.
#[path = "../../../peers/src/clock.rs"]
#[expect(dead_code, reason = "resident memory is not measured here")]
mod clock;
#[path = "../../../peers/src/measurements.rs"]
#[expect(dead_code, reason = "only we are measured here")]
mod measurements;
#[path = "../fleet/node.rs"]
#[expect(dead_code, reason = "the study of fleets uses the other functions")]
mod node;
#[path = "../../../peers/src/stats.rs"]
mod stats;

// `bench/servers` is outside the workspace, so CI runs the tests of its recorder of latencies here.
#[cfg(test)]
#[path = "../../../peers/src/histogram.rs"]
mod histogram;
#[cfg(test)]
#[path = "../../../servers/src/load/open_model.rs"]
#[expect(dead_code, reason = "the load of servers uses the other functions")]
mod open_model;

use std::process::ExitCode;

use measurements::Measurements;
use options::{GrowthStudy, Options};

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
            eprintln!("bench growth: {why}");
            ExitCode::FAILURE
        }
    }
}

/// Measures everything, and returns the tables.
fn run(options: &Options) -> Result<String, Failure> {
    let (mut report, mut measurements) = (String::new(), Measurements::default());
    for part in &options.parts {
        let all = match part {
            GrowthStudy::Keys => keys::by_count(options)?,
            GrowthStudy::KeyLength => keys::by_length(options)?,
            GrowthStudy::Threads => keys::by_threads(options)?,
            GrowthStudy::Policy => policies::by_size(options)?,
            GrowthStudy::Limits => policies::by_limits_of_a_request(options)?,
            GrowthStudy::Redis => redis_latency::by_round_trip(options)?,
        };
        for growth in all {
            report.push_str(&growth.table().render(options.markdown));
            report.push('\n');
            growth.measurements(&mut measurements);
        }
    }
    if let Some(path) = &options.measurements {
        measurements.save(path)?;
    }
    Ok(report)
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
        options.requests = 200;
        options.calls = 5;
        options.most_keys = 1_000;
        options.most_limits = 10;
        let report = run(&options).unwrap();
        for what in [
            "keys in the store",
            "bytes of a key",
            "threads",
            "limits in the policy",
            "limits that apply to a request",
            "round trip",
        ] {
            assert!(report.contains(what), "{what} is missing in\n{report}");
        }
        assert!(!report.contains("NaN"), "{report}");
    }
}
