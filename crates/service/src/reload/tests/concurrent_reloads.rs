//! Decisions during reloads: every verdict is from one generation of the policy.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use tollgate_engine::Verdict;
use tollgate_testkit::test_requests::TestCaller;

use super::{Dir, open};
use crate::reload::ReloadOutcome;

/// Version `n` of a policy: `n` limits of `1000 × n` per hour, each with the version as its message.
fn version(n: u64) -> String {
    let limit = |index: u64| {
        format!(
            "  - name: limit-{index}\n    key: header.user\n    rate: {}/h\n    message: \"{n}\"\n",
            1_000 * n
        )
    };
    format!("limits:\n{}", (0..n).map(limit).collect::<String>())
}

fn is_from_one_version(verdict: &Verdict) -> bool {
    let states = verdict.limits();
    let n = u64::try_from(states.len()).unwrap();
    // The last limit is the built-in one of preflights.
    verdict.generation().rules().preflight_rule() == Some(states.len())
        && states.iter().all(|state| {
            let rule = verdict.rule(state);
            let message = rule.and_then(|rule| rule.message.as_deref());
            state.status.limit == 1_000 * n && message == Some(&*n.to_string())
        })
}

#[test]
fn i09_every_verdict_during_reloads_of_valid_and_invalid_files_is_explained_by_one_generation() {
    let dir = Dir::new("load");
    dir.write("policy.yaml", &version(1));
    let (reloader, _clock) = open(&dir.path("policy.yaml"));
    let (done, decided) = (AtomicBool::new(false), AtomicU64::new(0));
    let verdicts: [AtomicU64; 5] = std::array::from_fn(|_| AtomicU64::new(0));
    thread::scope(|scope| {
        for index in 0..4 {
            let (reloader, done, decided, verdicts) = (&reloader, &done, &decided, &verdicts);
            scope.spawn(move || {
                let caller = TestCaller::named(&format!("user-{index}"));
                while !done.load(Ordering::Relaxed) {
                    let verdict = reloader.engine().engine().decide(&caller);
                    assert!(is_from_one_version(&verdict), "{verdict:?}");
                    verdicts[verdict.limits().len()].fetch_add(1, Ordering::Relaxed);
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
                // At least one decision happens between two reloads.
                let before = decided.load(Ordering::Relaxed);
                while decided.load(Ordering::Relaxed) == before {
                    thread::yield_now();
                }
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    let [none, versions @ ..] = verdicts.map(AtomicU64::into_inner);
    assert_eq!(none, 0, "an invalid file never removed all limits");
    assert!(versions.iter().all(|count| *count > 0), "{versions:?}");
}

#[test]
fn control_a_verdict_from_two_versions_is_detected() {
    let dir = Dir::new("control");
    dir.write("policy.yaml", &version(2).replacen("\"2\"", "\"3\"", 1));
    let (reloader, _clock) = open(&dir.path("policy.yaml"));
    assert!(!is_from_one_version(
        &reloader
            .engine()
            .engine()
            .decide(&TestCaller::named("alice"))
    ));
}
