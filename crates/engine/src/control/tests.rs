//! Operators change things while requests are decided.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use tollgate_core::compose::Verdict as Composed;
use tollgate_core::{Nanos, Outcome, Timestamp};
use tollgate_policy::model::{
    Algorithm, Amount, LimitRule, Located, Mode, Penalty, Percent, Policy, QuotaSpec,
};
use tollgate_policy::rules::Rules;
use tollgate_store::{
    IdentifiedLimit, ManualClock, MemoryStore, QuotaCheck, Store, StoreError, StoreErrorKind,
    StoreKey, StoreReply,
};

use tollgate_store::register::NodeId;
use tollgate_testkit::register::ModelRegister;

use super::{
    Attribution, Block, Halt, MAX_BLOCKS, MAX_EVENTS, OperatorChange, OperatorError, OperatorState,
    Switch,
};
use crate::testing::{
    START, TestCaller, TestEngine, engine, key, limit, per_second, places, policy, quota, rules,
};
use crate::{DenialReason, Engine, StateStore, Verdict};

const BY: Attribution<'_> = Attribution {
    who: "ada",
    why: "a test",
};

fn admitted(engine: &TestEngine, user: &str, times: u64) -> u64 {
    let caller = TestCaller::named(user);
    (0..times)
        .map(|_| u64::from(engine.decide(&caller).is_admitted()))
        .sum()
}

fn left(engine: &TestEngine, user: &str) -> u64 {
    engine.peek(&TestCaller::named(user)).limits()[0]
        .status
        .remaining
}

#[test]
fn s42_a_limit_is_halted_at_once_and_the_policy_holds_again_after() {
    let (engine, _clock) = engine(vec![
        limit("api", per_second(2)),
        limit("other", per_second(4)),
    ]);
    let switch = |to| engine.control().switch(Some("api"), to, BY).unwrap();
    assert_eq!(admitted(&engine, "alice", 4), 2);
    switch(Switch::halted(Halt::Shadow));
    assert_eq!(
        admitted(&engine, "alice", 4),
        2,
        "the other limit still holds"
    );
    assert_eq!(
        engine.totals("api").unwrap().would_deny,
        2,
        "only what went on is counted"
    );
    switch(Switch::halted(Halt::Off));
    assert_eq!(
        engine.peek(&TestCaller::named("bob")).limits().len(),
        1,
        "it is not asked"
    );
    switch(Switch::default());
    assert_eq!(engine.peek(&TestCaller::named("bob")).limits().len(), 2);
    assert_eq!(admitted(&engine, "alice", 1), 0);
    assert!(engine.control().operator_state() == OperatorState::default());
}

#[test]
fn s42_everything_is_halted_whatever_lists_and_blocks_say_and_in_shadow_those_hold() {
    let mut policy = policy(vec![limit("api", per_second(1))]);
    policy.deny.push(tollgate_policy::model::DenyRule {
        matching: crate::testing::matching("header.user", "mallory"),
        status: 403,
        message: None,
    });
    let (engine, _clock) = crate::testing::engine_with(Rules::compile(&policy, [7; 16]).unwrap());
    let switch = |to| engine.control().switch(None, to, BY).unwrap();
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
        "nothing is asked"
    );
    switch(Switch::default());
    assert_eq!(admitted(&engine, "alice", 1), 0);
}

#[test]
fn a_switch_never_adds_force() {
    let mut shadow = limit("api", per_second(1));
    shadow.mode = Mode::Shadow;
    let (engine, _clock) = engine(vec![shadow]);
    let share = Switch::enforced_for(Percent::ALL);
    engine.control().switch(Some("api"), share, BY).unwrap();
    assert_eq!(admitted(&engine, "alice", 3), 3);
}

