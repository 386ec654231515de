//! Output: results go to stdout, problems to stderr, colors only to terminals.
//!
//! Must not know: what is printed.

use std::error::Error;
use std::ffi::OsStr;
use std::io::{self, IsTerminal, Write};

/// Why a command failed.
#[derive(Debug)]
pub(crate) enum CommandError {
    /// The command line is not valid.
    Usage(String),
    /// Any other error.
    Other(Box<dyn Error>),
}

impl From<io::Error> for CommandError {
    fn from(error: io::Error) -> Self {
        Self::Other(format!("cannot write to stdout: {error}").into())
    }
}

/// When to use colors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Color {
    #[default]
    Auto,
    Always,
    Never,
}

impl Color {
    /// Whether to color the output to this stream.
    pub(crate) fn is_enabled(self, stream: &impl IsTerminal) -> bool {
        let variable = |name| std::env::var_os(name).unwrap_or_default();
        self.choose(
            stream.is_terminal(),
            &variable("NO_COLOR"),
            &variable("TERM"),
        )
    }

    /// The same, with the stream and the environment as arguments. An empty NO_COLOR counts as unset.
    fn choose(self, is_terminal: bool, no_color: &OsStr, term: &OsStr) -> bool {
        match self {
            Self::Always => true,
            Self::Never => false,
            Self::Auto => is_terminal && no_color.is_empty() && term != "dumb",
        }
    }
}

/// Writes to stdout. A closed pipe, for example by `head`, is not an error.
pub(crate) fn print(text: &str) -> Result<(), CommandError> {
    let mut stdout = io::stdout().lock();
    let written = stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush());
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => Ok(other?),
    }
}

/// Writes to stderr. Errors are ignored, because there is nowhere to report them.
pub(crate) fn print_error(text: &str) {
    io::stderr().write_all(text.as_bytes()).ok();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn auto_colors_only_terminals_and_respects_no_color() {
        let choose = |color: Color, is_terminal, no_color: &str, term: &str| {
            color.choose(is_terminal, no_color.as_ref(), term.as_ref())
        };
        assert!(choose(Color::Auto, true, "", "xterm"));
        assert!(!choose(Color::Auto, false, "", "xterm"));
        assert!(!choose(Color::Auto, true, "1", "xterm"));
        assert!(!choose(Color::Auto, true, "", "dumb"));
        assert!(choose(Color::Always, false, "1", "dumb"));
        assert!(!choose(Color::Never, true, "", "xterm"));
    }
}
