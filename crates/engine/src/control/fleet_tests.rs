//! What operators say on one node holds on the others.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tollgate_core::Nanos;
use tollgate_store::register::{
    MAX_PUTS, NodeId, PutMode, RegisterEntry, RegisterPut as Put, RegisterSnapshot,
};
use tollgate_store::{ManualClock, StoreError};
use tollgate_testkit::register::ModelRegister;

use super::{Attribution, Halt, MAX_BLOCKS, OperatorState, Switch};
use crate::DenialReason;
use crate::testing::{TestCaller, TestEngine, engine, key, limit, per_second, rules};

const BY: Attribution<'_> = Attribution {
    who: "ada",
    why: "a test",
};

/// A node that puts and hears all there is whenever it is told to.
struct SimulatedNode {
    engine: TestEngine,
    clock: Arc<ManualClock>,
    id: NodeId,
    puts: AtomicUsize,
    woken: Arc<AtomicUsize>,
}

impl SimulatedNode {
    fn start(id: u64) -> Self {
        let mut hashed = limit("hashed", per_second(1));
        hashed.key[0].hash = true;
        let (engine, clock) = engine(vec![limit("api", per_second(2)), hashed]);
        let woken = Arc::new(AtomicUsize::new(0));
        let bell = Arc::clone(&woken);
        engine.control().start_sharing(Arc::new(move || {
            bell.fetch_add(1, Ordering::Relaxed);
        }));
        Self {
            engine,
            clock,
            id: NodeId(id),
            puts: AtomicUsize::new(0),
            woken,
        }
    }

    fn publish(&self, register: &ModelRegister) -> Result<(), StoreError> {
        let control = self.engine.control();
        while control.pending_count() > 0 {
            let put = control.next_changes();
            let number = self.puts.fetch_add(1, Ordering::Relaxed) + 1;
            register.put_now(self.id, u64::try_from(number).unwrap(), put.changes())?;
            control.mark_published(&put);
        }
        Ok(())
    }

    fn sync(&self, register: &ModelRegister) -> super::SyncOutcome {
        self.engine
            .control()
            .apply_register(&register.entries_now(None).unwrap())
    }

    fn is_blocked(&self, user: &str) -> bool {
        let verdict = self.engine.peek(&TestCaller::named(user));
        verdict.reason() == Some(DenialReason::Blocked)
    }

    fn quota(&self, user: &str) -> u64 {
        self.engine.peek(&TestCaller::named(user)).limits()[0]
            .status
            .limit
    }
}

#[test]
fn what_is_said_on_one_node_holds_on_another_and_so_does_taking_it_back() {
    let register = ModelRegister::default();
    let (one, two) = (SimulatedNode::start(1), SimulatedNode::start(2));
    let control = one.engine.control();
    control
        .override_key("api", &["alice"], "5/s", None, BY)
        .unwrap();
    control.block_key("api", &["bob"], None, BY).unwrap();
    control.block_key("hashed", &["hunter2"], None, BY).unwrap();
    control.block_address("10.0.0.0/8", None, BY).unwrap();
    assert_eq!(one.woken.load(Ordering::Relaxed), 4);
    one.publish(&register).unwrap();
    assert_eq!(two.sync(&register).changed, 4);
    assert_eq!(two.quota("alice"), 5);
    assert!(two.is_blocked("bob") && two.is_blocked("hunter2"));
    let caller = TestCaller::default().from("10.1.2.3");
    assert!(!two.engine.peek(&caller).is_admitted());
    assert_eq!(two.sync(&register).changed, 0, "it is no news");

    // On the other node, which knows neither of them by name.
    let control = two.engine.control();
    control.remove_override("api", &["alice"], BY).unwrap();
    control.unblock_key("api", &["bob"], BY).unwrap();
    control.unblock_address("10.0.0.0/8", BY).unwrap();
    control
        .switch(None, Switch::halted(Halt::Shadow), BY)
        .unwrap();
    two.publish(&register).unwrap();
    one.sync(&register);
    assert_eq!(one.quota("alice"), 2);
    assert!(!one.is_blocked("bob"));
    assert_eq!(
        one.engine.control().global_switch(),
        Switch::halted(Halt::Shadow)
    );
    control.switch(None, Switch::default(), BY).unwrap();
    control.unblock_key("hashed", &["hunter2"], BY).unwrap();
    two.publish(&register).unwrap();
    one.sync(&register);
    assert_eq!(
        one.engine.control().operator_state(),
        OperatorState::default()
    );
}

