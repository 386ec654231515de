//! Switches: halts, shares of keys, and switches under load.

use super::*;

#[test]
fn s42_a_limit_is_halted_at_once_and_the_policy_applies_again_afterwards() {
    let (engine, _clock) = engine(vec![
        limit("api", per_second(2)),
        limit("other", per_second(4)),
    ]);
    let switch = |to| engine.control().switch(Some("api"), to, OPERATOR).unwrap();
    assert_eq!(admitted(&engine, "alice", 4), 2);
    switch(Switch::halted(Halt::Shadow));
    assert_eq!(
        admitted(&engine, "alice", 4),
        2,
        "the other limit still denies"
    );
    assert_eq!(
        engine.totals("api").unwrap().would_deny,
        2,
        "only admitted requests are counted"
    );
    switch(Switch::halted(Halt::Off));
    assert_eq!(
        engine.peek(&TestCaller::named("bob")).limits().len(),
        1,
        "the limit is not checked"
    );
    switch(Switch::default());
    assert_eq!(engine.peek(&TestCaller::named("bob")).limits().len(), 2);
    assert_eq!(admitted(&engine, "alice", 1), 0);
    assert!(engine.control().operator_state() == OperatorState::default());
}

#[test]
fn s42_all_limits_off_disables_lists_and_blocks_and_all_in_shadow_does_not() {
    let mut policy = policy(vec![limit("api", per_second(1))]);
    policy.deny.push(tollgate_policy::model::DenyRule {
        matching: crate::testing::matching("header.user", "mallory"),
        status: 403,
        message: None,
    });
    let (engine, _clock) = crate::testing::engine_with(Rules::compile(&policy, [7; 16]).unwrap());
    let switch = |to| engine.control().switch(None, to, OPERATOR).unwrap();
    switch(Switch::halted(Halt::Shadow));
    assert_eq!(admitted(&engine, "alice", 5), 5);
    assert_eq!(engine.totals("api").unwrap().would_deny, 4);
    assert_eq!(admitted(&engine, "mallory", 1), 0);
    switch(Switch::halted(Halt::Off));
    assert_eq!(admitted(&engine, "mallory", 1), 1);
    assert_eq!(admitted(&engine, "alice", 5), 5);
    assert_eq!(
        engine.totals("api").unwrap().would_deny,
        4,
        "no limit is checked"
    );
    switch(Switch::default());
    assert_eq!(admitted(&engine, "alice", 1), 0);
}

#[test]
fn a_switch_only_weakens_the_policy() {
    let mut shadow = limit("api", per_second(1));
    shadow.mode = Mode::Shadow;
    let (engine, _clock) = engine(vec![shadow]);
    let share = Switch::enforced_for(Percent::ALL);
    engine
        .control()
        .switch(Some("api"), share, OPERATOR)
        .unwrap();
    assert_eq!(admitted(&engine, "alice", 3), 3);
}

