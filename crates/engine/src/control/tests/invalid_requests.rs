//! Invalid operator requests: their messages, and that nothing changes.

use super::*;

#[test]
fn invalid_requests_name_a_valid_value_and_change_nothing() {
    let levels = |name: &str, attribute: &str| tollgate_policy::model::Level {
        name: Box::<str>::from(name).into(),
        key: key(&[attribute]),
        quota: per_second(9),
    };
    let mut tree = limit("tree", per_second(9));
    tree.key = Vec::new();
    tree.quota = Located::from(QuotaSpec {
        amount: Amount::Rates(Vec::new()),
        ..per_second(1).value
    });
    tree.levels = vec![levels("org", "header.org"), levels("user", "header.user")];
    let mut by_ip = limit("by-ip", per_second(1));
    by_ip.key = key(&["ip"]);
    let minutes = limit(
        "minutes",
        quota(Algorithm::FixedWindow, &[(5, Nanos::MINUTE)]),
    );
    let (engine, _clock) = engine(vec![limit("per-user", per_second(1)), by_ip, minutes, tree]);
    let control = engine.control();
    let error_of = |limit: &str, key: &[&str], quota: &str| {
        let error = control
            .override_key(limit, key, quota, None, OPERATOR)
            .unwrap_err();
        error.to_string()
    };
    assert_eq!(
        error_of("per-usr", &["a"], "1/s"),
        "there is no limit `per-usr`; did you mean `per-user`?"
    );
    assert_eq!(
        error_of("weather", &["a"], "1/s"),
        "there is no limit `weather`"
    );
    assert_eq!(
        error_of("per-user", &["a", "b"], "1/s"),
        "key: 2 values name no key of `per-user`: give one value for each of header.user, addresses as 192.0.2.7"
    );
    assert!(error_of("by-ip", &["nobody"], "1/s").contains("one value for each of ip"));
    assert!(error_of("per-user", &["a"], "10").starts_with("quota: `10` "));
    assert!(error_of("per-user", &["a"], "1/s, 2/h").contains("`2/h`: it has fewer windows"));
    assert!(error_of("minutes", &["a"], "9/h").contains("windows of another length"));
    assert!(error_of("minutes", &["a"], "9/min burst 3").contains("no burst"));
    assert!(error_of("tree", &["acme"], "9/min").contains("it has levels"));
    assert!(
        error_of("tree", &["a", "b", "c"], "9/min")
            .contains("header.org | header.org, header.user")
    );
    assert!(control.events().is_empty());
    assert_eq!(control.operator_state(), OperatorState::default());
}

#[test]
fn requests_without_attribution_or_target_change_nothing() {
    let (engine, _clock) = engine(vec![limit("per-user", per_second(1))]);
    let control = engine.control();
    let error = control
        .block_address("10.1.2.3/8", None, OPERATOR)
        .unwrap_err();
    assert!(
        error
            .to_string()
            .contains("did you mean `10.0.0.0/8` or `10.1.2.3`?"),
        "{error}"
    );
    for attribution in [
        Attribution {
            who: " ",
            ..OPERATOR
        },
        Attribution {
            why: "",
            ..OPERATOR
        },
        Attribution {
            who: &"x".repeat(129),
            ..OPERATOR
        },
    ] {
        let error = control.switch(None, Switch::halted(Halt::Off), attribution);
        assert!(
            matches!(error, Err(OperatorError::MissingAttribution { .. })),
            "{attribution:?}"
        );
    }
    assert!(control.unblock_address("10.0.0.1", OPERATOR).is_err());
    let forged = Attribution {
        why: "x\nroot: everything switched off",
        ..OPERATOR
    };
    assert!(control.switch(None, Switch::default(), forged).is_err());
    let long = "1/s".to_owned() + &" ".repeat(300);
    let error = control.override_key("per-user", &["a"], &long, None, OPERATOR);
    assert_eq!(error.unwrap_err().to_string(), "quota: at most 256 bytes");
    assert!(control.events().is_empty());
    assert_eq!(control.operator_state(), OperatorState::default());
}
