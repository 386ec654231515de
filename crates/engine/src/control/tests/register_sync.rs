//! Operator changes on one node apply on all nodes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tollgate_core::Nanos;
use tollgate_store::register::{
    MAX_PUTS, NodeId, PutMode, RegisterEntry, RegisterPut as Put, RegisterSnapshot,
};
use tollgate_store::{ManualClock, StoreError};
use tollgate_testkit::register::ModelRegister;

use super::*;

/// A node that sends and reads everything when told to.
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
        Self::with_engine(id, engine(vec![limit("api", per_second(2)), hashed]))
    }

    fn with_engine(id: u64, (engine, clock): (TestEngine, Arc<ManualClock>)) -> Self {
        let woken = Arc::new(AtomicUsize::new(0));
        let wakes = Arc::clone(&woken);
        engine.control().start_sharing(Arc::new(move || {
            wakes.fetch_add(1, Ordering::Relaxed);
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
            let batch = control.next_changes();
            let number = self.puts.fetch_add(1, Ordering::Relaxed) + 1;
            register.put_now(self.id, u64::try_from(number).unwrap(), batch.changes())?;
            control.mark_published(&batch);
        }
        Ok(())
    }

    fn sync(&self, register: &ModelRegister) -> crate::control::SyncOutcome {
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
fn a_change_on_one_node_applies_on_another_and_so_does_its_removal() {
    let register = ModelRegister::default();
    let (one, two) = (SimulatedNode::start(1), SimulatedNode::start(2));
    let control = one.engine.control();
    control
        .override_key("api", &["alice"], "5/s", None, OPERATOR)
        .unwrap();
    control.block_key("api", &["bob"], None, OPERATOR).unwrap();
    control
        .block_key("hashed", &["hunter2"], None, OPERATOR)
        .unwrap();
    control.block_address("10.0.0.0/8", None, OPERATOR).unwrap();
    assert_eq!(one.woken.load(Ordering::Relaxed), 4);
    one.publish(&register).unwrap();
    assert_eq!(two.sync(&register).changed, 4);
    assert_eq!(two.quota("alice"), 5);
    assert!(two.is_blocked("bob") && two.is_blocked("hunter2"));
    let caller = TestCaller::default().from("10.1.2.3");
    assert!(!two.engine.peek(&caller).is_admitted());
    assert_eq!(two.sync(&register).changed, 0, "nothing is new");

    // On the other node, which only knows the digests.
    let control = two.engine.control();
    control
        .remove_override("api", &["alice"], OPERATOR)
        .unwrap();
    control.unblock_key("api", &["bob"], OPERATOR).unwrap();
    control.unblock_address("10.0.0.0/8", OPERATOR).unwrap();
    control
        .switch(None, Switch::halted(Halt::Shadow), OPERATOR)
        .unwrap();
    two.publish(&register).unwrap();
    one.sync(&register);
    assert_eq!(one.quota("alice"), 2);
    assert!(!one.is_blocked("bob"));
    assert_eq!(
        one.engine.control().global_switch(),
        Switch::halted(Halt::Shadow)
    );
    control.switch(None, Switch::default(), OPERATOR).unwrap();
    control
        .unblock_key("hashed", &["hunter2"], OPERATOR)
        .unwrap();
    two.publish(&register).unwrap();
    one.sync(&register);
    assert_eq!(
        one.engine.control().operator_state(),
        OperatorState::default()
    );
}

/// No node could read the switch of a mechanism against overload, because its name has a colon and names of limits have none. The node
/// that wrote it dropped it with the next reading of the register too. So operators of a fleet could not stop one mechanism.
#[test]
fn the_switch_of_a_mechanism_against_overload_applies_on_all_nodes() {
    use tollgate_policy::model::{OverloadSpec, ShedMechanism};

    let register = ModelRegister::default();
    let mut policy = policy(vec![limit("api", per_second(1))]);
    policy.overload = OverloadSpec {
        reserve: Mode::Enforce,
        utilization: Mode::Enforce,
        ..OverloadSpec::default()
    };
    let start = |id| {
        let rules = Rules::compile(&policy, [7; 16]).unwrap();
        SimulatedNode::with_engine(id, crate::testing::engine_with(rules))
    };
    let nodes = [start(1), start(2)];
    let modes = || {
        nodes.each_ref().map(|node| {
            let generation = node.engine.generation();
            let (_, spec) = generation.overload().unwrap();
            (spec.reserve, spec.utilization)
        })
    };
    let name = ShedMechanism::Reserve.switch_name();
    for (to, expected) in [
        (Switch::halted(Halt::Shadow), Mode::Shadow),
        (Switch::halted(Halt::Off), Mode::Off),
        (Switch::default(), Mode::Enforce),
    ] {
        let control = nodes[0].engine.control();
        control.switch(Some(name), to, OPERATOR).unwrap();
        nodes[0].publish(&register).unwrap();
        for node in &nodes {
            node.sync(&register);
        }
        assert_eq!(modes(), [(expected, Mode::Enforce); 2]);
    }
}

#[test]
fn other_nodes_log_the_attribution_and_never_learn_a_key() {
    let register = ModelRegister::default();
    let (one, two) = (SimulatedNode::start(1), SimulatedNode::start(2));
    let control = one.engine.control();
    control
        .block_key("api", &["sk_live_secret"], None, OPERATOR)
        .unwrap();
    let batch = control.next_changes();
    let sent = format!(
        "{:?} {}",
        batch,
        String::from_utf8_lossy(&batch.changes()[0].body)
    );
    assert!(!sent.contains("sk_live_secret"), "{sent}");
    one.publish(&register).unwrap();
    two.sync(&register);
    let event = two.engine.control().events()[0].to_string();
    let (before, after) = event.split_once('#').unwrap();
    let (digest, after) = after.split_at(32);
    assert_eq!(
        (before, after),
        (
            "ada: key `",
            "` of limit `api` blocked until it is removed (a test)"
        )
    );
    assert!(digest.bytes().all(|digit| digit.is_ascii_hexdigit()));
    one.sync(&register);
    assert!(
        format!("{:?}", one.engine.control().operator_state()).contains("sk_live_secret"),
        "the node that named the key still shows it"
    );
}

#[test]
fn a_queued_local_change_wins_over_the_registers_entry() {
    let register = ModelRegister::default();
    let (one, two) = (SimulatedNode::start(1), SimulatedNode::start(2));
    let switch = |node: &SimulatedNode, halt| {
        let control = node.engine.control();
        control
            .switch(Some("api"), Switch::halted(halt), OPERATOR)
            .unwrap();
    };
    switch(&one, Halt::Off);
    one.publish(&register).unwrap();
    switch(&two, Halt::Shadow);
    assert_eq!(two.sync(&register).changed, 0, "the queued change is newer");
    two.publish(&register).unwrap();
    assert_eq!(one.sync(&register).changed, 1);
    assert_eq!(
        one.engine.control().operator_state(),
        two.engine.control().operator_state()
    );
    // Changed again while the first change is on its way: only the second is still queued.
    switch(&one, Halt::Off);
    let batch = one.engine.control().next_changes();
    switch(&one, Halt::Shadow);
    one.engine.control().mark_published(&batch);
    assert_eq!(one.engine.control().pending_count(), 1);
}

#[test]
fn expiries_do_not_depend_on_the_nodes_clocks() {
    let register = ModelRegister::default();
    let (one, two) = (SimulatedNode::start(1), SimulatedNode::start(2));
    two.clock.advance(Nanos::HOUR);
    let control = one.engine.control();
    control
        .block_key("api", &["bob"], Some(Nanos::MINUTE), OPERATOR)
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
    // An item that expires before it was sent is sent as a removal, since the register may have an older version of it.
    control
        .block_key("api", &["eve"], Some(Nanos::SECOND), OPERATOR)
        .unwrap();
    one.clock.advance(Nanos::MINUTE);
    assert_eq!(control.next_changes().changes()[0].mode, PutMode::Remove);
}

#[test]
fn a_node_that_was_offline_drops_removed_items_and_keeps_its_queued_changes() {
    let register = ModelRegister::default();
    let (one, two) = (SimulatedNode::start(1), SimulatedNode::start(2));
    one.engine
        .control()
        .block_key("api", &["bob"], None, OPERATOR)
        .unwrap();
    one.publish(&register).unwrap();
    two.sync(&register);
    two.engine
        .control()
        .block_key("api", &["eve"], None, OPERATOR)
        .unwrap();
    two.engine.control().apply_register(&RegisterSnapshot {
        is_complete: true,
        ..RegisterSnapshot::default()
    });
    assert!(!two.is_blocked("bob") && two.is_blocked("eve"));
    let last = two.engine.control().events().pop().unwrap();
    assert!(last.to_string().contains("unblocked"), "{last}");
}

#[test]
fn s_41_entries_of_a_later_version_are_kept_and_restored_if_the_register_loses_them() {
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
        .switch(Some("api"), Switch::halted(Halt::Off), OPERATOR)
        .unwrap();
    node.publish(&register).unwrap();
    register.put_now(NodeId(9), 1, &changes).unwrap();
    let outcome = node.sync(&register);
    assert_eq!((outcome.changed, outcome.unsupported), (1, 2));
    assert_eq!(
        node.engine.control().operator_state(),
        OperatorState::default(),
        "the previous version of the entry no longer applies"
    );
    register.lose_everything();
    node.engine.control().republish(None);
    node.publish(&register).unwrap();
    let snapshot = register.entries_now(None).unwrap();
    let body = |entry: &RegisterEntry| entry.body.clone();
    let mut bodies: Vec<_> = snapshot.entries.iter().map(body).collect();
    bodies.sort();
    let mut expected: Vec<_> = changes.iter().map(|change| change.body.clone()).collect();
    expected.sort();
    assert_eq!(bodies, expected);
}

#[test]
fn changes_that_a_register_has_lost_are_sent_again_removals_included() {
    let register = ModelRegister::default();
    let (one, two) = (SimulatedNode::start(1), SimulatedNode::start(2));
    let control = one.engine.control();
    control.block_key("api", &["bob"], None, OPERATOR).unwrap();
    control.block_key("api", &["eve"], None, OPERATOR).unwrap();
    one.publish(&register).unwrap();
    let early = register.entries_now(None).unwrap().cursor.version;
    control.unblock_key("api", &["bob"], OPERATOR).unwrap();
    control.block_address("10.0.0.0/8", None, OPERATOR).unwrap();
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
fn a_change_has_no_effect_on_nodes_whose_policy_lacks_the_limit() {
    let register = ModelRegister::default();
    let (one, two) = (SimulatedNode::start(1), SimulatedNode::start(2));
    let mut other = limit("api", per_second(2));
    other.key = key(&["method"]);
    two.engine.replace(rules(vec![other])).unwrap();
    one.engine
        .control()
        .block_key("api", &["bob"], None, OPERATOR)
        .unwrap();
    one.publish(&register).unwrap();
    assert_eq!(two.sync(&register).changed, 1);
    assert!(!two.is_blocked("bob"));
    two.engine
        .replace(rules(vec![limit("api", per_second(9))]))
        .unwrap();
    assert!(
        two.is_blocked("bob"),
        "it applies once the policy has the limit"
    );
}

#[test]
fn the_queue_is_bounded_and_sent_in_batches() {
    let (node, other) = (SimulatedNode::start(1), SimulatedNode::start(2));
    let control = node.engine.control();
    let blocks = (0..MAX_BLOCKS).map(|n| Block::Address {
        address: format!("10.{}.{}.{}", n / 65_536, n / 256 % 256, n % 256),
        until: None,
    });
    let all = OperatorState {
        blocks: blocks.collect(),
        ..OperatorState::default()
    };
    control.restore(all.clone(), OPERATOR).unwrap();
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
    // Removals go first, because they make room.
    control.unblock_address("10.0.0.1", OPERATOR).unwrap();
    control.block_address("192.0.2.1", None, OPERATOR).unwrap();
    let batch = control.next_changes();
    assert_eq!(batch.changes()[0].mode, PutMode::Remove);
    // A register that refuses a change does not hold up the others.
    control.discard_changes(&batch);
    assert_eq!((control.pending_count(), control.dropped_count()), (0, 2));
    let one_more = SimulatedNode::start(3);
    one_more
        .engine
        .control()
        .block_address("192.0.2.9", None, OPERATOR)
        .unwrap();
    let outcome = one_more.sync(&register);
    assert_eq!((outcome.dropped, outcome.changed), (1, MAX_BLOCKS - 1));
}

#[test]
fn without_a_register_nothing_is_queued() {
    let (engine, _clock) = engine(vec![limit("api", per_second(2))]);
    let control = engine.control();
    control.block_key("api", &["bob"], None, OPERATOR).unwrap();
    assert_eq!(control.pending_count(), 0);
    control.start_sharing(Arc::new(|| {}));
    let batch = control.next_changes();
    assert_eq!(
        batch.changes()[0].mode,
        PutMode::SetIfAbsent,
        "it was set before sharing started"
    );
}