#[test]
fn a_share_of_keys_is_the_same_over_requests_reloads_and_nodes_and_only_grows() {
    let with = |percent: u16| {
        let mut one = limit("api", per_second(1));
        one.enforce = Percent::from_hundredths(percent * 100);
        vec![one]
    };
    let enforced = |engine: &TestEngine| -> Vec<bool> {
        let is_enforced = |n: u64| {
            let verdict = engine.peek(&TestCaller::named(&format!("user-{n}")));
            verdict.limits()[0].enforcement == crate::EnforcementMode::Enforced
        };
        (0..2_000).map(is_enforced).collect()
    };
    let share = |lots: &[bool]| lots.iter().filter(|lot| **lot).count();
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
        "nobody is let out"
    );
    // Operators may say another share, and one for all.
    let switch = |limit, to| node.control().switch(limit, to, BY).unwrap();
    switch(
        Some("api"),
        Switch::enforced_for(Percent::from_hundredths(2_500)),
    );
    assert_eq!(enforced(&node), quarter);
    switch(None, Switch::enforced_for(Percent::ZERO));
    assert_eq!(share(&enforced(&node)), 0);
    switch(None, Switch::default());
    node.replace(rules(with(100))).unwrap();
    assert_eq!(enforced(&node), quarter, "what was switched stays switched");
    // Another limit draws others.
    let (other, _clock) = engine(vec![LimitRule {
        enforce: Percent::from_hundredths(2_500),
        ..limit("other", per_second(1))
    }]);
    assert_ne!(enforced(&other), quarter);
}

#[test]
fn keys_in_shadow_by_share_are_counted_and_let_through() {
    let mut one = limit("api", per_second(1));
    one.enforce = Percent::ZERO;
    let (engine, _clock) = engine(vec![one]);
    assert_eq!(admitted(&engine, "alice", 5), 5);
    assert_eq!(engine.totals("api").unwrap().would_deny, 4);
}

#[test]
fn a_key_gets_another_quota_for_a_while() {
    let (engine, clock) = engine(vec![limit("api", per_second(2))]);
    let control = engine.control();
    let minute = Some(Nanos::MINUTE);
    control
        .override_key("api", &["alice"], "10/s", minute, BY)
        .unwrap();
    assert_eq!(
        (admitted(&engine, "alice", 20), admitted(&engine, "bob", 20)),
        (10, 2)
    );
    control
        .override_key("api", &["alice"], "10/s burst 30", minute, BY)
        .unwrap();
    clock.advance(Nanos::from_secs(10));
    assert_eq!(admitted(&engine, "alice", 50), 30);
    control
        .override_key("api", &["alice"], "unlimited", minute, BY)
        .unwrap();
    assert_eq!(admitted(&engine, "alice", 50), 50);
    assert_eq!(
        control.operator_state().overrides.len(),
        1,
        "replaced, not added"
    );
    clock.advance(Nanos::MINUTE);
    assert_eq!(admitted(&engine, "alice", 50), 2, "it is over");
    assert!(control.operator_state().overrides.is_empty());
    control
        .override_key("api", &["alice"], "0/s", None, BY)
        .unwrap();
    assert_eq!(admitted(&engine, "alice", 5), 0);
    control.remove_override("api", &["alice"], BY).unwrap();
    assert_eq!(
        control.remove_override("api", &["alice"], BY),
        Err(OperatorError::NotFound { what: "override" })
    );
    clock.advance(Nanos::SECOND);
    assert_eq!(admitted(&engine, "alice", 5), 2);
}

