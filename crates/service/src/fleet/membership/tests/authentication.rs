//! Attacks by a client that can write to the register: it must not change what nodes do.
//!
//! The client reads everything and writes what it likes, but does not know the fleet's secret.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use tollgate_core::Nanos;
use tollgate_engine::control::{Block, Halt, Switch};
use tollgate_store::register::{
    Heartbeat, NodeId, NodeLoad, NodeUsage, PutMode, Register as _, RegisterEntry, RegisterPut,
};
use tollgate_testkit::register::ModelRegister;

use super::{
    BY, LocalNode, Member, MembershipSettings, TWO_SECONDS, TestService, advance, service,
};
use crate::fleet::membership::FleetSize;
use crate::fleet::membership::register_sync::RegisterSync;

const SECRET: &str = "the secret of this fleet";
/// The kill switch, as versions without signatures wrote it.
const KILL_SWITCH: &str = r#"{"v":1,"who":"mallory","why":"x","switch":{"halt":"off"}}"#;

/// A client that can write to the register.
struct Attacker(Arc<ModelRegister>, u64);

impl Attacker {
    fn put(&mut self, name: &str, body: &[u8], mode: PutMode, expires_in: Option<Nanos>) {
        self.1 += 1;
        let put = RegisterPut {
            name: name.into(),
            body: body.into(),
            mode,
            expires_in,
        };
        self.0.put_now(NodeId(666), self.1, &[put]).unwrap();
    }

    fn read(&self, name: &str) -> RegisterEntry {
        let mut entries = self.0.entries_now(None).unwrap().entries;
        entries.retain(|entry| &*entry.name == name);
        entries.pop().unwrap()
    }
}

fn fleet() -> (Arc<ModelRegister>, Attacker) {
    let register = Arc::new(ModelRegister::default());
    (Arc::clone(&register), Attacker(register, 0))
}

fn upgrading(register: &Arc<ModelRegister>) -> Member {
    let service = service();
    let node: Arc<dyn LocalNode> = Arc::<TestService>::clone(&service);
    let settings = MembershipSettings {
        accept_unsigned: true,
        ..MembershipSettings::default()
    };
    Member::start_with(register, service, node, SECRET, settings)
}

fn is_off(member: &Member) -> bool {
    member.service.engine().control().global_switch() == Switch::halted(Halt::Off)
}

fn switch(member: &Member, to: Switch) {
    let control = member.service.engine().control();
    control.switch(None, to, BY).unwrap();
}

/// By reason: forged, replayed, unsigned.
fn rejected(member: &Member) -> [u64; 3] {
    member.membership.rejections().totals
}

fn heartbeat(node: u64, fingerprint: u64) -> Heartbeat {
    Heartbeat {
        node: NodeId(node),
        secret_fingerprint: fingerprint,
        policy_fingerprint: 7,
        generation: 1,
        version: "0.0.9".into(),
        load: NodeLoad::default(),
        usage: NodeUsage::default(),
        seal: None,
    }
}

