//! Reloads of policy files: changed, invalid, partly written, missing, and replaced by a symbolic link.
//!
//! Must not know: how files are watched in production.

mod changed_files;
mod concurrent_reloads;
mod file_events;
mod invalid_files;
mod unfinished_files;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tollgate_core::Timestamp;
use tollgate_store::{ManualClock, MemoryStore};
use tollgate_testkit::test_requests::TestCaller;

use super::PolicyReloader;

/// The start time of tests.
const START: Timestamp = Timestamp::from_secs(1_700_000_000);

/// A temporary directory, removed on drop.
struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Self {
        let dir =
            std::env::temp_dir().join(format!("tollgate-reload-{}-{name}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    /// Writes as editors and tools do: to a temporary file, then renamed.
    fn rename_in(&self, name: &str, text: &str) {
        let temporary = self.path("policy.tmp");
        fs::write(&temporary, text).unwrap();
        fs::rename(temporary, self.path(name)).unwrap();
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

type TestReloader = PolicyReloader<MemoryStore<Arc<ManualClock>>>;

fn open(path: &Path) -> (TestReloader, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::at(START));
    let store = MemoryStore::with_clock(1_000, Arc::clone(&clock)).unwrap();
    (
        PolicyReloader::open_policy(path, [7; 16], store).unwrap(),
        clock,
    )
}

fn policy(units: u64) -> String {
    format!("limits:\n  - name: api\n    key: header.user\n    rate: {units}/s\n")
}

/// The current limit.
fn current_limit(reloader: &TestReloader) -> u64 {
    let verdict = reloader
        .engine()
        .engine()
        .peek(&TestCaller::named("nobody"));
    verdict.limits()[0].status.limit
}
