//! The `tollgate` program: parse the command line, wire, run.
//!
//! Must not know: how anything is decided or served.
#![forbid(unsafe_code)]

mod serve;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// A rate limiter: ask it whether a request may proceed.
#[derive(Debug, Parser)]
#[command(name = "tollgate", version, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Answer checks over HTTP by a policy, with its state in memory
    Serve(serve::Options),
}

fn main() -> ExitCode {
    // Logs go to stderr; stdout is for what was asked for.
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_target(false)
        .init();
    let Command::Serve(options) = Arguments::parse().command;
    match serve::serve(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