/// Entries were plain JSON: a client of the same Redis wrote one entry and switched off all limits on all nodes, within
/// half a second. The node that accepts unsigned entries shows what happened before.
#[tokio::test(start_paused = true)]
async fn s_39_a_forged_kill_switch_is_ignored_counted_and_raises_an_alarm() {
    let (register, mut attacker) = fleet();
    let node = Member::start_default(&register);
    let mut elsewhere = Attacker(Arc::default(), 0);
    let before = upgrading(&elsewhere.0);
    advance(&register, TWO_SECONDS).await;
    assert!(!node.membership.rejections().is_alarming);

    for attacker in [&mut attacker, &mut elsewhere] {
        attacker.put("switch", KILL_SWITCH.as_bytes(), PutMode::Set, None);
    }
    advance(&register, Duration::from_millis(600)).await;
    assert!(is_off(&before), "the attack works without signatures");
    assert!(!is_off(&node));
    let [forged, replayed, unsigned] = rejected(&node);
    assert_eq!((forged, replayed), (0, 0));
    assert!(unsigned >= 1);
    assert!(node.membership.rejections().is_alarming);
    before.stop().await;

    let guessed = KILL_SWITCH.replace('}', r#","seq":1,"ttl":0,"mac":"00"}"#);
    attacker.put("switch", guessed.as_bytes(), PutMode::Set, None);
    let mut foreign = Attacker(Arc::default(), 0);
    let other = Member::start(&foreign.0, service(), "the secret of another fleet");
    switch(&other, Switch::halted(Halt::Off));
    advance(&foreign.0, TWO_SECONDS).await;
    let signed_by_others = foreign.read("switch").body;
    attacker.put("switch", &signed_by_others, PutMode::Set, None);
    advance(&register, TWO_SECONDS).await;
    assert!(!is_off(&node));
    assert!(rejected(&node)[0] >= 1, "{:?}", rejected(&node));
    foreign.put("nothing", b"{}", PutMode::Set, None);

    advance(&register, Duration::from_secs(61)).await;
    assert!(!node.membership.rejections().is_alarming, "the alarm ends");
}

/// An authentic entry under another name: the block of one key would block another one, the switch of one limit all.
#[tokio::test(start_paused = true)]
async fn s_39_an_authentic_entry_does_not_count_under_another_name_or_as_a_removal() {
    let (register, mut attacker) = fleet();
    let (one, two) = (
        Member::start_default(&register),
        Member::start_default(&register),
    );
    let api = one.service.engine().control();
    api.switch(Some("api"), Switch::halted(Halt::Off), BY)
        .unwrap();
    advance(&register, TWO_SECONDS).await;
    let body = attacker.read("switch/api").body;
    attacker.put("switch", &body, PutMode::Set, None);
    attacker.put("switch/api", &body, PutMode::Remove, None);
    advance(&register, TWO_SECONDS).await;
    for node in [&one, &two] {
        assert!(!is_off(node));
        let state = node.service.engine().control().operator_state();
        assert_eq!(state.limits.len(), 1, "the forged removal is ignored");
        assert_eq!(rejected(node)[0], 2);
    }
}

/// A client records the kill switch while it is on, and writes it again after an operator has removed it.
#[tokio::test(start_paused = true)]
async fn s_39_a_replayed_entry_is_ignored_and_the_nodes_repair_the_register() {
    let (register, mut attacker) = fleet();
    let (one, two) = (
        Member::start_default(&register),
        Member::start_default(&register),
    );
    switch(&one, Switch::halted(Halt::Off));
    advance(&register, TWO_SECONDS).await;
    assert!(is_off(&two));
    let recorded = attacker.read("switch").body;
    switch(&two, Switch::default());
    advance(&register, TWO_SECONDS).await;
    assert!(!is_off(&one) && !is_off(&two));

    attacker.put("switch", &recorded, PutMode::Set, None);
    advance(&register, TWO_SECONDS).await;
    assert!(!is_off(&one) && !is_off(&two));
    // The node that reads first repairs the register; the other may never see the replay.
    assert!(rejected(&one)[1] + rejected(&two)[1] >= 1);
    assert!(attacker.read("switch").is_tombstone, "repaired");
    let late = Member::start_default(&register);
    advance(&register, TWO_SECONDS).await;
    assert!(
        !is_off(&late),
        "a node that starts later does not see it either"
    );
}

/// A client makes a temporary block permanent: the expiry is kept by the register.
#[tokio::test(start_paused = true)]
async fn s_39_nobody_can_prolong_an_entry() {
    let (register, mut attacker) = fleet();
    let node = Member::start_default(&register);
    let other = Member::start_default(&register);
    let control = node.service.engine().control();
    let minute = Some(Nanos::MINUTE);
    control.block_key("api", &["alice"], minute, BY).unwrap();
    advance(&register, TWO_SECONDS).await;
    assert_eq!((node.blocks(), other.blocks()), (1, 1));
    let name: Box<str> = register.entries_now(None).unwrap().entries[0].name.clone();
    let recorded = attacker.read(&name).body;
    let state = |member: &Member| {
        let blocks = member.service.engine().control().operator_state().blocks;
        blocks.first().and_then(|block| match block {
            Block::Key { until, .. } | Block::Address { until, .. } => *until,
        })
    };
    let before = state(&other);
    attacker.put(&name, &recorded, PutMode::Set, None);
    advance(&register, TWO_SECONDS).await;
    assert!(state(&other).is_some() && state(&other) <= before);
    let late = Member::start_default(&register);
    advance(&register, TWO_SECONDS).await;
    let late = state(&late);
    assert!(
        late.is_some(),
        "a node that starts later counts the signed minute"
    );
}

/// A client deletes an entry without a tombstone and makes all nodes read everything again: they dropped the entry.
#[tokio::test(start_paused = true)]
async fn s_39_a_deleted_entry_holds_and_is_written_again() {
    let (register, attacker) = fleet();
    let (one, two) = (
        Member::start_default(&register),
        Member::start_default(&register),
    );
    switch(&one, Switch::halted(Halt::Off));
    advance(&register, TWO_SECONDS).await;
    register.delete_entry("switch");
    advance(&register, TWO_SECONDS).await;
    assert!(is_off(&one) && is_off(&two));
    assert!(!attacker.read("switch").is_tombstone, "written again");
    // The node that reads first repairs the register; the other may never see the deletion.
    let is_alarming = |node: &Member| node.membership.rejections().is_alarming;
    assert!(is_alarming(&one) || is_alarming(&two));
    switch(&two, Switch::default());
    advance(&register, TWO_SECONDS).await;
    assert!(!is_off(&one) && !is_off(&two), "operators still remove it");
}

/// Nodes divide limits by the number of nodes: with 1,000 invented nodes the share of each real one was a thousandth
/// while Redis was away. A heartbeat of a node that is gone must not count either.
#[tokio::test(start_paused = true)]
async fn s_39_invented_and_replayed_heartbeats_are_no_nodes() {
    let (register, _) = fleet();
    let node = Member::start_default(&register);
    let gone = Member::start_default(&register);
    advance(&register, TWO_SECONDS).await;
    let seen = |count: u32| FleetSize::Observed(count.try_into().unwrap());
    assert_eq!(node.membership.fleet_size(), seen(2));
    let own = node.membership.view().nodes[0].beat.clone();
    let of_gone = |beat: &Heartbeat| beat.node == gone.membership.id();
    let recorded = {
        let nodes = node.membership.view().nodes;
        let found = nodes.iter().find(|node| of_gone(&node.beat));
        found.unwrap().beat.clone()
    };
    gone.stop().await;
    for _ in 0..40 {
        for invented in 1..=100 {
            let beat = heartbeat(invented, own.secret_fingerprint);
            register.beat_now(&beat, Nanos::MINUTE).unwrap();
        }
        register.beat_now(&recorded, Nanos::MINUTE).unwrap();
        advance(&register, Duration::from_millis(500)).await;
    }
    assert_eq!(node.membership.fleet_size(), seen(1));
    let [forged, replayed, unsigned] = rejected(&node);
    assert_eq!(forged, 0);
    assert!(replayed > 5 && unsigned > 1_000, "{replayed} {unsigned}");
    let shown = node.membership.view().nodes;
    assert_eq!(shown.iter().filter(|node| !node.is_verified).count(), 101);
}

/// A node of the version before: it neither signs nor checks signatures.
struct OldNode<'a> {
    service: Arc<TestService>,
    sync: RegisterSync<'a>,
    id: u64,
}