#[test]
fn an_override_keeps_what_is_owed_and_counts_as_the_limit_does() {
    let minute = Nanos::MINUTE;
    let kinds = [
        quota(Algorithm::TokenBucket, &[(10, minute)]),
        quota(Algorithm::LeakyBucket, &[(10, minute)]),
        quota(Algorithm::FixedWindow, &[(10, minute)]),
        quota(Algorithm::SlidingWindow, &[(10, minute)]),
        quota(Algorithm::SlidingLog, &[(10, minute)]),
    ];
    for kind in kinds {
        let algorithm = kind.value.algorithm;
        let (engine, _clock) = engine(vec![limit("api", kind)]);
        assert_eq!(admitted(&engine, "alice", 20), 10, "{algorithm:?}");
        engine
            .control()
            .override_key("api", &["alice"], "25/min", None, BY)
            .unwrap();
        let more = admitted(&engine, "alice", 50);
        // A bucket's debt keeps its length in time, all others their count.
        let is_bucket = matches!(algorithm, Algorithm::TokenBucket | Algorithm::LeakyBucket);
        assert_eq!(more, if is_bucket { 0 } else { 15 }, "{algorithm:?}");
    }
}

#[test]
fn overrides_of_places_windows_and_waits() {
    let (at_once, _clock) = engine(vec![limit("api", places(1))]);
    at_once
        .control()
        .override_key("api", &["alice"], "3", None, BY)
        .unwrap();
    assert_eq!(
        (admitted(&at_once, "alice", 5), admitted(&at_once, "bob", 5)),
        (3, 1)
    );

    let two = quota(
        Algorithm::SlidingWindow,
        &[(2, Nanos::SECOND), (50, Nanos::HOUR)],
    );
    let (windows, clock) = engine(vec![limit("api", two)]);
    windows
        .control()
        .override_key("api", &["alice"], "60/h, 9/s", None, BY)
        .unwrap();
    assert_eq!(admitted(&windows, "alice", 20), 9, "in whichever order");
    clock.advance(Nanos::from_secs(2));
    windows
        .control()
        .override_key("api", &["alice"], "12/h", None, BY)
        .unwrap();
    assert_eq!(
        admitted(&windows, "alice", 20),
        3,
        "the other window is not limited"
    );

    let mut patient = limit("api", per_second(1));
    patient.wait = Some(Nanos::from_secs(2).into());
    let (waits, _clock) = engine(vec![patient]);
    waits
        .control()
        .override_key("api", &["alice"], "2/s", None, BY)
        .unwrap();
    assert_eq!(
        admitted(&waits, "alice", 20),
        6,
        "two at once, four in two seconds"
    );
}

#[test]
fn bad_requests_say_what_would_be_right_and_change_nothing() {
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
    let refusal = |limit: &str, key: &[&str], quota: &str| {
        let refused = control
            .override_key(limit, key, quota, None, BY)
            .unwrap_err();
        refused.to_string()
    };
    assert_eq!(
        refusal("per-usr", &["a"], "1/s"),
        "there is no limit `per-usr`; did you mean `per-user`?"
    );
    assert_eq!(
        refusal("weather", &["a"], "1/s"),
        "there is no limit `weather`"
    );
    assert_eq!(
        refusal("per-user", &["a", "b"], "1/s"),
        "key: 2 values name no key of `per-user`: give one value for each of header.user, addresses as 192.0.2.7"
    );
    assert!(refusal("by-ip", &["nobody"], "1/s").contains("one value for each of ip"));
    assert!(refusal("per-user", &["a"], "10").starts_with("quota: `10` does not say per what"));
    assert!(refusal("per-user", &["a"], "1/s, 2/h").contains("`2/h`: it has fewer windows"));
    assert!(refusal("minutes", &["a"], "9/h").contains("windows of another length"));
    assert!(refusal("minutes", &["a"], "9/min burst 3").contains("no burst"));
    assert!(refusal("tree", &["acme"], "9/min").contains("it has levels"));
    assert!(
        refusal("tree", &["a", "b", "c"], "9/min").contains("header.org | header.org, header.user")
    );
    assert!(control.events().is_empty());
    assert_eq!(control.operator_state(), OperatorState::default());
}

