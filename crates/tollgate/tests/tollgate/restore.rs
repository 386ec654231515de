//! Saving a limiter and restoring it in the next process.

use std::path::PathBuf;
use std::sync::Arc;

use tollgate::{
    FixedWindow, LeakyBucket, Limiter, LimiterBuilder, Limits, ManualClock, Nanos, Rate,
    RestoreError, SlidingCounter, SlidingLog, SnapshotError, Timestamp, TokenBucket, Window,
};

const START: Timestamp = Timestamp::from_secs(1_700_000_000);

/// A file that is deleted at the end of the test.
struct TempFile(PathBuf);

impl TempFile {
    fn new(name: &str) -> Self {
        let name = format!("tollgate-restore-{}-{name}", std::process::id());
        Self(std::env::temp_dir().join(name))
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        std::fs::remove_file(&self.0).ok();
    }
}

fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::at(START))
}

/// One limit of each algorithm, in this order.
fn all_algorithms(order: [&'static str; 5]) -> LimiterBuilder<Limits, Arc<ManualClock>> {
    let mut limits = Limiter::builder().clock(clock());
    for name in order {
        limits = match name {
            "log" => limits.limit(name, SlidingLog::builder(100, Nanos::HOUR)),
            "window" => limits.limit(name, SlidingCounter::builder(100, Nanos::HOUR)),
            "fixed" => {
                let window = Window::Epoch(Nanos::HOUR);
                limits.limit(name, FixedWindow::builder(100, window))
            }
            "leaky" => limits.limit(name, LeakyBucket::meter(Rate::per_hour(100)).burst(99)),
            _ => limits.limit(name, TokenBucket::builder(Rate::per_hour(100))),
        };
    }
    limits
}

#[test]
fn every_limit_goes_on_after_a_restart_in_any_order_and_with_another_number_of_keys() {
    let file = TempFile::new("all");
    let order = ["log", "window", "fixed", "leaky", "bucket"];
    let other = ["bucket", "fixed", "log", "leaky", "window"];
    let first = all_algorithms(order).build().unwrap();
    for n in 0..50 {
        first.check_n(format!("user-{n}"), n).unwrap();
    }
    first.save(&file.0).unwrap();
    let second = all_algorithms(other).keys(777).restore(&file.0).unwrap();
    for n in 0..50 {
        let status = second.peek(format!("user-{n}")).unwrap();
        let remaining: Vec<u64> = status.limits().map(|one| one.remaining).collect();
        assert_eq!(remaining, [100 - n; 5], "user-{n}");
    }
}

#[test]
fn a_limit_with_another_name_algorithm_or_window_starts_empty_and_never_in_anothers_state() {
    let file = TempFile::new("other");
    let limiter = Limiter::per_hour(5).name("api").clock(clock());
    let limiter = limiter.build().unwrap();
    limiter.check_n("alice", 5).unwrap();
    limiter.save(&file.0).unwrap();
    let other = Limiter::per_hour(5).name("other").clock(clock());
    assert!(other.restore(&file.0).unwrap().check("alice").is_ok());
    let faster = Limiter::per_hour(9).name("api").clock(clock());
    let faster = faster.restore(&file.0).unwrap();
    assert!(faster.check("alice").is_err(), "debt keeps its length");
    let window = Limiter::builder().limit("api", SlidingCounter::builder(5, Nanos::HOUR));
    let window = window.clock(clock()).restore(&file.0).unwrap();
    window.check_n("alice", 5).unwrap();
    window.save(&file.0).unwrap();
    let with = |length| {
        let counter = SlidingCounter::builder(5, length);
        let builder = Limiter::builder().limit("api", counter).clock(clock());
        builder.restore(&file.0).unwrap()
    };
    assert!(with(Nanos::HOUR).check("alice").is_err());
    assert!(with(Nanos::from_secs(7_200)).check("alice").is_ok());
}

#[test]
fn a_damaged_or_missing_file_is_an_error_and_never_a_panic() {
    let file = TempFile::new("damaged");
    let builder = || Limiter::per_hour(5).keys(10).clock(clock());
    let missing = builder().restore(&file.0).unwrap_err();
    assert!(matches!(
        missing,
        RestoreError::Snapshot(SnapshotError::Io(_))
    ));
    let limiter = builder().build().unwrap();
    limiter.check_n("alice", 5).unwrap();
    let mut whole = Vec::new();
    limiter.save_to(&mut whole).unwrap();
    let load = |bytes: &[u8]| builder().load_from(&mut &*bytes);
    assert!(load(&whole).unwrap().check("alice").is_err());
    for at in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x41;
        assert!(load(&damaged).is_err(), "byte {at}");
        assert!(load(&whole[..at]).is_err(), "cut at {at}");
    }
    std::fs::write(&file.0, [&*whole, b"more"].concat()).unwrap();
    assert!(builder().restore(&file.0).is_err());
}
