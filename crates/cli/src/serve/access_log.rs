//! The output of the access log: a file that can be rotated, or stdout, written by a thread of its own.
//!
//! Must not know: formats, requests.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tollgate_files::append_regular;
use tollgate_server::gateway::AccessLog;

use super::log_writer::{FlushGuard, LogWriter};
use super::settings::{AccessLogTarget, GatewayOptions};
use crate::output::access_log_output;

const LINES_DROPPED: &str = "access log lines dropped because they were not written fast enough";

/// A running access log. Dropping it writes the last lines.
#[derive(Debug)]
pub(super) struct OpenAccessLog {
    log: AccessLog,
    dropped: Arc<AtomicU64>,
    reopen: ReopenSignal,
    _flush: FlushGuard,
}

/// Asks the thread that writes to open the file again.
#[derive(Clone, Debug, Default)]
pub(super) struct ReopenSignal(Arc<AtomicBool>);

impl ReopenSignal {
    pub(super) fn send(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn take(&self) -> bool {
        self.0.swap(false, Ordering::Relaxed)
    }
}

impl OpenAccessLog {
    /// Opens the log, if there is one.
    ///
    /// # Errors
    /// The file cannot be opened, or the thread that writes cannot be started.
    pub(super) fn start(options: &GatewayOptions) -> io::Result<Option<Self>> {
        let reopen = ReopenSignal::default();
        let output: Box<dyn Write + Send> = match &options.access_log {
            AccessLogTarget::Off => return Ok(None),
            AccessLogTarget::Stdout => Box::new(access_log_output()),
            AccessLogTarget::File(path) => Box::new(RotatedFile {
                file: open(path).map_err(|error| {
                    let message = format!("--access-log: cannot open {}: {error}", path.display());
                    io::Error::new(error.kind(), message)
                })?,
                path: path.clone(),
                reopen: reopen.clone(),
                has_failed: false,
            }),
        };
        let (writer, flush) = LogWriter::start("access log", LINES_DROPPED, output)?;
        Ok(Some(Self {
            dropped: Arc::clone(writer.dropped_lines()),
            log: AccessLog::new(options.access_log_format.clone(), Arc::new(writer)),
            reopen,
            _flush: flush,
        }))
    }

    pub(super) fn log(&self) -> AccessLog {
        self.log.clone()
    }

    /// Counts the lines that were dropped.
    pub(super) const fn dropped_lines(&self) -> &Arc<AtomicU64> {
        &self.dropped
    }

    pub(super) fn reopen_signal(&self) -> ReopenSignal {
        self.reopen.clone()
    }
}

fn open(path: &Path) -> io::Result<File> {
    append_regular(path)
}

/// A file that is opened again before the next write when it was rotated.
#[derive(Debug)]
struct RotatedFile {
    file: File,
    path: PathBuf,
    reopen: ReopenSignal,
    /// Whether the last write failed. The log says so once.
    has_failed: bool,
}

impl RotatedFile {
    fn reopen_if_asked(&mut self) {
        if !self.reopen.take() {
            return;
        }
        let path = self.path.display();
        match open(&self.path) {
            Ok(file) => {
                self.file = file;
                tracing::info!(%path, "access log opened again");
            }
            Err(error) => {
                tracing::error!(%path, %error, "access log not opened again, the previous file stays in use");
            }
        }
    }
}

impl Write for RotatedFile {
    fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
        self.reopen_if_asked();
        let written = self.file.write(lines);
        match &written {
            Ok(_) => self.has_failed = false,
            Err(error) if !self.has_failed && error.kind() != io::ErrorKind::Interrupted => {
                self.has_failed = true;
                let path = self.path.display();
                tracing::error!(%path, %error, "access log not written");
            }
            Err(_) => {}
        }
        written
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use tollgate_testkit::process::TempFolder;

    use super::*;

    #[test]
    fn a_rotated_file_is_opened_again_when_asked_and_not_before() {
        let folder = TempFolder::new("access-log").unwrap();
        let (path, rotated) = (folder.path().join("a.log"), folder.path().join("a.log.1"));
        let reopen = ReopenSignal::default();
        let mut file = RotatedFile {
            file: open(&path).unwrap(),
            path: path.clone(),
            reopen: reopen.clone(),
            has_failed: false,
        };
        file.write_all(b"one\n").unwrap();
        std::fs::rename(&path, &rotated).unwrap();
        file.write_all(b"two\n").unwrap();
        reopen.send();
        file.write_all(b"three\n").unwrap();
        assert_eq!(std::fs::read(&rotated).unwrap(), b"one\ntwo\n");
        assert_eq!(std::fs::read(&path).unwrap(), b"three\n");
        // A file that cannot be opened changes nothing.
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        reopen.send();
        file.write_all(b"four\n").unwrap();
        assert!(path.is_dir());
    }
}
