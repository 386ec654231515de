//! The `tollgate` program: parse the command line, wire, run.
//!
//! Must not know: how anything is decided or served.
#![forbid(unsafe_code)]
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod check;
mod completions;
mod explain;
mod health;
mod input;
mod json;
mod output;
mod policy_tests;
mod request_description;
mod schema;
mod serve;
mod settings;

use std::error::Error;
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};

use output::{Color, CommandError, print_error, print_last_error};

/// A rate limiter: ask it whether a request may proceed.
#[derive(Debug, Parser)]
#[command(name = "tollgate", version, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
    /// When to use colours; `auto` is on a terminal, unless NO_COLOR is set
    #[arg(long, global = true, value_enum, value_name = "WHEN", default_value_t)]
    color: Color,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Answer checks over HTTP, gRPC and the Redis protocol by a policy
    Serve(Box<serve::Options>),
    /// Say whether a server on this machine is ready; the exit code is 0 if it is
    Health(health::Options),
    /// Say everything that is wrong with policy files
    Check(check::Options),
    /// Say in plain words what a policy does, or what it does with one request
    Explain(Box<explain::Options>),
    /// Run tests of policies: requests at points in time, and what should come of them
    Test(policy_tests::Options),
    /// Print the JSON Schema of policy files, for editors
    Schema,
    /// Print every setting of `serve` as a page of Markdown
    Settings,
    /// Print a script that completes this program's arguments in a shell
    Completions(completions::Options),
}

fn main() -> ExitCode {
    let Arguments { command, color } = Arguments::parse();
    let done = match command {
        Command::Serve(options) => return serve_exit_code(serve::serve(&options)),
        Command::Health(options) => return exit_code(health::health(&options)),
        Command::Check(options) => return exit_code(check::check(&options, color)),
        Command::Explain(options) => return exit_code(explain::explain(&options, color)),
        Command::Test(options) => return exit_code(policy_tests::test(&options, color)),
        Command::Schema => schema::print(),
        Command::Settings => match Arguments::command().find_subcommand("serve") {
            Some(serve) => settings::print_page(serve),
            None => Ok(()),
        },
        Command::Completions(options) => completions::print::<Arguments>(&options),
    };
    exit_code(done.map(|()| true))
}

/// The exit code of a server. Whoever reads its stderr does not decide when it ends.
fn serve_exit_code(served: Result<(), Box<dyn Error>>) -> ExitCode {
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            print_last_error(format!("error: {error}\n"));
            ExitCode::FAILURE
        }
    }
}

/// What the process ends with: 0 if all is well, 1 if not, 2 if it was called wrongly.
fn exit_code(done: Result<bool, CommandError>) -> ExitCode {
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(CommandError::Usage(message)) => {
            print_error(&format!(
                "error: {message}\n\nFor more information, try '--help'.\n"
            ));
            ExitCode::from(2)
        }
        Err(CommandError::Other(error)) => {
            print_error(&format!("error: {error}\n"));
            ExitCode::FAILURE
        }
    }
}
