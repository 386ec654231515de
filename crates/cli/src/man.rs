//! `tollgate man FOLDER`: writes one manual page for each command.
//!
//! Must not know: which arguments there are.

use std::path::PathBuf;

use clap::CommandFactory;

use crate::output::CommandError;

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// An existing folder, such as /usr/local/share/man/man1
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
}

pub(crate) fn write<Arguments: CommandFactory>(options: &Options) -> Result<(), CommandError> {
    // `tollgate help` explains itself; a page about it helps nobody.
    let command = Arguments::command().disable_help_subcommand(true);
    clap_mangen::generate_to(command, &options.folder).map_err(|error| {
        let folder = options.folder.display();
        CommandError::Other(format!("cannot write manual pages into {folder}: {error}").into())
    })
}
