//! What a decision costs a Redis server and its client, beside the script that articles print: `cargo xtask bench redis`.
//!
//! Starts a server of its own, measures by the server's own counters, prints tables, and judges what does not depend on the
//! machine's mood: that both decided as they must. Nothing here asserts a time.
#![allow(
    clippy::disallowed_types,
    reason = "it measures the machine's time; nothing decides by it"
)]

mod contender;
mod decisions;
mod keys;
mod options;
mod redis_server;

// The same files as in the benchmarks beside other limiters, which lie outside the workspace and cannot be depended on.
#[path = "../../../peers/src/clock.rs"]
#[expect(
    dead_code,
    reason = "wall time and resident memory are not measured here"
)]
mod clock;
#[path = "../../../peers/src/stats.rs"]
mod stats;

use std::process::ExitCode;

use options::Options;
use redis_server::BenchRedis;
use tollgate_testkit::redis::ServerProgram;

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
            eprintln!("bench redis: {why}");
            ExitCode::FAILURE
        }
    }
}

/// Measures everything, and words it.
fn run(options: &Options) -> Result<String, Failure> {
    let mut server = BenchRedis::start(ServerProgram::Redis)?;
    let mut report = format!(
        "{}, {} rounds of {} calls, {} to a pipeline\n\n",
        server.version()?,
        options.rounds,
        options.calls,
        redis_server::PIPELINE
    );
    for table in decisions::measure(&mut server, options)? {
        report.push_str(&table.render(options.markdown));
        report.push('\n');
    }
    report.push_str(&keys::measure(&mut server, options)?.render(options.markdown));
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run too short to mean anything: everything is asked, decided as it must be, and put into tables.
    #[test]
    fn a_tiny_run_measures_everything() {
        let options = Options {
            markdown: true,
            rounds: 2,
            calls: 40,
            keys: 20,
            stored: 200,
        };
        let report = run(&options).unwrap();
        for what in ["One hot key, admitted", "20 keys, denied", "Bytes per key"] {
            assert!(report.contains(what), "{what} is missing in\n{report}");
        }
        assert!(!report.contains("NaN"), "{report}");
    }
}
