//! Where words go: stdout for what was asked for, stderr for what is wrong, and colours only for eyes.
//!
//! Must not know: what is said.

use std::error::Error;
use std::io::{self, IsTerminal, Write};

/// Why a command did not come to an answer.
#[derive(Debug)]
pub(crate) enum Failure {
    /// It was called wrongly.
    Usage(String),
    /// Something else failed.
    Other(Box<dyn Error>),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Other(format!("cannot write to stdout: {error}").into())
    }
}

/// When to use colours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Color {
    #[default]
    Auto,
    Always,
    Never,
}

impl Color {
    /// Whether to colour what goes to this stream.
    pub(crate) fn on(self, stream: &impl IsTerminal) -> bool {
        match self {
            Self::Always => true,
            Self::Never => false,
            Self::Auto => {
                let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
                let dumb = std::env::var_os("TERM").is_some_and(|value| value == "dumb");
                !refused && !dumb && stream.is_terminal()
            }
        }
    }
}

/// Writes to stdout. A reader that has seen enough, such as `head`, is no error.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    let written = stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush());
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => Ok(other?),
    }
}

/// Writes to stderr. If nobody listens there is nobody left to tell.
pub(crate) fn complain(text: &str) {
    io::stderr().write_all(text.as_bytes()).ok();
}
