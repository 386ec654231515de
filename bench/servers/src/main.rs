//! Tollgate's server beside throttlecrab-server, the articles' script in redis-server, nginx's `limit_req`, and floors that
//! read and write the same bytes, all in one run and in turn.
//!
//! `cargo xtask bench servers` starts it; `docs/benchmarks.md` says how to read what it prints. Nothing here asserts a time.
//!
//! Must not know: how our server works inside; it is started as people start it.
#![allow(
    clippy::disallowed_types,
    reason = "measuring time is what this program is for"
)]
#![allow(
    clippy::disallowed_methods,
    reason = "floors spawn what any server of their library spawns, and nothing here serves while another process starts or connections are idle"
)]

mod contenders;
mod cores;
mod floors;
mod goals;
#[path = "../../peers/src/histogram.rs"]
#[allow(
    dead_code,
    reason = "the benchmarks of stores use the other functions; its own tests use all"
)]
mod histogram;
mod load;
#[path = "../../peers/src/measurements.rs"]
mod measurements;
mod options;
mod parts;
mod process;
mod resident;
#[path = "../../peers/src/stats.rs"]
mod stats;
mod study;
mod system;

use std::process::ExitCode;

use options::Options;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match run(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("bench servers: {message}");
            ExitCode::FAILURE
        }
    }
}

fn run(words: &[String]) -> Result<(), String> {
    if let Some((first, rest)) = words.split_first()
        && first == floors::CHILD
    {
        return floors::child(rest);
    }
    let options = Options::parse(words)?;
    cores::bind_load()?;
    system::exact_timers();
    let report = parts::run(&options)?;
    if let Some(goals) = report.goals.into_table() {
        println!("{}", goals.render(options.markdown));
    }
    match &options.measurements {
        Some(path) => report.measurements.save(path),
        None => Ok(()),
    }
}