#[test]
fn whoever_signs_badly_or_means_nobody_changes_nothing() {
    let (engine, _clock) = engine(vec![limit("per-user", per_second(1))]);
    let control = engine.control();
    let refused = control.block_address("10.1.2.3/8", None, BY).unwrap_err();
    assert!(
        refused
            .to_string()
            .contains("did you mean `10.0.0.0/8` or `10.1.2.3`?"),
        "{refused}"
    );
    for by in [
        Attribution { who: " ", ..BY },
        Attribution { why: "", ..BY },
        Attribution {
            who: &"x".repeat(129),
            ..BY
        },
    ] {
        let refused = control.switch(None, Switch::halted(Halt::Off), by);
        assert!(
            matches!(refused, Err(OperatorError::MissingAttribution { .. })),
            "{by:?}"
        );
    }
    assert!(control.unblock_address("10.0.0.1", BY).is_err());
    let forged = Attribution {
        why: "x\nroot: everything switched off",
        ..BY
    };
    assert!(control.switch(None, Switch::default(), forged).is_err());
    let long = "1/s".to_owned() + &" ".repeat(300);
    let refused = control.override_key("per-user", &["a"], &long, None, BY);
    assert_eq!(refused.unwrap_err().to_string(), "quota: at most 256 bytes");
    assert!(control.events().is_empty());
    assert_eq!(control.operator_state(), OperatorState::default());
}

#[test]
fn keys_of_any_level_are_blocked_until_they_are_not() {
    let mut tree = limit("tree", per_second(9));
    let level = |name: &str, attribute: &str| tollgate_policy::model::Level {
        name: Box::<str>::from(name).into(),
        key: key(&[attribute]),
        quota: per_second(9),
    };
    tree.key = Vec::new();
    tree.levels = vec![level("org", "header.org"), level("user", "header.user")];
    let (engine, clock) = engine(vec![tree]);
    let ask =
        |org: &str, user: &str| engine.decide(&TestCaller::named(user).with("header.org", org));
    let control = engine.control();
    control
        .block_key("tree", &["acme"], Some(Nanos::MINUTE), BY)
        .unwrap();
    control
        .block_key("tree", &["other", "bob"], None, BY)
        .unwrap();
    let verdict = ask("acme", "anyone");
    let retry_after = Nanos::MINUTE;
    assert_eq!(
        (verdict.outcome(), verdict.reason()),
        (Outcome::Deny { retry_after }, Some(DenialReason::Blocked))
    );
    assert_eq!(
        (verdict.status(), verdict.rule_name()),
        (Some(429), Some("tree"))
    );
    assert_eq!(ask("other", "bob").outcome(), Outcome::Never);
    assert!(ask("other", "alice").is_admitted());
    assert_eq!(engine.totals("tree").unwrap().denied, 2);
    clock.advance(Nanos::MINUTE);
    assert!(ask("acme", "anyone").is_admitted());
    control.unblock_key("tree", &["other", "bob"], BY).unwrap();
    assert!(ask("other", "bob").is_admitted());
    assert!(control.operator_state().blocks.is_empty());
}

#[test]
fn addresses_and_networks_are_blocked_whatever_the_policy_says() {
    let (engine, clock) = engine(Vec::new());
    let ask = |ip: &str| engine.decide(&TestCaller::default().from(ip));
    let control = engine.control();
    control
        .block_address("203.0.113.7", Some(Nanos::MINUTE), BY)
        .unwrap();
    control.block_address("10.0.0.0/8", None, BY).unwrap();
    control.block_address("2001:db8::/32", None, BY).unwrap();
    let verdict: Verdict = ask("203.0.113.7");
    assert_eq!(
        (verdict.status(), verdict.reason()),
        (Some(403), Some(DenialReason::Blocked))
    );
    for blocked in ["10.255.0.1", "::ffff:10.0.0.1", "2001:db8:1::1"] {
        assert_eq!(ask(blocked).outcome(), Outcome::Never, "{blocked}");
    }
    for free in ["203.0.113.8", "11.0.0.1", "2001:db9::1"] {
        assert!(ask(free).is_admitted(), "{free}");
    }
    clock.advance(Nanos::MINUTE);
    assert!(ask("203.0.113.7").is_admitted());
    control.unblock_address("10.0.0.0/8", BY).unwrap();
    assert!(ask("10.255.0.1").is_admitted());
}

