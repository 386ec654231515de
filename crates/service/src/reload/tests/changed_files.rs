//! Valid changes of a policy file, and the state of limits across reloads.

use std::fs;

use tollgate_core::{Nanos, Outcome};
use tollgate_engine::control::{Attribution, Halt, Switch};
use tollgate_testkit::test_requests::TestCaller;

use super::{Dir, START, current_limit, open, policy};
use crate::reload::ReloadOutcome;

#[test]
fn a_changed_file_is_loaded_and_the_status_says_so() {
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
    // As `sha256sum` prints it. It was keyed by a random secret, so two servers with the same file logged two digests.
    assert_eq!(second.hash.to_string(), "9ef60edc6452b01b01dceeeb78c0ef08");
    assert_eq!(current_limit(&reloader), 9);
    assert_eq!(
        reloader.reload_now(),
        ReloadOutcome::Reloaded(3),
        "a forced reload always loads"
    );
}

#[test]
fn s40_a_symbolic_link_swapped_by_kubernetes_is_followed() {
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
    assert_eq!(current_limit(&reloader), 8);
}

#[test]
fn s41_a_limit_in_use_is_raised_lowered_and_changed_to_another_algorithm() {
    let dir = Dir::new("hot");
    dir.write("policy.yaml", &policy(10));
    let (reloader, clock) = open(&dir.path("policy.yaml"));
    let alice = TestCaller::named("alice");
    let decide = || reloader.engine().engine().decide(&alice);
    while decide().is_admitted() {}
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
    assert_eq!(
        change(&policy(100)),
        0,
        "the time until full stays the same"
    );
    clock.advance(Nanos::from_millis(500));
    assert_eq!(
        change(&policy(100).replace("api\n", "api\n    message: hello\n")),
        50
    );
    assert_eq!(change(&policy(2)), 1);
    assert_eq!(change(&policy(1)), 0);
    let Outcome::Deny { retry_after } = decide().outcome() else {
        panic!("denied for half a second");
    };
    assert_eq!(retry_after, Nanos::from_millis(500));
    let window = |units: u64| format!("{}    algorithm: fixed_window\n", policy(units));
    assert_eq!(change(&window(3)), 3, "another algorithm has a new state");
    assert!(decide().is_admitted());
    assert_eq!(change(&window(7)), 6);
    assert_eq!(change(&window(1)), 0);
    assert_eq!(
        change(&policy(10)),
        5,
        "the state of the first algorithm is still there"
    );
}

#[test]
fn an_operators_switch_survives_a_reload() {
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
