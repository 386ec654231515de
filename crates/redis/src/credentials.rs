//! Credentials for Redis. They are read at every connect and again while a connection is up, so that a password can
//! change without a restart. Must not know: connections.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use tollgate_files::{FileWorker, read_regular};

/// The longest password file.
const MAX_PASSWORD_BYTES: u64 = 4_096;

/// A user name and a password.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The user; `None` means the server's default user.
    pub username: Option<String>,
    /// The password.
    pub password: String,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("username", &self.username)
            .finish_non_exhaustive()
    }
}

/// A source of the current credentials.
pub trait CredentialsProvider: Send + Sync + fmt::Debug {
    /// The current credentials. Called off the request path, about once a second; may block briefly.
    ///
    /// # Errors
    /// They cannot be read. Open connections keep the previous ones; no new connection is made.
    fn current(&self) -> io::Result<Credentials>;
}

/// A password in a file, as orchestrators mount it. One line break at its end is removed.
///
/// ```
/// use tollgate_redis::{CredentialsProvider as _, PasswordFile};
///
/// # let path = std::env::temp_dir().join(format!("tollgate-doc-{}", std::process::id()));
/// # std::fs::write(&path, "opensesame\n")?;
/// let file = PasswordFile::new(Some("limiter".to_owned()), &path);
/// assert_eq!(file.current()?.password, "opensesame");
/// # std::fs::remove_file(&path)?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct PasswordFile {
    username: Option<String>,
    path: PathBuf,
    worker: Arc<FileWorker>,
}

impl PasswordFile {
    /// The password of a user, or of the default user, in the file at this path.
    #[must_use]
    pub fn new(username: Option<String>, path: impl Into<PathBuf>) -> Self {
        Self {
            username,
            path: path.into(),
            worker: Arc::new(FileWorker::new("read")),
        }
    }
}

impl CredentialsProvider for PasswordFile {
    fn current(&self) -> io::Result<Credentials> {
        let path = self.path.clone();
        let bytes = self
            .worker
            .run(move || read_regular(&path, MAX_PASSWORD_BYTES))??;
        let text = String::from_utf8(bytes).map_err(io::Error::other)?;
        let password = text.strip_suffix('\n').unwrap_or(&text);
        let password = password.strip_suffix('\r').unwrap_or(password);
        if password.is_empty() {
            // The file is just being written; the next read finds it complete.
            let detail = "the password file is empty";
            return Err(io::Error::new(io::ErrorKind::InvalidData, detail));
        }
        Ok(Credentials {
            username: self.username.clone(),
            password: password.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_never_shown() {
        let credentials = Credentials {
            username: Some("limiter".to_owned()),
            password: "opensesame".to_owned(),
        };
        let shown = format!("{credentials:?}");
        assert!(
            shown.contains("limiter") && !shown.contains("opensesame"),
            "{shown}"
        );
    }

    #[test]
    fn one_line_break_is_stripped_and_an_empty_file_is_no_password() {
        let path = std::env::temp_dir().join(format!("tollgate-password-{}", std::process::id()));
        let file = PasswordFile::new(None, &path);
        for (written, read) in [("a b\r\n", "a b"), ("a\n\n", "a\n"), ("a", "a")] {
            std::fs::write(&path, written).unwrap();
            assert_eq!(file.current().unwrap().password, read);
        }
        std::fs::write(&path, "\n").unwrap();
        assert_eq!(
            file.current().unwrap_err().kind(),
            io::ErrorKind::InvalidData
        );
        std::fs::remove_file(&path).unwrap();
        assert!(file.current().is_err());
    }
}
