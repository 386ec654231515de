//! Files that change under an engine: right, wrong, half written, gone, and swapped by a link.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::Duration;

use tollgate_core::{Nanos, Outcome, Timestamp};
use tollgate_engine::Verdict;
use tollgate_engine::control::{Attribution, Halt, Switch};
use tollgate_policy::load_path;
use tollgate_store::{ManualClock, MemoryStore};

use super::{
    ChangeEvents, FileWatcher, Fingerprint, PolicyReloader, ReloadOutcome, WatchEvent, WatchTiming,
    run_debounced,
};
use tollgate_testkit::test_requests::TestCaller;

/// When tests begin.
const START: Timestamp = Timestamp::from_secs(1_700_000_000);

/// A directory that is gone when the test is over.
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

    /// As editors and tools write: beside it, then renamed.
    fn rename_in(&self, name: &str, text: &str) {
        let beside = self.path("beside.tmp");
        fs::write(&beside, text).unwrap();
        fs::rename(beside, self.path(name)).unwrap();
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

/// The limit that is in force.
fn in_force(reloader: &TestReloader) -> u64 {
    let verdict = reloader
        .engine()
        .engine()
        .peek(&TestCaller::named("nobody"));
    verdict.limits()[0].status.limit
}

#[test]
fn a_changed_file_is_put_in_force_and_the_status_says_so() {
    let dir = Dir::new("changed");
    dir.write("policy.yaml", &policy(5));
    let path = dir.path("policy.yaml");
    let (reloader, clock) = open(&path);
    assert_eq!(reloader.reload_if_changed(), ReloadOutcome::Unchanged);
    let first = reloader.status();
    assert_eq!(
        (first.valid, first.generation, first.loaded_at),
        (true, 1, START)
    );
    clock.advance(Nanos::MINUTE);
    dir.write("policy.yaml", &policy(9));
    assert_eq!(reloader.reload_if_changed(), ReloadOutcome::Reloaded(2));
    assert_eq!(reloader.reload_if_changed(), ReloadOutcome::Unchanged);
    let second = reloader.status();
    assert_eq!(
        (second.generation, second.loaded_at),
        (2, START.after(Nanos::MINUTE))
    );
    assert_ne!(first.hash, second.hash);
    assert_eq!(
        second.hash,
        Fingerprint::from_parts([policy(9).as_bytes()], [7; 16])
    );
    assert_eq!(in_force(&reloader), 9);
    assert_eq!(
        reloader.reload_now(),
        ReloadOutcome::Reloaded(3),
        "whoever asks for it gets it"
    );
}

#[test]
fn s40_whatever_is_wrong_with_a_file_the_last_good_one_stays_and_the_error_says_where() {
    let dir = Dir::new("wrong");
    let path = dir.path("policy.yaml");
    dir.write("policy.yaml", &policy(5));
    let (reloader, _clock) = open(&path);
    let wrong = [
        ("empty", String::new(), "1:1"),
        ("blank", "\n\n".to_owned(), "1:1"),
        ("a comment", "# soon\n".to_owned(), "1:1"),
        ("wrong type", "limits: 7\n".to_owned(), "1:9"),
        ("wrong rate", policy(5).replace("5/s", "5/q"), "4:11"),
        (
            "duplicate",
            format!("{}  - name: api\n    rate: 1/s\n", policy(5)),
            "5:11",
        ),
        (
            "unknown field",
            format!("{}    brust: 3\n", policy(5)),
            "5:5",
        ),
        ("twice", format!("{}    rate: 3/s\n", policy(5)), "5:5"),
        ("not closed", "limits: [".to_owned(), "1:"),
    ];
    for (what, text, place) in wrong {
        dir.write("policy.yaml", &text);
        assert_eq!(
            reloader.reload_if_changed(),
            ReloadOutcome::Rejected,
            "{what}"
        );
        let status = reloader.status();
        assert!(!status.valid, "{what}");
        assert_eq!((status.generation, in_force(&reloader)), (1, 5), "{what}");
        let error = status.error.unwrap();
        assert_eq!(
            error,
            load_path(&path).unwrap_err(),
            "{what}: checking says the same"
        );
        let told = error.to_string();
        assert!(
            told.starts_with(&format!("{}:{place}", path.display())),
            "{what}: {told}"
        );
        assert_eq!(
            reloader.reload_if_changed(),
            ReloadOutcome::Unchanged,
            "{what}: once is enough"
        );
        assert_eq!(
            reloader.reload_now(),
            ReloadOutcome::Rejected,
            "{what}: unless somebody asks"
        );
        // The mistake is taken back.
        dir.write("policy.yaml", &policy(5));
        assert_eq!(
            reloader.reload_if_changed(),
            ReloadOutcome::Unchanged,
            "{what}"
        );
        assert!(
            reloader.status().valid && reloader.status().error.is_none(),
            "{what}"
        );
    }
    fs::write(&path, [0xff, 0xfe, 0x00]).unwrap();
    assert_eq!(reloader.reload_if_changed(), ReloadOutcome::Rejected);
    assert_eq!(in_force(&reloader), 5);
}

#[test]
fn s40_a_file_that_cannot_be_read_is_tried_again_each_time() {
    let dir = Dir::new("unreadable");
    let path = dir.path("policy.yaml");
    dir.write("policy.yaml", &policy(5));
    let (reloader, _clock) = open(&path);
    let refused = |what: &str| {
        for _ in 0..2 {
            assert_eq!(
                reloader.reload_if_changed(),
                ReloadOutcome::Rejected,
                "{what}"
            );
        }
        let status = reloader.status();
        assert_eq!((status.valid, in_force(&reloader)), (false, 5), "{what}");
        assert!(
            status.error.unwrap().to_string().contains("cannot be read"),
            "{what}"
        );
    };
    fs::remove_file(&path).unwrap();
    refused("gone");
    fs::create_dir(&path).unwrap();
    refused("a directory");
    fs::remove_dir(&path).unwrap();
    std::os::unix::fs::symlink(dir.path("nowhere"), &path).unwrap();
    refused("a link to nowhere");
    dir.write("nowhere", &policy(6));
    assert_eq!(
        reloader.reload_if_changed(),
        ReloadOutcome::Reloaded(2),
        "the link leads somewhere now"
    );
    assert!(reloader.status().valid);
    assert_eq!(in_force(&reloader), 6);
}

/// Every beginning of a file, with what a look at it came to.
fn grown(name: &str, before: &str, text: &str) -> Vec<(usize, ReloadOutcome, u64)> {
    let dir = Dir::new(name);
    dir.write("policy.yaml", before);
    let (reloader, _clock) = open(&dir.path("policy.yaml"));
    let mut seen = Vec::new();
    for len in 0..=text.len() {
        dir.write("policy.yaml", &text[..len]);
        seen.push((len, reloader.reload_if_changed(), in_force(&reloader)));
    }
    seen
}

#[test]
fn s40_a_file_that_is_written_byte_by_byte_is_never_less_than_one_of_its_versions() {
    let after = "limits:\n  - name: api\n    key: header.user\n    rate: 80/s\n";
    let seen = grown("bytes", &policy(5), after);
    for (len, looked, limit) in &seen {
        let written = &after[..*len];
        // What looks complete is taken for complete; no beginning of a file drops the limit or all limits.
        match looked {
            ReloadOutcome::Reloaded(_) => assert!(written.contains("rate: 80/s"), "{written:?}"),
            _ => assert!(
                *limit == 5 || written.contains("rate: 80/s"),
                "{written:?}: {limit}"
            ),
        }
    }
    assert_eq!(seen.last().unwrap().2, 80);
    assert_eq!(
        seen.iter()
            .filter(|(_, looked, _)| matches!(looked, ReloadOutcome::Reloaded(_)))
            .count(),
        2
    );
}

#[test]
fn s40_a_file_that_is_cut_at_any_length_never_drops_to_nothing() {
    let mut text = String::from("limits:\n");
    for name in ["api", "second", "third"] {
        text.push_str(&format!(
            "  - name: {name}\n    key: header.user\n    rate: 5/s\n"
        ));
    }
    let dir = Dir::new("cut");
    dir.write("policy.yaml", &text);
    let (reloader, _clock) = open(&dir.path("policy.yaml"));
    for len in (0..text.len()).rev() {
        dir.write("policy.yaml", &text[..len]);
        let looked = reloader.reload_if_changed();
        let rules = reloader
            .engine()
            .engine()
            .generation()
            .rules()
            .rules()
            .len();
        assert!(rules >= 1, "at {len}: {looked:?}");
        assert!(
            !reloader
                .engine()
                .engine()
                .peek(&TestCaller::named("x"))
                .limits()
                .is_empty()
        );
    }
}

#[test]
fn s40_a_link_that_kubernetes_swaps_is_followed() {
    let dir = Dir::new("kubernetes");
    let version = |name: &str, units: u64| {
        fs::create_dir(dir.path(name)).unwrap();
        fs::write(dir.path(name).join("policy.yaml"), policy(units)).unwrap();
    };
    let link = |to: &str| {
        std::os::unix::fs::symlink(to, dir.path("..data_tmp")).unwrap();
        fs::rename(dir.path("..data_tmp"), dir.path("..data")).unwrap();
    };
    version("..2026_01", 5);
    link("..2026_01");
    std::os::unix::fs::symlink("..data/policy.yaml", dir.path("policy.yaml")).unwrap();
    let (reloader, _clock) = open(&dir.path("policy.yaml"));
    version("..2026_02", 8);
    assert_eq!(reloader.reload_if_changed(), ReloadOutcome::Unchanged);
    link("..2026_02");
    fs::remove_dir_all(dir.path("..2026_01")).unwrap();
    assert_eq!(reloader.reload_if_changed(), ReloadOutcome::Reloaded(2));
    assert_eq!(in_force(&reloader), 8);
}

#[test]
fn a_file_that_is_wrong_at_the_start_starts_nothing() {
    let dir = Dir::new("start");
    dir.write("policy.yaml", "limits: [");
    let store = MemoryStore::for_keys(10).unwrap();
    assert!(PolicyReloader::open_policy(&dir.path("policy.yaml"), [7; 16], store).is_err());
    let store = MemoryStore::for_keys(10).unwrap();
    assert!(PolicyReloader::open_policy(&dir.path("missing.yaml"), [7; 16], store).is_err());
}

#[test]
fn s41_a_limit_is_raised_lowered_and_counted_otherwise_while_it_is_hot() {
    let dir = Dir::new("hot");
    dir.write("policy.yaml", &policy(10));
    let (reloader, clock) = open(&dir.path("policy.yaml"));
    let alice = TestCaller::named("alice");
    let ask = || reloader.engine().engine().decide(&alice);
    while ask().is_admitted() {}
    let change = |text: &str| {
        dir.write("policy.yaml", text);
        assert!(matches!(
            reloader.reload_if_changed(),
            ReloadOutcome::Reloaded(_)
        ));
        let verdict = reloader.engine().engine().peek(&alice);
        let status = verdict.limits()[0].status;
        assert!(status.remaining <= status.limit);
        status.remaining
    };
    assert_eq!(change(&policy(100)), 0, "a debt of a second stays one");
    clock.advance(Nanos::from_millis(500));
    assert_eq!(
        change(&policy(100).replace("api\n", "api\n    message: hello\n")),
        50
    );
    assert_eq!(change(&policy(2)), 1);
    assert_eq!(change(&policy(1)), 0);
    let Outcome::Deny { retry_after } = ask().outcome() else {
        panic!("one a second, and half of it is owed");
    };
    assert_eq!(retry_after, Nanos::from_millis(500));
    let window = |units: u64| format!("{}    algorithm: fixed_window\n", policy(units));
    assert_eq!(change(&window(3)), 3, "another algorithm begins afresh");
    assert!(ask().is_admitted());
    assert_eq!(change(&window(7)), 6);
    assert_eq!(change(&window(1)), 0);
    assert_eq!(
        change(&policy(10)),
        5,
        "what was owed to the old one is still owed"
    );
}

#[test]
fn switches_hold_whatever_the_file_becomes() {
    let dir = Dir::new("switches");
    dir.write("policy.yaml", &policy(1));
    let (reloader, _clock) = open(&dir.path("policy.yaml"));
    let by = Attribution {
        who: "ada",
        why: "a test",
    };
    reloader
        .engine()
        .engine()
        .control()
        .switch(Some("api"), Switch::halted(Halt::Shadow), by)
        .unwrap();
    dir.write("policy.yaml", &policy(2));
    assert_eq!(reloader.reload_if_changed(), ReloadOutcome::Reloaded(2));
    for _ in 0..9 {
        assert!(
            reloader
                .engine()
                .engine()
                .decide(&TestCaller::named("alice"))
                .is_admitted()
        );
    }
}

/// Version `n`: `n` limits of `1000 × n` an hour, each with the version in its message.
fn version(n: u64) -> String {
    let limit = |index: u64| {
        format!(
            "  - name: limit-{index}\n    key: header.user\n    rate: {}/h\n    message: \"{n}\"\n",
            1_000 * n
        )
    };
    format!("limits:\n{}", (0..n).map(limit).collect::<String>())
}

fn is_of_one_version(verdict: &Verdict) -> bool {
    let states = verdict.limits();
    let n = u64::try_from(states.len()).unwrap();
    verdict.generation().rules().rules().len() == states.len()
        && states.iter().all(|state| {
            let rule = verdict.rule(state);
            let message = rule.and_then(|rule| rule.message.as_deref());
            state.status.limit == 1_000 * n && message == Some(&*n.to_string())
        })
}

#[test]
fn i09_every_verdict_under_reloads_of_right_and_wrong_files_is_explained_by_one_generation() {
    let dir = Dir::new("load");
    dir.write("policy.yaml", &version(1));
    let (reloader, _clock) = open(&dir.path("policy.yaml"));
    let (done, decided) = (AtomicBool::new(false), AtomicU64::new(0));
    let seen: [AtomicU64; 5] = std::array::from_fn(|_| AtomicU64::new(0));
    thread::scope(|scope| {
        for index in 0..4 {
            let (reloader, done, decided, seen) = (&reloader, &done, &decided, &seen);
            scope.spawn(move || {
                let caller = TestCaller::named(&format!("user-{index}"));
                while !done.load(Ordering::Relaxed) {
                    let verdict = reloader.engine().engine().decide(&caller);
                    assert!(is_of_one_version(&verdict), "{verdict:?}");
                    seen[verdict.limits().len()].fetch_add(1, Ordering::Relaxed);
                    decided.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for n in (0..60_u64).map(|n| 1 + (n + 1) % 4) {
            let wrong = version(n).replace("/h", "/q");
            for (text, is_right) in [(wrong, false), (version(n), true)] {
                dir.rename_in("policy.yaml", &text);
                let before = reloader.status().generation;
                let expected = if is_right {
                    ReloadOutcome::Reloaded(before + 1)
                } else {
                    ReloadOutcome::Rejected
                };
                assert_eq!(reloader.reload_if_changed(), expected);
                assert_eq!(reloader.status().valid, is_right);
                // At least one decision is made between two looks.
                let before = decided.load(Ordering::Relaxed);
                while decided.load(Ordering::Relaxed) == before {
                    thread::yield_now();
                }
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    let [none, versions @ ..] = seen.map(AtomicU64::into_inner);
    assert_eq!(none, 0, "a wrong file never left nothing in force");
    assert!(versions.iter().all(|count| *count > 0), "{versions:?}");
}

#[test]
fn control_a_verdict_of_two_versions_is_noticed() {
    let dir = Dir::new("control");
    dir.write("policy.yaml", &version(2).replacen("\"2\"", "\"3\"", 1));
    let (reloader, _clock) = open(&dir.path("policy.yaml"));
    assert!(!is_of_one_version(
        &reloader
            .engine()
            .engine()
            .decide(&TestCaller::named("alice"))
    ));
}

/// Counts the lines of the log, by their level.
#[derive(Clone, Default)]
struct Lines(Arc<std::sync::Mutex<Vec<tracing::Level>>>);

impl tracing::Subscriber for Lines {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() <= tracing::Level::INFO
    }

    fn event(&self, event: &tracing::Event<'_>) {
        self.0.lock().unwrap().push(*event.metadata().level());
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

#[test]
fn a_file_that_goes_wrong_is_one_line_of_the_log_however_long_it_stays_wrong() {
    let dir = Dir::new("lines");
    dir.write("policy.yaml", &policy(5));
    let (reloader, _clock) = open(&dir.path("policy.yaml"));
    let lines = Lines::default();
    tracing::subscriber::with_default(lines.clone(), || {
        for len in 0..30 {
            dir.write("policy.yaml", &policy(6)[..len]);
            reloader.reload_if_changed();
        }
        fs::remove_file(dir.path("policy.yaml")).unwrap();
        for _ in 0..5 {
            reloader.reload_if_changed();
        }
        dir.write("policy.yaml", &policy(5));
        reloader.reload_if_changed();
        reloader.reload_if_changed();
    });
    let (error, info) = (tracing::Level::ERROR, tracing::Level::INFO);
    assert_eq!(*lines.0.lock().unwrap(), [error, info]);
}

/// Nothing is ever heard, so often.
struct Deaf(usize);

impl ChangeEvents for Deaf {
    fn next(&mut self, _patience: Duration) -> WatchEvent {
        match self.0.checked_sub(1) {
            Some(rest) => {
                self.0 = rest;
                WatchEvent::TimedOut
            }
            None => WatchEvent::Closed,
        }
    }
}

#[test]
fn where_nobody_tells_of_changes_the_poll_finds_them() {
    let dir = Dir::new("poll");
    dir.write("policy.yaml", &policy(5));
    let (reloader, _clock) = open(&dir.path("policy.yaml"));
    dir.write("policy.yaml", &policy(6));
    let mut looked = Vec::new();
    run_debounced(&mut Deaf(2), WatchTiming::default(), || {
        looked.push(reloader.reload_if_changed());
    });
    assert_eq!(
        looked,
        [ReloadOutcome::Reloaded(2), ReloadOutcome::Unchanged]
    );
}

#[test]
fn the_operating_system_tells_of_a_link_that_kubernetes_swaps() {
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
        settle: Duration::from_millis(5),
        poll: Duration::from_secs(3_600),
    };
    let (send, looks) = sync_channel(100);
    let told = move |looked| send.send(looked).unwrap();
    let _watch = FileWatcher::start(Arc::new(reloader), timing, told).unwrap();
    link("..2026_02", 6);
    while looks.recv_timeout(Duration::from_secs(60)).unwrap() != ReloadOutcome::Reloaded(2) {}
}

#[test]
fn the_operating_system_tells_of_changes_and_the_thread_ends_with_its_watch() {
    let dir = Dir::new("watch");
    dir.write("policy.yaml", &policy(5));
    let (reloader, _clock) = open(&dir.path("policy.yaml"));
    let reloader = Arc::new(reloader);
    // So seldom is polled that whatever is noticed was told.
    let timing = WatchTiming {
        settle: Duration::from_millis(5),
        poll: Duration::from_secs(3_600),
    };
    let (send, looks) = sync_channel(100);
    let told = move |looked| send.send(looked).unwrap();
    let watch = FileWatcher::start(Arc::clone(&reloader), timing, told).unwrap();
    assert!(watch.is_notified());
    let next = || loop {
        match looks.recv_timeout(Duration::from_secs(60)).unwrap() {
            ReloadOutcome::Unchanged => {}
            other => break other,
        }
    };
    dir.write("policy.yaml", &policy(6));
    // A file that is written in place may be seen empty first.
    let mut first = next();
    while first == ReloadOutcome::Rejected {
        first = next();
    }
    assert_eq!(first, ReloadOutcome::Reloaded(2));
    dir.rename_in("policy.yaml", &policy(7));
    assert_eq!(next(), ReloadOutcome::Reloaded(3));
    dir.rename_in("policy.yaml", "limits: [");
    assert_eq!(next(), ReloadOutcome::Rejected);
    assert_eq!(in_force(&reloader), 7);
    drop(watch);
    assert_eq!(Arc::strong_count(&reloader), 1, "the thread is gone");
}

#[test]
fn loads_and_refusals_are_counted_and_a_file_that_stays_wrong_counts_once() {
    let dir = Dir::new("counted");
    dir.write("policy.yaml", &policy(5));
    let path = dir.path("policy.yaml");
    let (reloader, _clock) = open(&path);
    let counted = || (reloader.status().loads, reloader.status().refusals);
    assert_eq!(counted(), (1, 0));
    dir.write("policy.yaml", "limits: 7\n");
    reloader.reload_if_changed();
    reloader.reload_if_changed();
    assert_eq!(counted(), (1, 1));
    fs::remove_file(&path).unwrap();
    reloader.reload_if_changed();
    reloader.reload_if_changed();
    assert_eq!(counted(), (1, 2));
    reloader.reload_now();
    assert_eq!(counted(), (1, 3), "whoever asks again is told again");
    dir.write("policy.yaml", &policy(9));
    reloader.reload_if_changed();
    assert_eq!(counted(), (2, 3));
}
