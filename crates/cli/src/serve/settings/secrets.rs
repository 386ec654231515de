//! Secrets come from files or the environment, never from the command line, which every user of the machine can read.
//!
//! Must not know: what the secrets are used for.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use tollgate_files::{FileWorker, read_regular};
use tollgate_service::{InvalidSecret, Secret};

/// The longest secret file that is read.
const MAX_SECRET_BYTES: u64 = 4_096;
/// The variables with the secrets themselves.
pub(crate) const FLEET_SECRET: &str = "TOLLGATE_FLEET_SECRET";
pub(crate) const RESP_PASSWORD: &str = "TOLLGATE_RESP_PASSWORD";

#[derive(Debug, Default, clap::Args)]
#[command(next_help_heading = "Secrets")]
pub(crate) struct SecretFiles {
    /// File with the fleet secret, at least 16 bytes, the same on all nodes. It keys all digests of client keys. Alternative: the secret
    /// in TOLLGATE_FLEET_SECRET. Default: a random secret per process
    #[arg(long, value_name = "FILE", env = "TOLLGATE_FLEET_SECRET_FILE")]
    fleet_secret_file: Option<PathBuf>,
    /// File with the password that Redis clients must send with AUTH. Alternative: the password in TOLLGATE_RESP_PASSWORD
    #[arg(long, value_name = "FILE", env = "TOLLGATE_RESP_PASSWORD_FILE")]
    resp_password_file: Option<PathBuf>,
}

impl SecretFiles {
    /// The fleet secret, if one is set.
    pub(crate) fn fleet_secret(&self) -> Result<Option<Secret>, SecretError> {
        let file = self.fleet_secret_file.as_deref();
        match read_secret(file, FLEET_SECRET, read_variable)? {
            None => Ok(None),
            Some(text) => Secret::from_shared_text(text.as_bytes())
                .map(Some)
                .map_err(SecretError::Fleet),
        }
    }

    /// The password of Redis clients, if one is set.
    pub(crate) fn resp_password(&self) -> Result<Option<String>, SecretError> {
        let found = read_secret(
            self.resp_password_file.as_deref(),
            RESP_PASSWORD,
            read_variable,
        )?;
        match found.as_deref() {
            Some("") => Err(SecretError::Empty("the password of Redis clients")),
            _ => Ok(found),
        }
    }
}

/// Reads an environment variable.
pub(crate) fn read_variable(name: &'static str) -> Option<String> {
    std::env::var(name).ok()
}

/// Reads a secret from a file or a variable. It is an error if both are set.
pub(crate) fn read_secret(
    file: Option<&Path>,
    name: &'static str,
    environment: impl Fn(&'static str) -> Option<String>,
) -> Result<Option<String>, SecretError> {
    match (file, environment(name)) {
        (Some(_), Some(_)) => Err(SecretError::Ambiguous(name)),
        (Some(path), None) => read_secret_file(path).map(Some),
        (None, secret) => Ok(secret),
    }
}

/// Reads a regular file at startup. A file system that does not answer is an error, not a hang.
pub(crate) fn read_at_startup(path: &Path, max: u64) -> io::Result<Vec<u8>> {
    let path = path.to_owned();
    FileWorker::new("read").run(move || read_regular(&path, max))?
}

fn read_secret_file(path: &Path) -> Result<String, SecretError> {
    let unreadable = |error| SecretError::Unreadable(path.to_owned(), error);
    let bytes = read_at_startup(path, MAX_SECRET_BYTES).map_err(unreadable)?;
    warn_if_world_readable(path);
    let text = String::from_utf8(bytes)
        .map_err(io::Error::other)
        .map_err(unreadable)?;
    // Editors and `echo` end a file with a newline.
    Ok(text.trim_end().to_owned())
}

/// Warns of a file with a secret that every user of the machine can read.
#[cfg(unix)]
pub(super) fn warn_if_world_readable(path: &Path) {
    use std::os::unix::fs::MetadataExt as _;

    let mode = std::fs::metadata(path).map_or(0, |about| about.mode());
    if mode & 0o007 != 0 {
        let path = path.display();
        tracing::warn!(%path, "secret file is readable by every user; run chmod 600");
    }
}

#[cfg(not(unix))]
pub(super) fn warn_if_world_readable(_path: &Path) {}

/// Why a secret cannot be read. Messages never contain the secret.
#[derive(Debug)]
pub(crate) enum SecretError {
    Unreadable(PathBuf, io::Error),
    Ambiguous(&'static str),
    Empty(&'static str),
    Fleet(InvalidSecret),
}

impl fmt::Display for SecretError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(path, error) => {
                write!(f, "cannot read secret file={}: {error}", path.display())
            }
            Self::Ambiguous(name) => write!(
                f,
                "{name} and the file for the same secret are both set; set one"
            ),
            Self::Fleet(error) => write!(f, "the fleet secret is not valid: {error}"),
            Self::Empty(what) => write!(f, "{what} is empty"),
        }
    }
}

impl Error for SecretError {}