#[test]
fn a_share_of_keys_is_the_same_over_requests_reloads_and_nodes_and_only_grows() {
    let with = |percent: u16| {
        let mut rule = limit("api", per_second(1));
        rule.enforce = Percent::from_hundredths(percent * 100);
        vec![rule]
    };
    let enforced = |engine: &TestEngine| -> Vec<bool> {
        let is_enforced = |n: u64| {
            let verdict = engine.peek(&TestCaller::named(&format!("user-{n}")));
            verdict.limits()[0].enforcement == crate::EnforcementMode::Enforced
        };
        (0..2_000).map(is_enforced).collect()
    };
    let share = |sample: &[bool]| sample.iter().filter(|is_sampled| **is_sampled).count();
    let (node, _clock) = engine(with(25));
    let quarter = enforced(&node);
    assert!((400..600).contains(&share(&quarter)), "{}", share(&quarter));
    assert_eq!(enforced(&node), quarter, "the same for the next requests");
    assert_eq!(
        enforced(&engine(with(25)).0),
        quarter,
        "the same on another node"
    );
    node.replace(rules(with(60))).unwrap();
    let more = enforced(&node);
    assert!((1_080..1_320).contains(&share(&more)));
    assert!(
        quarter
            .iter()
            .zip(&more)
            .all(|(before, after)| !before || *after),
        "no key leaves the share"
    );
    // An operator can set another share of keys, for one limit or for all.
    let switch = |limit, to| node.control().switch(limit, to, OPERATOR).unwrap();
    switch(
        Some("api"),
        Switch::enforced_for(Percent::from_hundredths(2_500)),
    );
    assert_eq!(enforced(&node), quarter);
    switch(None, Switch::enforced_for(Percent::ZERO));
    assert_eq!(share(&enforced(&node)), 0);
    switch(None, Switch::default());
    node.replace(rules(with(100))).unwrap();
    assert_eq!(enforced(&node), quarter, "the switch survives the reload");
    // Another limit samples other keys.
    let (other, _clock) = engine(vec![LimitRule {
        enforce: Percent::from_hundredths(2_500),
        ..limit("other", per_second(1))
    }]);
    assert_ne!(enforced(&other), quarter);
}

#[test]
fn keys_outside_the_enforced_share_are_counted_and_admitted() {
    let mut rule = limit("api", per_second(1));
    rule.enforce = Percent::ZERO;
    let (engine, _clock) = engine(vec![rule]);
    assert_eq!(admitted(&engine, "alice", 5), 5);
    assert_eq!(engine.totals("api").unwrap().would_deny, 4);
}

/// A shadow limit charges a shared bucket only while no limit that shares it is enforced, also if an operator decides that.
#[test]
fn a_halted_limit_leaves_its_shared_bucket_to_limits_in_shadow() {
    let with = |name: &str, mode| {
        let mut rule = limit(name, per_second(5));
        rule.bucket = Some(Box::<str>::from("zone").into());
        rule.mode = mode;
        rule
    };
    let (engine, _clock) = engine(vec![
        with("send", Mode::Shadow),
        with("edit", Mode::Enforce),
    ]);
    assert_eq!(admitted(&engine, "alice", 100), 5);
    let switch = |to| engine.control().switch(Some("edit"), to, OPERATOR).unwrap();
    switch(Switch::halted(Halt::Shadow));
    let before = engine.totals("send").unwrap().would_deny;
    assert_eq!(admitted(&engine, "bob", 100), 100);
    assert_eq!(engine.totals("send").unwrap().would_deny, before + 95);
    switch(Switch::default());
    assert_eq!(admitted(&engine, "carol", 100), 5);
    // Enforced for no key is enforced for nobody.
    switch(Switch::enforced_for(Percent::ZERO));
    let before = engine.totals("send").unwrap().would_deny;
    assert_eq!(admitted(&engine, "dave", 100), 100);
    assert_eq!(engine.totals("send").unwrap().would_deny, before + 95);
}

#[test]
fn s42_no_store_is_needed_to_halt_a_limit() {
    let mut closed = limit("api", per_second(1));
    closed.on_store_failure = tollgate_policy::model::OnStoreFailure::Closed;
    let engine = flaky_engine(vec![closed]);
    engine.store().is_down.store(true, Ordering::Relaxed);
    let alice = TestCaller::named("alice");
    assert_eq!(engine.decide(&alice).status(), Some(503));
    for halt in [Halt::Shadow, Halt::Off] {
        engine
            .control()
            .switch(Some("api"), Switch::halted(halt), OPERATOR)
            .unwrap();
        assert!(engine.decide(&alice).is_admitted(), "{halt:?}");
    }
    engine
        .control()
        .switch(Some("api"), Switch::default(), OPERATOR)
        .unwrap();
    assert_eq!(engine.decide(&alice).status(), Some(503));
}