#[test]
fn blocks_are_bounded_and_make_room_when_they_are_over() {
    let (engine, clock) = engine(Vec::new());
    let block = |n: usize| Block::Address {
        address: format!("10.{}.{}.{}", n / 65_536, n / 256 % 256, n % 256),
        until: Some(START.after(Nanos::MINUTE).as_nanos()),
    };
    let full = OperatorState {
        blocks: (0..MAX_BLOCKS).map(block).collect(),
        ..OperatorState::default()
    };
    let control = engine.control();
    control.restore(full.clone(), BY).unwrap();
    let refused = control.block_address("192.0.2.1", None, BY).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "there are 10000 blocks already, which is the most; lift some first"
    );
    let mut more = full;
    more.blocks.push(block(MAX_BLOCKS));
    assert!(control.restore(more, BY).is_err());
    clock.advance(Nanos::MINUTE);
    control.block_address("192.0.2.1", None, BY).unwrap();
    assert_eq!(control.operator_state().blocks.len(), 1);
}

#[test]
fn a_reset_forgets_what_a_key_has_used_and_its_block() {
    let mut api = limit("api", quota(Algorithm::FixedWindow, &[(2, Nanos::HOUR)]));
    api.penalty = Penalty::Block(Nanos::HOUR).into();
    api.candidate = Some(quota(Algorithm::FixedWindow, &[(3, Nanos::HOUR)]));
    let (engine, _clock) = engine(vec![api]);
    assert_eq!(
        (admitted(&engine, "alice", 4), admitted(&engine, "bob", 4)),
        (2, 2)
    );
    assert!(engine.control().reset("api", &["alice"], BY).unwrap());
    assert_eq!(
        (admitted(&engine, "alice", 4), admitted(&engine, "bob", 4)),
        (2, 0)
    );
    assert!(!engine.control().reset("api", &["carol"], BY).unwrap());
    let events = engine.control().events();
    assert_eq!(
        events[1].change,
        OperatorChange::Reset {
            limit: "api".into(),
            key: "carol".into(),
            found: false
        }
    );
}

#[test]
fn what_operators_said_holds_over_reloads_for_the_limit_of_that_name() {
    let (engine, _clock) = engine(vec![limit("api", per_second(2))]);
    let control = engine.control();
    control
        .override_key("api", &["alice"], "5/s", None, BY)
        .unwrap();
    control.block_key("api", &["bob"], None, BY).unwrap();
    control.block_address("203.0.113.7", None, BY).unwrap();
    control
        .switch(Some("api"), Switch::enforced_for(Percent::ALL), BY)
        .unwrap();
    let holds = |what: &str| {
        assert_eq!(left(&engine, "alice"), 5, "{what}");
        assert_eq!(admitted(&engine, "bob", 1), 0, "{what}");
        assert!(
            !engine
                .peek(&TestCaller::default().from("203.0.113.7"))
                .is_admitted(),
            "{what}"
        );
    };
    holds("before");
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
    holds("another rate and place");
    engine.replace(rules(Vec::new())).unwrap();
    assert!(engine.peek(&TestCaller::named("bob")).is_admitted());
    engine
        .replace(rules(vec![limit("api", per_second(1))]))
        .unwrap();
    holds("the limit was gone and is back");
    // A limit of the same name that makes its keys otherwise has no such keys.
    let mut other = limit("api", per_second(1));
    other.key = key(&["header.user", "method"]);
    engine.replace(rules(vec![other])).unwrap();
    assert_eq!(left(&engine, "alice"), 1);
    assert!(engine.peek(&TestCaller::named("bob")).is_admitted());
    assert_eq!(control.operator_state().overrides.len(), 1, "it rests");
}