#[test]
fn others_log_who_said_it_and_nobody_is_told_a_key() {
    let register = ModelRegister::default();
    let (one, two) = (SimulatedNode::start(1), SimulatedNode::start(2));
    let control = one.engine.control();
    control
        .block_key("api", &["sk_live_secret"], None, BY)
        .unwrap();
    let put = control.next_changes();
    let told = format!(
        "{:?} {}",
        put,
        String::from_utf8_lossy(&put.changes()[0].body)
    );
    assert!(!told.contains("sk_live_secret"), "{told}");
    one.publish(&register).unwrap();
    two.sync(&register);
    let event = two.engine.control().events()[0].to_string();
    let (before, after) = event.split_once('#').unwrap();
    let (digest, after) = after.split_at(32);
    assert_eq!(
        (before, after),
        (
            "ada: `",
            "` of limit `api` blocked until it is taken back (a test)"
        )
    );
    assert!(digest.bytes().all(|digit| digit.is_ascii_hexdigit()));
    one.sync(&register);
    assert!(
        format!("{:?}", one.engine.control().operator_state()).contains("sk_live_secret"),
        "where it was named it is shown as before"
    );
}

#[test]
fn what_was_said_here_meanwhile_is_newer_than_what_is_heard() {
    let register = ModelRegister::default();
    let (one, two) = (SimulatedNode::start(1), SimulatedNode::start(2));
    let switch = |node: &SimulatedNode, halt| {
        let control = node.engine.control();
        control
            .switch(Some("api"), Switch::halted(halt), BY)
            .unwrap();
    };
    switch(&one, Halt::Off);
    one.publish(&register).unwrap();
    switch(&two, Halt::Shadow);
    assert_eq!(two.sync(&register).changed, 0, "it will be put after that");
    two.publish(&register).unwrap();
    assert_eq!(one.sync(&register).changed, 1);
    assert_eq!(
        one.engine.control().operator_state(),
        two.engine.control().operator_state()
    );
    // Said again while it is on the way: only the later saying is still to be put.
    switch(&one, Halt::Off);
    let put = one.engine.control().next_changes();
    switch(&one, Halt::Shadow);
    one.engine.control().mark_published(&put);
    assert_eq!(one.engine.control().pending_count(), 1);
}

#[test]
fn clocks_of_nodes_do_not_matter_to_how_long_something_holds() {
    let register = ModelRegister::default();
    let (one, two) = (SimulatedNode::start(1), SimulatedNode::start(2));
    two.clock.advance(Nanos::HOUR);
    let control = one.engine.control();
    control
        .block_key("api", &["bob"], Some(Nanos::MINUTE), BY)
        .unwrap();
    one.clock.advance(Nanos::from_secs(20));
    one.publish(&register).unwrap();
    register.advance(Nanos::from_secs(10));
    two.sync(&register);
    assert!(two.is_blocked("bob"));
    two.clock.advance(Nanos::from_secs(29));
    assert!(two.is_blocked("bob"));
    two.clock.advance(Nanos::from_secs(2));
    assert!(!two.is_blocked("bob"));
    assert_eq!(
        two.engine.control().operator_state(),
        OperatorState::default()
    );
    // What is over before it was put is put as taken back, in case something else was said before.
    control
        .block_key("api", &["eve"], Some(Nanos::SECOND), BY)
        .unwrap();
    one.clock.advance(Nanos::MINUTE);
    assert_eq!(control.next_changes().changes()[0].mode, PutMode::Remove);
}

#[test]
fn who_was_away_drops_what_is_gone_and_keeps_what_it_has_not_told_yet() {
    let register = ModelRegister::default();
    let (one, two) = (SimulatedNode::start(1), SimulatedNode::start(2));
    one.engine
        .control()
        .block_key("api", &["bob"], None, BY)
        .unwrap();
    one.publish(&register).unwrap();
    two.sync(&register);
    two.engine
        .control()
        .block_key("api", &["eve"], None, BY)
        .unwrap();
    two.engine.control().apply_register(&RegisterSnapshot {
        is_complete: true,
        ..RegisterSnapshot::default()
    });
    assert!(!two.is_blocked("bob") && two.is_blocked("eve"));
    let last = two.engine.control().events().pop().unwrap();
    assert!(last.to_string().contains("let through"), "{last}");
}

