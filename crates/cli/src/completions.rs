//! `tollgate completions SHELL`: prints a completion script.
//!
//! Must not know: which arguments there are.

use clap::CommandFactory;
use clap_complete::Shell;

use crate::output::{self, CommandError};

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

pub(crate) fn print<Arguments: CommandFactory>(options: &Options) -> Result<(), CommandError> {
    let mut command = Arguments::command();
    let name = command.get_name().to_owned();
    let mut script = Vec::new();
    clap_complete::generate(options.shell, &mut command, name, &mut script);
    output::print(&String::from_utf8_lossy(&script))
}
