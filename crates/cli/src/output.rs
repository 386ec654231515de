//! Output: results go to stdout, problems to stderr, colors only to terminals.
//!
//! Must not know: what is printed.
#![expect(
    clippy::disallowed_methods,
    reason = "commands write here, and end if nobody reads; what a server writes waits for nobody"
)]

use std::error::Error;
use std::ffi::OsStr;
use std::io::{self, IsTerminal, Write};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// How long a server that could not go on waits until its error is written.
const LAST_ERROR_TIMEOUT: Duration = Duration::from_secs(1);

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
    /// Whether to color the output to stdout.
    pub(crate) fn is_enabled_on_stdout(self) -> bool {
        self.is_enabled(is_stdout_terminal())
    }

    /// Whether to colour what goes to stderr.
    pub(crate) fn is_enabled_on_stderr(self) -> bool {
        self.is_enabled(io::stderr().is_terminal())
    }

    fn is_enabled(self, is_terminal: bool) -> bool {
        let variable = |name| std::env::var_os(name).unwrap_or_default();
        self.choose(is_terminal, &variable("NO_COLOR"), &variable("TERM"))
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

/// Whether a person reads stdout.
pub(crate) fn is_stdout_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Whether a person reads stderr.
pub(crate) fn is_stderr_terminal() -> bool {
    io::stderr().is_terminal()
}

/// Writes to stdout. A closed pipe, for example by `head`, is not an error.
pub(crate) fn print(text: &str) -> Result<(), CommandError> {
    print_bytes(text.as_bytes()).map(|_is_read| ())
}

/// The same for bytes that may be no text. Returns whether somebody may read more.
pub(crate) fn print_bytes(bytes: &[u8]) -> Result<bool, CommandError> {
    let mut stdout = io::stdout().lock();
    let written = stdout.write_all(bytes).and_then(|()| stdout.flush());
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        other => Ok(other.map(|()| true)?),
    }
}

/// Writes to stderr. Errors are ignored, because there is nowhere to report them.
pub(crate) fn print_error(text: &str) {
    io::stderr().write_all(text.as_bytes()).ok();
}

/// Writes a startup message to stdout without waiting for a reader.
pub(crate) fn print_in_background(text: String) {
    let started = thread::Builder::new()
        .name("print".to_owned())
        .spawn(move || {
            if print(&text).is_err() {
                tracing::warn!("startup message was not written to stdout");
            }
        });
    if let Err(error) = started {
        tracing::warn!(%error, "startup message was not written to stdout");
    }
}

/// Where a server logs.
pub(crate) fn log_output() -> impl Write + Send {
    io::stderr()
}

/// Where a server logs requests.
pub(crate) fn access_log_output() -> impl Write + Send {
    io::stdout()
}

/// Like [`print_error`] for a server that ends: it waits for a reader of stderr only so long.
pub(crate) fn print_last_error(text: String) {
    let (done, written) = mpsc::sync_channel(1);
    let started = thread::Builder::new().spawn(move || {
        print_error(&text);
        done.send(()).ok();
    });
    if started.is_ok() {
        // Written or not, the process ends.
        written.recv_timeout(LAST_ERROR_TIMEOUT).ok();
    }
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