#[test]
fn a_switch_under_load_changes_whole_decisions() {
    // Both limits are switched together, so no decision may see one enforced and the other not.
    let (engine, _clock) = engine(vec![
        limit("one", per_second(1)),
        limit("two", per_second(1)),
    ]);
    let engine = Arc::new(engine);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    let verdict = engine.peek(&TestCaller::named("alice"));
                    let modes: Vec<_> = verdict
                        .limits()
                        .iter()
                        .map(|rule| rule.enforcement)
                        .collect();
                    assert!(modes.len() == 2 && modes[0] == modes[1], "{modes:?}");
                }
            });
        }
        for n in 0..300 {
            let to = if n % 2 == 0 {
                Switch::halted(Halt::Shadow)
            } else {
                Switch::default()
            };
            engine.control().switch(None, to, OPERATOR).unwrap();
        }
        done.store(true, Ordering::Relaxed);
    });
}

#[test]
fn an_empty_policy_can_be_operated_too() {
    let (engine, _clock) =
        crate::testing::engine_with(Rules::compile(&Policy::default(), [7; 16]).unwrap());
    engine
        .control()
        .switch(None, Switch::halted(Halt::Off), OPERATOR)
        .unwrap();
    assert!(engine.decide(&TestCaller::named("alice")).is_admitted());
}

#[test]
fn the_kill_switch_and_a_switch_of_its_own_weaken_each_mechanism_against_overload() {
    use tollgate_policy::model::{OverloadSpec, ShedMechanism};

    let mut policy = policy(vec![limit("api", per_second(1))]);
    policy.overload = OverloadSpec {
        adaptive_concurrency: Mode::Enforce,
        utilization: Mode::Enforce,
        reserve: Mode::Shadow,
        retries: Mode::Enforce,
        credits: Mode::Enforce,
        ..OverloadSpec::default()
    };
    let (engine, _clock) = crate::testing::engine_with(Rules::compile(&policy, [7; 16]).unwrap());
    let modes = || {
        let generation = engine.generation();
        let (_, spec) = generation.overload().unwrap();
        ShedMechanism::ALL.map(|mechanism| spec.mode(mechanism))
    };
    let switch = |name, to| engine.control().switch(name, to, OPERATOR).unwrap();
    let (enforce, shadow, off) = (Mode::Enforce, Mode::Shadow, Mode::Off);
    assert_eq!(modes(), [enforce, enforce, shadow, enforce, enforce]);
    let name = ShedMechanism::Utilization.switch_name();
    switch(Some(name), Switch::halted(Halt::Off));
    assert_eq!(modes(), [enforce, off, shadow, enforce, enforce]);
    assert_eq!(admitted(&engine, "alice", 2), 1, "limits stay as they are");
    let saved = engine.control().operator_state();
    switch(None, Switch::halted(Halt::Shadow));
    assert_eq!(modes(), [shadow, off, shadow, shadow, shadow]);
    switch(None, Switch::halted(Halt::Off));
    assert_eq!(modes(), [off; 5]);
    switch(None, Switch::enforced_for(Percent::from_hundredths(2_500)));
    assert_eq!(
        modes(),
        [shadow, off, shadow, shadow, shadow],
        "there are no keys"
    );
    engine.control().restore(saved, OPERATOR).unwrap();
    assert_eq!(modes(), [enforce, off, shadow, enforce, enforce]);
    switch(Some(name), Switch::default());
    assert_eq!(modes(), [enforce, enforce, shadow, enforce, enforce]);

    // Without `overload` there is nothing to switch.
    engine
        .replace(Rules::compile(&super::policy(vec![]), [7; 16]).unwrap())
        .unwrap();
    let unknown = engine
        .control()
        .switch(Some(name), Switch::default(), OPERATOR);
    assert_eq!(
        unknown.unwrap_err().to_string(),
        "there is no limit `overload:utilization`"
    );
}