#[test]
fn s_41_what_a_later_version_says_is_kept_ignored_and_told_again_if_it_is_lost() {
    let register = ModelRegister::default();
    let later = |name: &str, body: &str| Put {
        name: name.into(),
        body: body.as_bytes().into(),
        mode: PutMode::Set,
        expires_in: None,
    };
    let changes = [
        later("tier/alice", r#"{"v":1,"who":"a","why":"b"}"#),
        later("switch/api", r#"{"v":2,"who":"a","why":"b","switch":{}}"#),
    ];
    let node = SimulatedNode::start(1);
    node.engine
        .control()
        .switch(Some("api"), Switch::halted(Halt::Off), BY)
        .unwrap();
    node.publish(&register).unwrap();
    register.put_now(NodeId(9), 1, &changes).unwrap();
    let adopted = node.sync(&register);
    assert_eq!((adopted.changed, adopted.unsupported), (1, 2));
    assert_eq!(
        node.engine.control().operator_state(),
        OperatorState::default(),
        "what it said before no longer holds"
    );
    register.lose_everything();
    node.engine.control().republish(None);
    node.publish(&register).unwrap();
    let said = register.entries_now(None).unwrap();
    let body = |entry: &RegisterEntry| entry.body.clone();
    let mut bodies: Vec<_> = said.entries.iter().map(body).collect();
    bodies.sort();
    let mut expected: Vec<_> = changes.iter().map(|change| change.body.clone()).collect();
    expected.sort();
    assert_eq!(bodies, expected);
}

#[test]
fn what_a_register_has_lost_at_its_end_is_told_again_whether_said_or_taken_back() {
    let register = ModelRegister::default();
    let (one, two) = (SimulatedNode::start(1), SimulatedNode::start(2));
    let control = one.engine.control();
    control.block_key("api", &["bob"], None, BY).unwrap();
    control.block_key("api", &["eve"], None, BY).unwrap();
    one.publish(&register).unwrap();
    let early = register.entries_now(None).unwrap().cursor.version;
    control.unblock_key("api", &["bob"], BY).unwrap();
    control.block_address("10.0.0.0/8", None, BY).unwrap();
    one.publish(&register).unwrap();
    one.sync(&register);
    register.lose_after(early);
    control.republish(Some(early));
    assert_eq!(control.pending_count(), 2);
    one.publish(&register).unwrap();
    two.sync(&register);
    assert!(!two.is_blocked("bob") && two.is_blocked("eve"));
    assert!(
        !two.engine
            .peek(&TestCaller::default().from("10.1.1.1"))
            .is_admitted()
    );
}

#[test]
fn what_is_said_rests_on_nodes_whose_policy_has_no_such_limit() {
    let register = ModelRegister::default();
    let (one, two) = (SimulatedNode::start(1), SimulatedNode::start(2));
    let mut other = limit("api", per_second(2));
    other.key = key(&["method"]);
    two.engine.replace(rules(vec![other])).unwrap();
    one.engine
        .control()
        .block_key("api", &["bob"], None, BY)
        .unwrap();
    one.publish(&register).unwrap();
    assert_eq!(two.sync(&register).changed, 1);
    assert!(!two.is_blocked("bob"));
    two.engine
        .replace(rules(vec![limit("api", per_second(9))]))
        .unwrap();
    assert!(two.is_blocked("bob"), "once it has the limit it holds");
}

#[test]
fn everything_that_waits_is_bounded_and_goes_in_batches() {
    let (node, other) = (SimulatedNode::start(1), SimulatedNode::start(2));
    let control = node.engine.control();
    let blocks = (0..MAX_BLOCKS).map(|n| super::Block::Address {
        address: format!("10.{}.{}.{}", n / 65_536, n / 256 % 256, n % 256),
        until: None,
    });
    let all = OperatorState {
        blocks: blocks.collect(),
        ..OperatorState::default()
    };
    control.restore(all.clone(), BY).unwrap();
    assert_eq!(control.pending_count(), MAX_BLOCKS);
    assert_eq!(control.next_changes().changes().len(), MAX_PUTS);
    let register = ModelRegister::default();
    node.publish(&register).unwrap();
    assert_eq!(other.sync(&register).changed, MAX_BLOCKS);
    assert_eq!(other.engine.control().events().len(), 1, "as one event");
    assert_eq!(
        other.engine.control().operator_state().blocks.len(),
        MAX_BLOCKS
    );
    // What makes room goes first.
    control.unblock_address("10.0.0.1", BY).unwrap();
    control.block_address("192.0.2.1", None, BY).unwrap();
    let put = control.next_changes();
    assert_eq!(put.changes()[0].mode, PutMode::Remove);
    // A register that will not have it does not hold up anything else.
    control.discard_changes(&put);
    assert_eq!((control.pending_count(), control.dropped_count()), (0, 2));
    let one_more = SimulatedNode::start(3);
    one_more
        .engine
        .control()
        .block_address("192.0.2.9", None, BY)
        .unwrap();
    let adopted = one_more.sync(&register);
    assert_eq!((adopted.dropped, adopted.changed), (1, MAX_BLOCKS - 1));
}

#[test]
fn without_a_register_nothing_is_noted() {
    let (engine, _clock) = engine(vec![limit("api", per_second(2))]);
    let control = engine.control();
    control.block_key("api", &["bob"], None, BY).unwrap();
    assert_eq!(control.pending_count(), 0);
    control.start_sharing(Arc::new(|| {}));
    let put = control.next_changes();
    assert_eq!(
        put.changes()[0].mode,
        PutMode::SetIfAbsent,
        "it was said before"
    );
}
