//! Where the admin listener's tokens come from: files, or the environment, but never the command line, which every user
//! of the machine can read.
//!
//! Must not know: what tokens are good for.

use std::error::Error;
use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use tollgate_server::admin::Tokens;

/// A file that is longer holds something else.
const MOST_BYTES: u64 = 4_096;
/// The tokens themselves, for those who keep secrets in the environment.
const READ: &str = "TOLLGATE_ADMIN_READ_TOKEN";
const OPERATE: &str = "TOLLGATE_ADMIN_OPERATE_TOKEN";

#[derive(Debug, Default, clap::Args)]
pub(crate) struct TokenFiles {
    /// A file with the token that may read on the admin listener; or the token itself in TOLLGATE_ADMIN_READ_TOKEN
    #[arg(long, value_name = "FILE", env = "TOLLGATE_ADMIN_READ_TOKEN_FILE")]
    admin_read_token_file: Option<PathBuf>,
    /// A file with the token that may also operate: switch, override, block, reset, reload; or the token itself in TOLLGATE_ADMIN_OPERATE_TOKEN
    #[arg(long, value_name = "FILE", env = "TOLLGATE_ADMIN_OPERATE_TOKEN_FILE")]
    admin_operate_token_file: Option<PathBuf>,
}

impl TokenFiles {
    /// Reads whatever there is.
    pub(super) fn read(&self) -> Result<Tokens, Box<dyn Error>> {
        let environment = |name| std::env::var(name).ok();
        self.read_with(environment)
    }

    fn read_with(
        &self,
        environment: impl Fn(&'static str) -> Option<String>,
    ) -> Result<Tokens, Box<dyn Error>> {
        let find = |file: &Option<PathBuf>, name| match (file, environment(name)) {
            (Some(_), Some(_)) => Err(BadToken::Twice(name)),
            (Some(path), None) => token_in(path).map(Some),
            (None, word) => Ok(word),
        };
        let read = find(&self.admin_read_token_file, READ)?;
        let operate = find(&self.admin_operate_token_file, OPERATE)?;
        Ok(Tokens::new(read.as_deref(), operate.as_deref())?)
    }
}

fn token_in(path: &Path) -> Result<String, BadToken> {
    let unreadable = |error| BadToken::Unreadable(path.to_owned(), error);
    let file = File::open(path).map_err(unreadable)?;
    warn_if_open_to_all(path, &file);
    let mut text = String::new();
    file.take(MOST_BYTES)
        .read_to_string(&mut text)
        .map_err(unreadable)?;
    // Editors and `echo` end files with a line.
    Ok(text.trim_end().to_owned())
}

#[cfg(unix)]
fn warn_if_open_to_all(path: &Path, file: &File) {
    use std::os::unix::fs::MetadataExt as _;

    let mode = file.metadata().map_or(0, |about| about.mode());
    if mode & 0o007 != 0 {
        let path = path.display();
        tracing::warn!(%path, "every user of this machine can read this token; chmod 600 it");
    }
}

#[cfg(not(unix))]
fn warn_if_open_to_all(_path: &Path, _file: &File) {}

/// Why a token cannot be had. What was read is not repeated.
#[derive(Debug)]
enum BadToken {
    Unreadable(PathBuf, io::Error),
    Twice(&'static str),
}

impl fmt::Display for BadToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(path, error) => {
                write!(f, "cannot read the token in {}: {error}", path.display())
            }
            Self::Twice(name) => write!(
                f,
                "{name} is set and so is the file for the same token; which of the two is meant?"
            ),
        }
    }
}

impl Error for BadToken {}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "0123456789abcdef";

    #[test]
    fn tokens_come_from_the_environment_or_a_file_but_not_from_both() {
        let none = TokenFiles::default();
        assert!(!none.read_with(|_| None).unwrap().are_set());
        let set = |name| (name == READ).then(|| TOKEN.to_owned());
        assert!(none.read_with(set).unwrap().are_set());
        let both = TokenFiles {
            admin_read_token_file: Some("no-such-file".into()),
            ..TokenFiles::default()
        };
        let error = both.read_with(set).unwrap_err().to_string();
        assert!(error.starts_with(READ), "{error}");
        let error = both.read_with(|_| None).unwrap_err().to_string();
        assert!(error.contains("no-such-file"), "{error}");
        let empty = none.read_with(|_| Some(String::new())).unwrap_err();
        assert!(empty.to_string().contains("it is empty"), "{empty}");
    }
}
