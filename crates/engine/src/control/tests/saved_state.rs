//! Operator state over reloads and restarts, and the audit log.

use super::*;

#[test]
fn operator_state_survives_reloads_for_the_limit_of_the_same_name() {
    let (engine, _clock) = engine(vec![limit("api", per_second(2))]);
    let control = engine.control();
    control
        .override_key("api", &["alice"], "5/s", None, OPERATOR)
        .unwrap();
    control.block_key("api", &["bob"], None, OPERATOR).unwrap();
    control
        .block_address("203.0.113.7", None, OPERATOR)
        .unwrap();
    control
        .switch(Some("api"), Switch::enforced_for(Percent::ALL), OPERATOR)
        .unwrap();
    let assert_in_force = |when: &str| {
        assert_eq!(remaining(&engine, "alice"), 5, "{when}");
        assert_eq!(admitted(&engine, "bob", 1), 0, "{when}");
        assert!(
            !engine
                .peek(&TestCaller::default().from("203.0.113.7"))
                .is_admitted(),
            "{when}"
        );
    };
    assert_in_force("before");
    engine
        .replace(rules(vec![
            limit("first", per_second(90)),
            limit("api", per_second(3)),
        ]))
        .unwrap();
    let verdict = engine.peek(&TestCaller::named("alice"));
    assert_eq!(verdict.limits()[1].status.limit, 5);
    engine
        .replace(rules(vec![limit("api", per_second(1))]))
        .unwrap();
    assert_in_force("another rate and position");
    engine.replace(rules(Vec::new())).unwrap();
    assert!(engine.peek(&TestCaller::named("bob")).is_admitted());
    engine
        .replace(rules(vec![limit("api", per_second(1))]))
        .unwrap();
    assert_in_force("the limit was removed and restored");
    // A limit of the same name with another key recipe has no such keys.
    let mut other = limit("api", per_second(1));
    other.key = key(&["header.user", "method"]);
    engine.replace(rules(vec![other])).unwrap();
    assert_eq!(remaining(&engine, "alice"), 1);
    assert!(engine.peek(&TestCaller::named("bob")).is_admitted());
    assert_eq!(control.operator_state().overrides.len(), 1, "it rests");
}

#[test]
fn operator_state_can_be_restored_on_another_node_or_in_a_later_process() {
    let limits = || {
        let mut hashed = limit("hashed", per_second(1));
        hashed.key[0].hash = true;
        vec![limit("api", per_second(2)), hashed]
    };
    let (one, _clock) = engine(limits());
    let control = one.control();
    control
        .override_key(
            "api",
            &["alice"],
            "5/s burst 7",
            Some(Nanos::HOUR),
            OPERATOR,
        )
        .unwrap();
    control
        .block_key("hashed", &["hunter2"], None, OPERATOR)
        .unwrap();
    control.block_address("10.0.0.0/8", None, OPERATOR).unwrap();
    control
        .switch(Some("api"), Switch::halted(Halt::Shadow), OPERATOR)
        .unwrap();
    control
        .switch(
            None,
            Switch::enforced_for(Percent::from_hundredths(5_000)),
            OPERATOR,
        )
        .unwrap();
    let saved = serde_json::to_string(&control.operator_state()).unwrap();
    assert!(!saved.contains("hunter2") && !format!("{:?}", control.events()).contains("hunter2"));
    let (two, _clock) = engine(limits());
    two.control()
        .restore(serde_json::from_str(&saved).unwrap(), OPERATOR)
        .unwrap();
    assert_eq!(two.control().operator_state(), control.operator_state());
    two.control()
        .switch(None, Switch::default(), OPERATOR)
        .unwrap();
    assert_eq!(remaining(&two, "alice"), 1, "the shadow limit comes last");
    assert_eq!(
        two.decide(&TestCaller::named("hunter2")).reason(),
        Some(DenialReason::Blocked)
    );
    assert!(
        !two.peek(&TestCaller::default().from("10.9.9.9"))
            .is_admitted()
    );
    assert!(serde_json::from_str::<OperatorState>(r#"{"switches":[]}"#).is_err());
}

#[test]
fn all_changes_are_logged_in_a_bounded_list() {
    let (engine, clock) = engine(vec![limit("api", per_second(2))]);
    let control = engine.control();
    control
        .override_key("api", &["alice"], "5/s", Some(Nanos::MINUTE), OPERATOR)
        .unwrap();
    clock.advance(Nanos::SECOND);
    control.block_address("10.0.0.0/8", None, OPERATOR).unwrap();
    let events: Vec<String> = control.events().iter().map(ToString::to_string).collect();
    assert_eq!(
        events,
        [
            "ada: key `alice` of limit `api` overridden with 5/s until 2023-11-14T22:14:20Z (a test)",
            "ada: address `10.0.0.0/8` blocked until it is removed (a test)"
        ]
    );
    assert_eq!(control.events()[1].at, START.after(Nanos::SECOND));
    for n in 0..MAX_EVENTS {
        let halt = if n % 2 == 0 { Halt::Off } else { Halt::Shadow };
        control
            .switch(Some("api"), Switch::halted(halt), OPERATOR)
            .unwrap();
    }
    assert_eq!(control.events().len(), MAX_EVENTS);
    assert!(matches!(
        control.events()[0].change,
        OperatorChange::Switched { .. }
    ));
}
