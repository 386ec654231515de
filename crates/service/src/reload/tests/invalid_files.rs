//! Invalid, missing and partly written files: the current policy stays.

use std::fs;
use std::sync::{Arc, Mutex};

use tollgate_policy::load_path;
use tollgate_store::MemoryStore;
use tollgate_testkit::test_requests::TestCaller;

use super::{Dir, current_limit, open, policy};
use crate::reload::{PolicyReloader, ReloadOutcome};

/// Invalid policies: a name, the text, and the location of the error.
fn invalid_policies() -> [(&'static str, String, &'static str); 9] {
    [
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
    ]
}

#[test]
fn s40_an_invalid_file_leaves_the_current_policy_and_the_error_says_where() {
    let dir = Dir::new("wrong");
    let path = dir.path("policy.yaml");
    dir.write("policy.yaml", &policy(5));
    let (reloader, _clock) = open(&path);
    for (what, text, location) in invalid_policies() {
        dir.write("policy.yaml", &text);
        assert_eq!(
            reloader.reload_if_changed(),
            ReloadOutcome::Rejected,
            "{what}"
        );
        let status = reloader.status();
        assert!(!status.valid, "{what}");
        assert_eq!(
            (status.generation, current_limit(&reloader)),
            (1, 5),
            "{what}"
        );
        let error = status.error.unwrap();
        assert_eq!(
            error,
            load_path(&path).unwrap_err(),
            "{what}: `load_path` reports the same"
        );
        let text = error.to_string();
        assert!(
            text.starts_with(&format!("{}:{location}", path.display())),
            "{what}: {text}"
        );
        assert_eq!(
            reloader.reload_if_changed(),
            ReloadOutcome::Unchanged,
            "{what}: rejected once"
        );
        assert_eq!(
            reloader.reload_now(),
            ReloadOutcome::Rejected,
            "{what}: a forced reload rejects it again"
        );
        // The edit is reverted.
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
    assert_eq!(current_limit(&reloader), 5);
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
        assert_eq!(
            (status.valid, current_limit(&reloader)),
            (false, 5),
            "{what}"
        );
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
        "the link's target exists now"
    );
    assert!(reloader.status().valid);
    assert_eq!(current_limit(&reloader), 6);
}

/// Writes every prefix of a file, with the reload's outcome and the limit after each.
fn reload_prefixes(name: &str, before: &str, text: &str) -> Vec<(usize, ReloadOutcome, u64)> {
    let dir = Dir::new(name);
    dir.write("policy.yaml", before);
    let (reloader, _clock) = open(&dir.path("policy.yaml"));
    let mut outcomes = Vec::new();
    for len in 0..=text.len() {
        dir.write("policy.yaml", &text[..len]);
        outcomes.push((len, reloader.reload_if_changed(), current_limit(&reloader)));
    }
    outcomes
}

#[test]
fn s40_a_file_written_byte_by_byte_never_drops_a_limit() {
    let after = "limits:\n  - name: api\n    key: header.user\n    rate: 80/s\n";
    let outcomes = reload_prefixes("bytes", &policy(5), after);
    for (len, outcome, limit) in &outcomes {
        let written = &after[..*len];
        // A prefix that is a complete policy is loaded. No prefix drops the limit.
        match outcome {
            ReloadOutcome::Reloaded(_) => assert!(written.contains("rate: 80/s"), "{written:?}"),
            _ => assert!(
                *limit == 5 || written.contains("rate: 80/s"),
                "{written:?}: {limit}"
            ),
        }
    }
    assert_eq!(outcomes.last().unwrap().2, 80);
    assert_eq!(
        outcomes
            .iter()
            .filter(|(_, outcome, _)| matches!(outcome, ReloadOutcome::Reloaded(_)))
            .count(),
        2
    );
}

#[test]
fn s40_a_file_truncated_at_any_length_never_drops_all_limits() {
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
        let outcome = reloader.reload_if_changed();
        let rules = reloader
            .engine()
            .engine()
            .generation()
            .rules()
            .rules()
            .len();
        assert!(rules >= 1, "at {len}: {outcome:?}");
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
fn an_invalid_file_at_startup_is_an_error() {
    let dir = Dir::new("start");
    dir.write("policy.yaml", "limits: [");
    let store = MemoryStore::for_keys(10).unwrap();
    assert!(PolicyReloader::open_policy(&dir.path("policy.yaml"), [7; 16], store).is_err());
    let store = MemoryStore::for_keys(10).unwrap();
    assert!(PolicyReloader::open_policy(&dir.path("missing.yaml"), [7; 16], store).is_err());
}

#[test]
fn loads_and_rejections_are_counted_and_a_file_that_stays_invalid_counts_once() {
    let dir = Dir::new("counts");
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
    assert_eq!(counted(), (1, 3), "a forced reload counts again");
    dir.write("policy.yaml", &policy(9));
    reloader.reload_if_changed();
    assert_eq!(counted(), (2, 3));
}

/// A subscriber that records the level of each log line.
#[derive(Clone, Default)]
struct LogLevels(Arc<Mutex<Vec<tracing::Level>>>);

impl tracing::Subscriber for LogLevels {
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

/// The levels of the lines that a reload logs.
fn logged(reload: impl FnOnce() -> ReloadOutcome) -> Vec<&'static str> {
    let levels = LogLevels::default();
    // With a single dispatcher, tracing asks the default of the thread that logs an event first, and another test's thread has none:
    // the event would be off for good. With two it asks all dispatchers.
    let _second = tracing::Dispatch::new(LogLevels::default());
    let _outcome = tracing::subscriber::with_default(levels.clone(), reload);
    let lines = levels.0.lock().unwrap();
    lines.iter().map(tracing::Level::as_str).collect()
}

/// Only the first mistake was logged. After the second, after a deletion, and after a reload by hand the log was silent, and a
/// reader took the silence for success.
#[test]
fn every_reload_logs_its_result() {
    let (error, info, nothing) = ("ERROR", "INFO", [""; 0]);
    let dir = Dir::new("lines");
    dir.write("policy.yaml", &policy(5));
    let (reloader, _clock) = open(&dir.path("policy.yaml"));
    let look = || reloader.reload_if_changed();
    assert_eq!(logged(look), nothing, "nothing changed");
    dir.write("policy.yaml", "limits: 7\n");
    assert_eq!(logged(look), [error], "the first mistake");
    assert_eq!(logged(look), nothing, "the same file is looked at again");
    dir.write("policy.yaml", "limits: 8\n");
    assert_eq!(logged(look), [error], "the second mistake");
    assert_eq!(logged(|| reloader.reload_now()), [error], "by hand");
    fs::remove_file(dir.path("policy.yaml")).unwrap();
    assert_eq!(logged(look), [error], "deleted");
    assert_eq!(logged(look), nothing, "still deleted");
    assert_eq!(logged(|| reloader.reload_now()), [error], "by hand");
    fs::create_dir(dir.path("policy.yaml")).unwrap();
    assert_eq!(logged(look), [error], "unreadable for another reason");
    fs::remove_dir(dir.path("policy.yaml")).unwrap();
    dir.write("policy.yaml", &policy(5));
    assert_eq!(logged(look), [info], "valid again");
    assert_eq!(logged(look), nothing);
    assert_eq!(logged(|| reloader.reload_now()), [info], "by hand");
}