#[test]
fn another_node_and_a_later_process_are_told_everything() {
    let limits = || {
        let mut hashed = limit("hashed", per_second(1));
        hashed.key[0].hash = true;
        vec![limit("api", per_second(2)), hashed]
    };
    let (one, _clock) = engine(limits());
    let control = one.control();
    control
        .override_key("api", &["alice"], "5/s burst 7", Some(Nanos::HOUR), BY)
        .unwrap();
    control.block_key("hashed", &["hunter2"], None, BY).unwrap();
    control.block_address("10.0.0.0/8", None, BY).unwrap();
    control
        .switch(Some("api"), Switch::halted(Halt::Shadow), BY)
        .unwrap();
    control
        .switch(
            None,
            Switch::enforced_for(Percent::from_hundredths(5_000)),
            BY,
        )
        .unwrap();
    let kept = serde_json::to_string(&control.operator_state()).unwrap();
    assert!(!kept.contains("hunter2") && !format!("{:?}", control.events()).contains("hunter2"));
    let (two, _clock) = engine(limits());
    two.control()
        .restore(serde_json::from_str(&kept).unwrap(), BY)
        .unwrap();
    assert_eq!(two.control().operator_state(), control.operator_state());
    two.control().switch(None, Switch::default(), BY).unwrap();
    assert_eq!(left(&two, "alice"), 1, "the shadow limit comes last");
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
fn everything_is_logged_in_a_bounded_list() {
    let (engine, clock) = engine(vec![limit("api", per_second(2))]);
    let control = engine.control();
    control
        .override_key("api", &["alice"], "5/s", Some(Nanos::MINUTE), BY)
        .unwrap();
    clock.advance(Nanos::SECOND);
    control.block_address("10.0.0.0/8", None, BY).unwrap();
    let told: Vec<String> = control.events().iter().map(ToString::to_string).collect();
    assert_eq!(
        told,
        [
            "ada: key `alice` of limit `api` has 5/s until 2023-11-14T22:14:20Z (a test)",
            "ada: `10.0.0.0/8` blocked until it is taken back (a test)"
        ]
    );
    assert_eq!(control.events()[1].at, START.after(Nanos::SECOND));
    for n in 0..MAX_EVENTS {
        let halt = if n % 2 == 0 { Halt::Off } else { Halt::Shadow };
        control
            .switch(Some("api"), Switch::halted(halt), BY)
            .unwrap();
    }
    assert_eq!(control.events().len(), MAX_EVENTS);
    assert!(matches!(
        control.events()[0].change,
        OperatorChange::Switched { .. }
    ));
}

/// A store that can stop answering.
struct FlakyStore {
    inner: MemoryStore<ManualClock>,
    is_down: AtomicBool,
}

impl Store for FlakyStore {
    fn decide(
        &self,
        checks: &[QuotaCheck<'_>],
        answers: &mut [StoreReply],
    ) -> Result<Composed, StoreError> {
        if self.is_down.load(Ordering::Relaxed) {
            return Err(StoreError::new(StoreErrorKind::Unreachable, "down"));
        }
        self.inner.decide(checks, answers)
    }
}

impl StateStore for FlakyStore {
    fn now(&self) -> Timestamp {
        self.inner.now()
    }

    fn erase(&self, key: &StoreKey<'_>, ruled: &IdentifiedLimit) -> bool {
        self.inner.erase(key, ruled)
    }
}

fn flaky_engine(limits: Vec<LimitRule>) -> Engine<FlakyStore> {
    let inner = MemoryStore::with_clock(100, ManualClock::at(START)).unwrap();
    let store = FlakyStore {
        inner,
        is_down: AtomicBool::new(false),
    };
    Engine::new(rules(limits), store).unwrap()
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
            .switch(Some("api"), Switch::halted(halt), BY)
            .unwrap();
        assert!(engine.decide(&alice).is_admitted(), "{halt:?}");
    }
    engine
        .control()
        .switch(Some("api"), Switch::default(), BY)
        .unwrap();
    assert_eq!(engine.decide(&alice).status(), Some(503));
}

/// Denials are cached under the version of the policy and its overrides, so another version forgets them.
#[test]
fn cached_denials_are_void_after_resets_overrides_and_reloads() {
    let engine = flaky_engine(vec![limit("api", per_second(1))]);
    let version = || engine.generation().version();
    let first = version();
    engine.control().reset("api", &["alice"], BY).unwrap();
    let reset = version();
    assert!(reset > first);
    engine
        .control()
        .override_key("api", &["alice"], "2/s", None, BY)
        .unwrap();
    let overridden = version();
    assert!(overridden > reset);
    engine
        .replace(rules(vec![limit("api", per_second(3))]))
        .unwrap();
    let reloaded = version();
    assert!(reloaded > overridden);
    let _refused = engine.control().override_key("api", &[], "2/s", None, BY);
    assert_eq!(version(), reloaded, "nothing has changed");
}

#[test]
fn denials_that_other_nodes_remember_are_forgotten_by_a_reset() {
    let (one, two) = (
        flaky_engine(vec![limit("api", per_second(1))]),
        flaky_engine(vec![limit("api", per_second(1))]),
    );
    let register = ModelRegister::default();
    one.control().start_sharing(Arc::new(|| {}));
    one.control().reset("api", &["alice"], BY).unwrap();
    assert_eq!(
        one.control().pending_count(),
        0,
        "not before the store has forgotten it, too"
    );
    one.control().publish_reset("api", &["alice"], BY).unwrap();
    let put = one.control().next_changes();
    register.put_now(NodeId(1), 1, put.changes()).unwrap();
    one.control().mark_published(&put);
    assert_eq!(one.control().pending_count(), 0);
    let said = register.entries_now(None).unwrap();
    assert_eq!(
        said.entries[0].expires_in,
        Some(Nanos::MINUTE),
        "it is only news"
    );
    let before = two.generation().version();
    let adopted = two.control().apply_register(&said);
    assert_eq!((adopted.changed, adopted.unsupported), (0, 0));
    assert!(two.generation().version() > before);
    let mistake = one.control().publish_reset("apo", &["alice"], BY);
    assert!(matches!(mistake, Err(OperatorError::UnknownLimit { .. })));
}

#[test]
fn a_switch_that_is_thrown_under_load_changes_whole_decisions() {
    // Both limits are thrown together, so no decision may see one of them enforced and the other not.
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
                    let modes: Vec<_> =
                        verdict.limits().iter().map(|one| one.enforcement).collect();
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
            engine.control().switch(None, to, BY).unwrap();
        }
        done.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_policy_that_counts_nothing_can_be_operated_too() {
    let (engine, _clock) =
        crate::testing::engine_with(Rules::compile(&Policy::default(), [7; 16]).unwrap());
    engine
        .control()
        .switch(None, Switch::halted(Halt::Off), BY)
        .unwrap();
    assert!(engine.decide(&TestCaller::named("alice")).is_admitted());
}

/// Found in review: when the only check that was left turned out to be a value that is known already, the decision ended there
/// and no shadow limit was decided.
#[test]
fn shadow_limits_are_decided_though_an_unlimited_key_shows_a_value_again() {
    let mut paths = limit("paths", per_second(100));
    paths.distinct = Some(tollgate_policy::attributes::Attribute::Path.into());
    let mut shadow = limit("shadow", per_second(100));
    shadow.mode = tollgate_policy::model::Mode::Shadow;
    let (engine, _clock) = engine(vec![paths, shadow]);
    engine
        .control()
        .override_key("paths", &["alice"], "unlimited", None, BY)
        .unwrap();
    let alice = TestCaller::named("alice").with("path", "/one");
    for _ in 0..3 {
        assert!(engine.decide(&alice).is_admitted());
    }
    assert_eq!(engine.totals("shadow").unwrap().allowed, 3);
}
