//! Resets of a key, and the cached denials that they invalidate.

use super::*;

#[test]
fn a_reset_erases_a_keys_usage_and_its_block() {
    let mut api = limit("api", quota(Algorithm::FixedWindow, &[(2, Nanos::HOUR)]));
    api.penalty = Penalty::Block(Nanos::HOUR).into();
    api.candidate = Some(quota(Algorithm::FixedWindow, &[(3, Nanos::HOUR)]));
    let (engine, _clock) = engine(vec![api]);
    assert_eq!(
        (admitted(&engine, "alice", 4), admitted(&engine, "bob", 4)),
        (2, 2)
    );
    assert!(engine.control().reset("api", &["alice"], OPERATOR).unwrap());
    assert_eq!(
        (admitted(&engine, "alice", 4), admitted(&engine, "bob", 4)),
        (2, 0)
    );
    assert!(!engine.control().reset("api", &["carol"], OPERATOR).unwrap());
    let events = engine.control().events();
    assert_eq!(
        events[1].change,
        OperatorChange::Reset {
            limit: "api".into(),
            key: "carol".into(),
            was_used: false
        }
    );
}

/// Denials are cached under the version of the policy and its overrides, so a new version invalidates them.
#[test]
fn cached_denials_are_invalid_after_resets_overrides_and_reloads() {
    let engine = flaky_engine(vec![limit("api", per_second(1))]);
    let version = || engine.generation().version();
    let first = version();
    engine.control().reset("api", &["alice"], OPERATOR).unwrap();
    let reset = version();
    assert!(reset > first);
    engine
        .control()
        .override_key("api", &["alice"], "2/s", None, OPERATOR)
        .unwrap();
    let overridden = version();
    assert!(overridden > reset);
    engine
        .replace(rules(vec![limit("api", per_second(3))]))
        .unwrap();
    let reloaded = version();
    assert!(reloaded > overridden);
    let _refused = engine
        .control()
        .override_key("api", &[], "2/s", None, OPERATOR);
    assert_eq!(version(), reloaded, "nothing has changed");
}

#[test]
fn a_reset_invalidates_the_denials_that_other_nodes_have_cached() {
    let (one, two) = (
        flaky_engine(vec![limit("api", per_second(1))]),
        flaky_engine(vec![limit("api", per_second(1))]),
    );
    let register = ModelRegister::default();
    one.control().start_sharing(Arc::new(|| {}));
    one.control().reset("api", &["alice"], OPERATOR).unwrap();
    assert_eq!(
        one.control().pending_count(),
        0,
        "not before the store has erased it too"
    );
    one.control()
        .publish_reset("api", &["alice"], OPERATOR)
        .unwrap();
    let changes = one.control().next_changes();
    register.put_now(NodeId(1), 1, changes.changes()).unwrap();
    one.control().mark_published(&changes);
    assert_eq!(one.control().pending_count(), 0);
    let snapshot = register.entries_now(None).unwrap();
    assert_eq!(
        snapshot.entries[0].expires_in,
        Some(Nanos::MINUTE),
        "an announcement expires"
    );
    let before = two.generation().version();
    let outcome = two.control().apply_register(&snapshot);
    assert_eq!((outcome.changed, outcome.unsupported), (0, 0));
    assert!(two.generation().version() > before);
    let error = one.control().publish_reset("apo", &["alice"], OPERATOR);
    assert!(matches!(error, Err(OperatorError::UnknownLimit { .. })));
}
