//! Tollgate's memory store beside governor, pingora-limits, throttlecrab and a map by hand, in one process and one run.
//!
//! `cargo xtask bench memory` starts it; `docs/benchmarks.md` says how to read what it prints. Nothing here asserts a
//! time.
#![allow(
    clippy::disallowed_types,
    reason = "measuring time is what this program is for"
)]

mod clock;
mod contenders;
mod decisions;
mod engine;
mod histogram;
mod keys;
mod latency;
mod limits;
mod measurements;
mod options;
mod resident;
mod stats;

use std::process::ExitCode;

use measurements::Measurements;
use options::{Options, Part};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match run(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("bench memory: {message}");
            ExitCode::FAILURE
        }
    }
}

fn run(words: &[String]) -> Result<(), String> {
    if let Some((first, rest)) = words.split_first()
        && first == resident::CHILD
    {
        return resident::child(rest);
    }
    let options = Options::parse(words)?;
    let mut measurements = Measurements::default();
    for part in &options.parts {
        let tables = match part {
            Part::Decisions => decisions::study(&options, &mut measurements)?,
            Part::Limits => vec![limits::study(&options)?],
            Part::Engine => vec![engine::study(&options)?],
            Part::Resident => vec![resident::study(&options)?],
            Part::Latency => vec![latency::study(&options)],
        };
        for table in tables {
            println!("{}", table.render(options.markdown));
        }
    }
    match &options.measurements {
        Some(path) => measurements.save(path),
        None => Ok(()),
    }
}
