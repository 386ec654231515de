//! The `tollgate` program: parses the command line and runs a command.
//!
//! Must not know: how requests are decided or served.
#![forbid(unsafe_code)]
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod call;
mod check;
mod completions;
mod explain;
mod health;
mod http_client;
mod input;
mod json;
mod load;
mod man;
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

/// A rate limiter: services ask it whether a request may proceed.
#[derive(Debug, Parser)]
#[command(name = "tollgate", version, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
    /// When to use colors. `auto`: on a terminal, unless NO_COLOR is set
    #[arg(long, global = true, value_enum, value_name = "WHEN", default_value_t)]
    color: Color,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the server: answer checks over HTTP, gRPC and the Redis protocol
    Serve(Box<serve::Options>),
    /// Check whether a server on this machine is ready; exit code 0 if it is, 1 if not
    Health(health::Options),
    /// Validate policy files and print all problems
    Check(check::Options),
    /// Explain what a policy does, or what it does with one request
    Explain(Box<explain::Options>),
    /// Run policy tests: requests at points in time, and the expected decisions
    Test(policy_tests::Options),
    /// Send one request, wait and retry as the server's limits demand, and show the limits
    Call(Box<call::Options>),
    /// Send requests at a chosen rate and report statuses and latencies
    Load(Box<load::Options>),
    /// Print the JSON Schema of policy files, for editors
    Schema,
    /// Print all settings of `serve` as Markdown
    Settings,
    /// Print a completion script for a shell
    Completions(completions::Options),
    /// Write the manual pages of all commands into a folder
    Man(man::Options),
}

fn main() -> ExitCode {
    let Arguments { command, color } = Arguments::parse();
    let result = match command {
        Command::Serve(options) => return serve_exit_code(serve::serve(&options)),
        Command::Health(options) => return exit_code(health::health(&options)),
        Command::Check(options) => return exit_code(check::check(&options, color)),
        Command::Explain(options) => return exit_code(explain::explain(&options, color)),
        Command::Test(options) => return exit_code(policy_tests::test(&options, color)),
        Command::Call(options) => return exit_code(call::call(&options)),
        Command::Load(options) => return exit_code(load::load(&options)),
        Command::Schema => schema::print(),
        Command::Settings => match Arguments::command().find_subcommand("serve") {
            Some(serve) => settings::print_page(serve),
            None => Ok(()),
        },
        Command::Completions(options) => completions::print::<Arguments>(&options),
        Command::Man(options) => man::write::<Arguments>(&options),
    };
    exit_code(result.map(|()| true))
}

/// The exit code of a server. An unread stderr does not keep the process from ending.
fn serve_exit_code(served: Result<(), Box<dyn Error>>) -> ExitCode {
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            print_last_error(format!("error: {error}\n"));
            ExitCode::FAILURE
        }
    }
}

/// The exit code: 0 for success, 1 for failure, 2 for a usage error.
fn exit_code(result: Result<bool, CommandError>) -> ExitCode {
    match result {
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
