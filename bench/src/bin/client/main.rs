//! What the pacing client costs, and how it does against a real server: `cargo xtask bench client [--real-time | --real-time=full]`.
//!
//! - without arguments: the time that the layer adds to a request
//! - `--real-time SERVER`: the stories of `docs/client.md` over loopback, against the program at `SERVER`, in about 100 s
//! - `--real-time=full SERVER`: the hidden quota at its published length, with one process for each client, in 15 minutes
//! - `--client ADDRESS BEGIN`: one of these processes
//!
//! Nothing here asserts a time. Must not know: how the client decides.
#![allow(
    clippy::disallowed_types,
    reason = "it measures the machine's time; nothing decides by it"
)]

mod connection;
mod full_story;
mod overhead;
mod real_time;

use std::process::ExitCode;

type Failure = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let result = match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => overhead::run(),
        ["--real-time", server] => real_time::run(server.as_ref()),
        ["--real-time=full", server] => full_story::run(server.as_ref()),
        ["--client", server, begin] => full_story::run_client(server, begin),
        _ => Err("it knows --real-time SERVER and --real-time=full SERVER".into()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("client: {why}");
            ExitCode::FAILURE
        }
    }
}
