//! What triggers a reload: events of the operating system, and polling without them.

use std::fs;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use tollgate_core::Timestamp;

use super::{Dir, current_limit, open, policy};
use crate::reload::{
    ChangeEvents, FileWatcher, ReloadOutcome, WatchEvent, WatchTiming, run_debounced,
};

/// A source without events: it times out this often, then closes.
struct NoEvents(usize);

impl ChangeEvents for NoEvents {
    fn next(&mut self, _timeout: Duration) -> WatchEvent {
        match self.0.checked_sub(1) {
            Some(rest) => {
                self.0 = rest;
                WatchEvent::TimedOut
            }
            None => WatchEvent::Closed,
        }
    }

    fn now(&self) -> Timestamp {
        Timestamp::EPOCH
    }
}

#[test]
fn polling_finds_changes_without_events() {
    let dir = Dir::new("poll");
    dir.write("policy.yaml", &policy(5));
    let (reloader, _clock) = open(&dir.path("policy.yaml"));
    dir.write("policy.yaml", &policy(6));
    let mut outcomes = Vec::new();
    run_debounced(&mut NoEvents(1), WatchTiming::default(), || {
        outcomes.push(reloader.reload_if_changed());
        false
    });
    assert_eq!(
        outcomes,
        [ReloadOutcome::Reloaded(2), ReloadOutcome::Unchanged]
    );
}

#[test]
fn an_event_reports_a_symbolic_link_swapped_by_kubernetes() {
    let dir = Dir::new("watch-link");
    let link = |version: &str, units: u64| {
        fs::create_dir(dir.path(version)).unwrap();
        fs::write(dir.path(version).join("policy.yaml"), policy(units)).unwrap();
        std::os::unix::fs::symlink(version, dir.path("..data_tmp")).unwrap();
        fs::rename(dir.path("..data_tmp"), dir.path("..data")).unwrap();
    };
    link("..2026_01", 5);
    std::os::unix::fs::symlink("..data/policy.yaml", dir.path("policy.yaml")).unwrap();
    let (reloader, _clock) = open(&dir.path("policy.yaml"));
    let timing = WatchTiming {
        debounce: Duration::from_millis(5),
        // The clock of the engine stands still.
        settle: Duration::ZERO,
        poll: Duration::from_secs(3_600),
    };
    let (send, looks) = sync_channel(100);
    let on_reload = move |outcome| send.send(outcome).unwrap();
    let _watch = FileWatcher::start(Arc::new(reloader), timing, on_reload).unwrap();
    link("..2026_02", 6);
    while looks.recv_timeout(Duration::from_secs(60)).unwrap() != ReloadOutcome::Reloaded(2) {}
}

#[test]
fn events_report_changes_and_the_thread_ends_with_its_watcher() {
    let dir = Dir::new("watch");
    dir.write("policy.yaml", &policy(5));
    let (reloader, _clock) = open(&dir.path("policy.yaml"));
    let reloader = Arc::new(reloader);
    // The poll interval is so long that only events cause reloads.
    let timing = WatchTiming {
        debounce: Duration::from_millis(5),
        // The clock of the engine stands still.
        settle: Duration::ZERO,
        poll: Duration::from_secs(3_600),
    };
    let (send, looks) = sync_channel(100);
    let on_reload = move |outcome| send.send(outcome).unwrap();
    let watcher = FileWatcher::start(Arc::clone(&reloader), timing, on_reload).unwrap();
    assert!(watcher.is_notified());
    let next = || loop {
        match looks.recv_timeout(Duration::from_secs(60)).unwrap() {
            ReloadOutcome::Unchanged => {}
            other => break other,
        }
    };
    dir.write("policy.yaml", &policy(6));
    // A file that is written in place may be read while it is empty.
    let mut first = next();
    while first == ReloadOutcome::Rejected {
        first = next();
    }
    assert_eq!(first, ReloadOutcome::Reloaded(2));
    dir.rename_in("policy.yaml", &policy(7));
    assert_eq!(next(), ReloadOutcome::Reloaded(3));
    dir.rename_in("policy.yaml", "limits: [");
    assert_eq!(next(), ReloadOutcome::Rejected);
    assert_eq!(current_limit(&reloader), 7);
    drop(watcher);
    assert_eq!(Arc::strong_count(&reloader), 1, "the thread has ended");
}