impl<'a> OldNode<'a> {
    fn start(id: u64, puts: &'a AtomicU64) -> Self {
        let service = service();
        service.engine().control().start_sharing(Arc::new(|| {}));
        let sync = RegisterSync::new(NodeId(id), puts);
        Self { service, sync, id }
    }

    async fn round(&mut self, register: &ModelRegister, fingerprint: u64) {
        let pushed = self.sync.push_changes(register, &*self.service).await;
        pushed.unwrap();
        let beat = heartbeat(self.id, fingerprint);
        let life = Nanos::from_secs(3);
        let members = register.heartbeat(&beat, life).await.unwrap();
        let cursor = members.cursor;
        let pulled = self.sync.pull_changes(register, &*self.service, cursor);
        pulled.await.unwrap();
    }

    fn is_off(&self) -> bool {
        self.service.engine().control().global_switch() == Switch::halted(Halt::Off)
    }
}

/// A rolling upgrade: a node of the version before and a node of this one run beside each other for an hour, and
/// operators change the kill switch on either of them. Afterwards unsigned entries are refused again, and what was
/// changed on the old node still holds.
#[tokio::test(start_paused = true)]
async fn s_41_a_fleet_is_upgraded_node_by_node_within_an_hour() {
    let (register, attacker) = fleet();
    let (puts, fingerprint) = (AtomicU64::new(0), Member::start_default(&register));
    let fingerprint = {
        advance(&register, TWO_SECONDS).await;
        let print = fingerprint.membership.view().nodes[0]
            .beat
            .secret_fingerprint;
        fingerprint.stop().await;
        print
    };
    let mut old = OldNode::start(1, &puts);
    let control = |old: &OldNode<'_>, to| {
        let control = old.service.engine().control();
        control.switch(None, to, BY).unwrap();
    };
    control(&old, Switch::halted(Halt::Off));
    old.round(&register, fingerprint).await;
    let new = upgrading(&register);
    let mut was_off = true;
    for minute in 0..60 {
        // Every ten minutes an operator changes the switch, in turn on the old and on the new node.
        if minute % 10 == 5 {
            was_off = !was_off;
            let to = if was_off {
                Switch::halted(Halt::Off)
            } else {
                Switch::default()
            };
            match minute % 20 {
                5 => control(&old, to),
                _ => switch(&new, to),
            }
        }
        for _ in 0..60 {
            old.round(&register, fingerprint).await;
            advance(&register, Duration::from_secs(1)).await;
        }
        let states = (old.is_off(), is_off(&new));
        assert_eq!(states, (was_off, was_off), "minute {minute}");
        assert_eq!(new.membership.fleet_size().count().get(), 2);
    }
    assert_eq!(rejected(&new), [0, 0, 0]);
    control(&old, Switch::halted(Halt::Shadow));
    old.round(&register, fingerprint).await;
    advance(&register, TWO_SECONDS).await;
    let body = attacker.read("switch").body;
    assert!(
        String::from_utf8_lossy(&body).contains("\"mac\""),
        "signed by the new node"
    );
    new.stop().await;

    let last = Member::start_default(&register);
    advance(&register, TWO_SECONDS).await;
    let control = last.service.engine().control();
    assert_eq!(control.global_switch(), Switch::halted(Halt::Shadow));
    advance(&register, Duration::from_secs(10)).await;
    assert_eq!(last.membership.fleet_size().count().get(), 1);
}
