//! Files that are still being written, and reads that never end.

use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use tollgate_core::{Nanos, Timestamp};
use tollgate_engine::LimitIdsExhausted;
use tollgate_files::FileWorker;
use tollgate_policy::source::Diagnostics;

use super::{Dir, START, current_limit, open, policy};
use crate::reload::{Fingerprint, ReloadOutcome, Reloadable, Reloader, Sources, WatchTiming};

/// A deployment tool wrote a policy of 41 limits in steps with pauses of 0.4 s. After the first step the file was a valid policy of
/// one limit, and the server took it: for as long as the tool wrote, 40 limits were gone.
#[test]
fn i09_a_file_that_is_written_in_steps_never_takes_effect_half() {
    let WatchTiming { settle, .. } = WatchTiming::default();
    let dir = Dir::new("steps");
    dir.write("policy.yaml", &policy(5));
    let (reloader, clock) = open(&dir.path("policy.yaml"));
    let mut text = policy(9);
    for step in 0..40 {
        dir.write("policy.yaml", &text);
        assert_eq!(
            reloader.reload_if_settled(settle),
            ReloadOutcome::Settling,
            "step {step}"
        );
        clock.advance(Nanos::from_millis(400));
        assert_eq!(
            reloader.reload_if_settled(settle),
            ReloadOutcome::Settling,
            "step {step}"
        );
        assert_eq!(current_limit(&reloader), 5);
        assert!(reloader.status().valid, "nothing is rejected meanwhile");
        text += &format!("  - name: limit-{step}\n    rate: 1/s\n");
    }
    dir.write("policy.yaml", &text);
    assert_eq!(reloader.reload_if_settled(settle), ReloadOutcome::Settling);
    clock.advance(Nanos::from_millis(999));
    assert_eq!(reloader.reload_if_settled(settle), ReloadOutcome::Settling);
    clock.advance(Nanos::from_millis(1));
    assert_eq!(
        reloader.reload_if_settled(settle),
        ReloadOutcome::Reloaded(2)
    );
    assert_eq!(reloader.engine().limit_names().len(), 41);
    assert_eq!(reloader.reload_if_settled(settle), ReloadOutcome::Unchanged);
}

#[test]
fn a_file_that_is_missing_for_a_moment_and_an_edit_that_is_reverted_are_not_reported() {
    let settle = Duration::from_secs(1);
    let dir = Dir::new("moment");
    dir.write("policy.yaml", &policy(5));
    let (reloader, clock) = open(&dir.path("policy.yaml"));
    std::fs::remove_file(dir.path("policy.yaml")).unwrap();
    assert_eq!(reloader.reload_if_settled(settle), ReloadOutcome::Settling);
    clock.advance(Nanos::from_millis(900));
    dir.write("policy.yaml", "limits: [");
    assert_eq!(reloader.reload_if_settled(settle), ReloadOutcome::Settling);
    clock.advance(Nanos::from_millis(900));
    dir.write("policy.yaml", &policy(5));
    assert_eq!(reloader.reload_if_settled(settle), ReloadOutcome::Unchanged);
    assert_eq!(reloader.status().refusals, 0);
    // A control: what stays invalid is reported, and an operator need not wait.
    dir.write("policy.yaml", "limits: [");
    assert_eq!(reloader.reload_if_settled(settle), ReloadOutcome::Settling);
    clock.set(START);
    assert_eq!(reloader.reload_if_settled(settle), ReloadOutcome::Settling);
    clock.advance(Nanos::SECOND);
    assert_eq!(reloader.reload_if_settled(settle), ReloadOutcome::Rejected);
    dir.write("policy.yaml", &policy(6));
    assert_eq!(reloader.reload_now(), ReloadOutcome::Reloaded(2));
}

/// Reads wait for this while it is set: a mount that does not answer.
static HUNG: Mutex<Option<Receiver<()>>> = Mutex::new(None);

struct HungEngine;

impl Reloadable for HungEngine {
    type Rules = ();
    type Options = ();

    fn read(path: &Path) -> Result<Sources, Vec<Diagnostics>> {
        let hung = HUNG.lock().unwrap().take();
        if let Some(hung) = hung {
            hung.recv().ok();
        }
        Ok(vec![(path.to_owned(), Vec::new())])
    }

    fn fingerprint(_: &Sources, secret: [u8; 16]) -> Fingerprint {
        Fingerprint(secret)
    }

    fn compile(_: Sources, _: &Path, _: [u8; 16], (): &()) -> Result<(), Vec<Diagnostics>> {
        Ok(())
    }

    fn options(&self) -> &() {
        &()
    }

    fn swap(&self, (): ()) -> Result<u64, LimitIdsExhausted> {
        Ok(2)
    }

    fn limit_names(&self) -> Vec<Box<str>> {
        Vec::new()
    }

    fn generation(&self) -> u64 {
        1
    }

    fn now(&self) -> Timestamp {
        START
    }
}

/// A policy on a mount that hung held the lock of the status for ever. Metrics, health, the kill switch and the end of the process
/// waited for that lock.
#[test]
fn s40_while_a_read_hangs_the_status_answers_and_further_reloads_say_so() {
    let mut reloader =
        Reloader::open(Path::new("policy.yaml"), [7; 16], &(), |()| Ok(HungEngine)).unwrap();
    reloader.worker = FileWorker::with_deadline("read", Duration::from_millis(50));
    let reloader = Arc::new(reloader);
    let (release, hung): (SyncSender<()>, _) = sync_channel(1);
    *HUNG.lock().unwrap() = Some(hung);
    let reload = Arc::clone(&reloader);
    let reloading = thread::spawn(move || reload.reload_now());
    // The thread has begun to read when it has taken the receiver.
    while HUNG.lock().unwrap().is_some() {
        assert!(reloader.status().valid);
    }
    assert!(reloader.status().generation == 1, "it does not wait");
    assert_eq!(reloading.join().unwrap(), ReloadOutcome::Rejected);
    let error = || reloader.status().error.unwrap().to_string();
    assert!(
        error().contains("the read did not finish within 50ms"),
        "{}",
        error()
    );
    assert_eq!(reloader.reload_now(), ReloadOutcome::Rejected);
    assert!(
        error().contains("the previous read has not finished"),
        "{}",
        error()
    );
    drop(release);
    while reloader.reload_now() != ReloadOutcome::Reloaded(2) {
        thread::yield_now();
    }
    assert!(
        reloader.status().valid,
        "it recovers when the mount answers"
    );
}
