//! A real Chromium without a window, for tests of what scripts of web pages see; stopped when dropped.
//!
//! Must not know: which pages it opens.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process::{Process, TempFolder, failed};

/// Without a display, an account, updates or connections of its own.
const FLAGS: [&str; 9] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
];

/// A running browser. It ends, with its profile, when this is dropped.
#[derive(Debug)]
pub struct Chromium {
    process: Process,
}

impl Chromium {
    /// Opens a page.
    ///
    /// # Panics
    /// The program is missing (the message is the command that installs it), or it does not start.
    #[must_use]
    pub fn open(url: &str) -> Self {
        Self::try_open(url).unwrap_or_else(|error| failed(&error))
    }

    /// Everything that it wrote so far, for messages.
    #[must_use]
    pub fn log(&self) -> String {
        self.process.log()
    }

    fn try_open(url: &str) -> Result<Self, String> {
        let folder = TempFolder::new("chromium")?;
        let mut command = Command::new(program());
        command.args(FLAGS).arg(profile(folder.path())).arg(url);
        let process = Process::start("chromium", &mut command, folder)?;
        Ok(Self { process })
    }
}

fn profile(folder: &Path) -> String {
    format!("--user-data-dir={}", folder.display())
}

fn program() -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut candidates = std::env::split_paths(&path).map(|folder| folder.join("chromium"));
    candidates
        .find(|candidate| candidate.is_file())
        .unwrap_or_else(|| {
            failed(
                "chromium is not installed. Install it and run again:\n    \
                 sudo apt-get install -y --no-install-recommends chromium",
            )
        })
}
