//! Nodes of a fleet on a register in memory, in time that tests move.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tollgate_core::{Nanos, Timestamp};
use tollgate_engine::control::{
    Attribution, Halt, OperatorState, RegisterChanges, Switch, SyncOutcome, WakeCallback,
};
use tollgate_policy::source::SourceFormat;
use tollgate_store::ManualClock;
use tollgate_store::register::{NodeId, Register, RegisterSnapshot};
use tollgate_testkit::register::{ModelRegister, RegisterFault};

use super::register_sync::RegisterSync;
use super::{FleetSize, LocalNode, Membership, MembershipSettings, NodeTotals};
use crate::{RateLimitService, Secret};

const BY: Attribution<'_> = Attribution {
    who: "ada",
    why: "a test",
};
const POLICY: &str = "limits: [{ name: api, key: header.x-api-key, rate: 10/s }]";
const OTHER_POLICY: &str = "limits: [{ name: api, key: header.x-api-key, rate: 11/s }]";

type TestService = RateLimitService<Arc<ManualClock>>;

fn service_with(policy: &str, secret: &str) -> Arc<TestService> {
    let policy = tollgate_policy::load(policy, "policy.yaml", SourceFormat::Yaml).unwrap();
    let clock = Arc::new(ManualClock::at(Timestamp::from_secs(1_700_000_000)));
    let secret = Secret::from_shared_text(secret.as_bytes()).unwrap();
    Arc::new(RateLimitService::new(&policy, 1_000, clock, secret).unwrap())
}

fn service() -> Arc<TestService> {
    service_with(POLICY, "the secret of this fleet")
}

/// A node that takes part until it is stopped, or dropped, which kills it.
struct Member {
    service: Arc<TestService>,
    membership: Arc<Membership>,
    stop: oneshot::Sender<()>,
    task: JoinSet<()>,
}

impl Member {
    fn start(register: &Arc<ModelRegister>, service: Arc<TestService>, secret: &str) -> Self {
        let node: Arc<dyn LocalNode> = Arc::<TestService>::clone(&service);
        Self::start_as(register, service, node, secret)
    }

    fn start_as(
        register: &Arc<ModelRegister>,
        service: Arc<TestService>,
        node: Arc<dyn LocalNode>,
        secret: &str,
    ) -> Self {
        let secret = Secret::from_shared_text(secret.as_bytes()).unwrap();
        let membership = Membership::new(secret, MembershipSettings::default());
        let (stop, stopping) = oneshot::channel::<()>();
        let register: Arc<dyn Register> = Arc::<ModelRegister>::clone(register);
        let mut task = JoinSet::new();
        task.spawn(Arc::clone(&membership).run(register, node, async {
            let _said_or_dropped = stopping.await;
        }));
        Self {
            service,
            membership,
            stop,
            task,
        }
    }

    fn plain(register: &Arc<ModelRegister>) -> Self {
        Self::start(register, service(), "the secret of this fleet")
    }

    fn seen(&self) -> usize {
        self.membership.view().nodes.len()
    }

    async fn stop(mut self) {
        self.stop.send(()).unwrap();
        self.task.join_next().await.unwrap().unwrap();
    }

    fn block(&self, key: &str) {
        let control = self.service.engine().control();
        control.block_key("api", &[key], None, BY).unwrap();
    }

    fn blocks(&self) -> usize {
        self.service
            .engine()
            .control()
            .operator_state()
            .blocks
            .len()
    }
}

/// Time passes, for the nodes and for the register.
async fn pass(register: &ModelRegister, time: Duration) {
    let step = Duration::from_millis(50);
    for _ in 0..time.as_millis() / step.as_millis() {
        register.advance(Nanos::from_millis(50));
        // The clock stands, and moves to the end of the step once everybody has done what is due before.
        let _moved = tokio::time::timeout(step, std::future::pending::<()>()).await;
    }
}

const TWO_SECONDS: Duration = Duration::from_secs(2);

#[tokio::test(start_paused = true)]
async fn nodes_see_who_is_there_who_leaves_and_who_dies() {
    let register = Arc::new(ModelRegister::default());
    let (one, two, three) = (
        Member::plain(&register),
        Member::plain(&register),
        Member::plain(&register),
    );
    assert_eq!(one.membership.fleet_size(), FleetSize::Unknown);
    pass(&register, TWO_SECONDS).await;
    for member in [&one, &two, &three] {
        assert_eq!(
            member.membership.fleet_size(),
            FleetSize::Observed(3.try_into().unwrap())
        );
        let view = member.membership.view();
        assert_eq!(view.nodes.iter().filter(|one| one.is_self).count(), 1);
        // Their last beat and our last look are each at most a beat and a tenth old, in steps of 50 ms. The bound was a second,
        // which one run in thirty missed.
        let oldest = Nanos::from_millis(1_200);
        assert!(view.nodes.iter().all(|one| one.age < oldest));
        assert_eq!((view.mismatches, view.error), ([0, 0], None));
    }
    two.stop().await;
    pass(&register, Duration::from_secs(1)).await;
    assert_eq!(one.seen(), 2, "it has said goodbye");
    drop(three);
    pass(&register, TWO_SECONDS).await;
    assert_eq!(
        one.seen(),
        2,
        "it is not heard of, and believed in for its life"
    );
    pass(&register, TWO_SECONDS).await;
    assert_eq!(one.seen(), 1);
}

#[tokio::test(start_paused = true)]
async fn another_secret_or_policy_alarms_after_a_while_and_until_it_is_mended() {
    let register = Arc::new(ModelRegister::default());
    let one = Member::plain(&register);
    let stray = Member::start(
        &register,
        service_with(POLICY, "not the secret at all"),
        "not the secret at all",
    );
    pass(&register, Duration::from_secs(1)).await;
    assert_eq!(one.membership.view().mismatches, [0, 0], "not yet");
    pass(&register, TWO_SECONDS).await;
    assert_eq!(
        one.membership.view().mismatches,
        [1, 0],
        "what its policy is nobody can tell"
    );
    assert_eq!(stray.membership.view().mismatches, [1, 0]);
    stray.stop().await;
    pass(&register, Duration::from_secs(1)).await;
    assert_eq!(one.membership.view().mismatches, [0, 0]);
    let other = Member::start(
        &register,
        service_with(OTHER_POLICY, "the secret of this fleet"),
        "the secret of this fleet",
    );
    pass(&register, Duration::from_secs(5)).await;
    assert_eq!(
        one.membership.view().mismatches,
        [0, 0],
        "a reload takes a while to get round"
    );
    pass(&register, Duration::from_secs(10)).await;
    assert_eq!(one.membership.view().mismatches, [0, 1]);
    let same = tollgate_policy::load(POLICY, "policy.yaml", SourceFormat::Yaml).unwrap();
    other.service.replace(&same).unwrap();
    pass(&register, TWO_SECONDS).await;
    assert_eq!(one.membership.view().mismatches, [0, 0]);
}

#[tokio::test(start_paused = true)]
async fn what_is_said_on_one_node_holds_on_all_within_two_seconds_and_after_all_have_restarted() {
    let register = Arc::new(ModelRegister::default());
    let (one, two) = (Member::plain(&register), Member::plain(&register));
    pass(&register, TWO_SECONDS).await;
    one.block("mallory");
    let control = two.service.engine().control();
    control
        .switch(None, Switch::halted(Halt::Shadow), BY)
        .unwrap();
    pass(&register, TWO_SECONDS).await;
    for member in [&one, &two] {
        let controls = member.service.engine().control().operator_state();
        assert_eq!(controls.everything, Switch::halted(Halt::Shadow));
        assert_eq!(controls.blocks.len(), 1);
    }
    let version = one.membership.view().controls_version;
    assert_eq!((version, two.membership.view().controls_version), (2, 2));
    one.stop().await;
    drop(two);
    let late = Member::plain(&register);
    late.membership.wait_until_synced().await;
    assert_eq!(late.blocks(), 1, "before it says that it is ready");
}

#[tokio::test(start_paused = true)]
async fn s_03_without_a_register_a_node_starts_and_what_is_said_waits() {
    let register = Arc::new(ModelRegister::default());
    register.be(RegisterFault::Gone);
    let one = Member::plain(&register);
    one.membership.wait_until_synced().await;
    assert_eq!(one.membership.fleet_size(), FleetSize::Unknown);
    one.block("mallory");
    assert_eq!(one.blocks(), 1, "here it holds at once");
    pass(&register, Duration::from_secs(60)).await;
    let view = one.membership.view();
    assert!(view.error.unwrap().contains("cannot be reached"));
    assert_eq!(view.pending_changes, 1);
    assert!(view.beat_age >= Nanos::from_secs(60));
    // Each attempt tells and beats.
    let calls = register.calls();
    assert!((30..300).contains(&calls), "{calls} calls in a minute");
    register.be(RegisterFault::Well);
    let two = Member::plain(&register);
    pass(&register, Duration::from_secs(3)).await;
    assert_eq!((one.seen(), two.seen(), two.blocks()), (2, 2, 1));
    let view = one.membership.view();
    assert_eq!((view.error, view.pending_changes), (None, 0));
}

#[tokio::test(start_paused = true)]
async fn nodes_that_are_configured_count_until_some_are_seen_and_those_last_seen_after() {
    let register = Arc::new(ModelRegister::default());
    let settings = MembershipSettings {
        nodes: Some(5.try_into().unwrap()),
        ..MembershipSettings::default()
    };
    let membership = Membership::new(Secret::random(), settings);
    assert_eq!(
        membership.fleet_size(),
        FleetSize::Configured(5.try_into().unwrap())
    );
    let (one, two) = (Member::plain(&register), Member::plain(&register));
    pass(&register, TWO_SECONDS).await;
    register.be(RegisterFault::Gone);
    drop(two);
    pass(&register, Duration::from_secs(60)).await;
    assert_eq!(
        one.membership.fleet_size(),
        FleetSize::Observed(2.try_into().unwrap()),
        "as last seen"
    );
}

#[tokio::test(start_paused = true)]
async fn s_08_what_was_put_without_an_answer_is_put_once() {
    let register = Arc::new(ModelRegister::default());
    let (one, two) = (Member::plain(&register), Member::plain(&register));
    pass(&register, TWO_SECONDS).await;
    register.be(RegisterFault::Mute);
    let switch = |member: &Member, halt| {
        let control = member.service.engine().control();
        control
            .switch(Some("api"), Switch::halted(halt), BY)
            .unwrap();
    };
    switch(&one, Halt::Off);
    pass(&register, TWO_SECONDS).await;
    // It is there, and somebody else says something newer before the first hears so.
    register.be(RegisterFault::Well);
    let newer = ToldBy(NodeId(99));
    newer.shadow(&register);
    pass(&register, Duration::from_secs(4)).await;
    for member in [&one, &two] {
        let controls = member.service.engine().control().operator_state();
        assert_eq!(controls.limits["api"], Switch::halted(Halt::Shadow));
    }
}

/// Somebody who puts things into the register by hand.
struct ToldBy(NodeId);

impl ToldBy {
    fn shadow(&self, register: &ModelRegister) {
        let service = service();
        service.engine().control().start_sharing(Arc::new(|| {}));
        let control = service.engine().control();
        control
            .switch(Some("api"), Switch::halted(Halt::Shadow), BY)
            .unwrap();
        register
            .put_now(self.0, 1, control.next_changes().changes())
            .unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn s_02_a_register_that_starts_empty_is_told_again() {
    let register = Arc::new(ModelRegister::default());
    let (one, two) = (Member::plain(&register), Member::plain(&register));
    one.block("mallory");
    two.block("eve");
    pass(&register, TWO_SECONDS).await;
    register.lose_everything();
    pass(&register, TWO_SECONDS).await;
    let three = Member::plain(&register);
    pass(&register, TWO_SECONDS).await;
    assert_eq!([&one, &two, &three].map(Member::blocks), [2, 2, 2]);
}

/// A node whose policy cannot be told once, because of a bug.
struct Buggy {
    service: Arc<TestService>,
    bugs: AtomicU64,
}

impl LocalNode for Buggy {
    fn policy(&self) -> u64 {
        let left = self
            .bugs
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1));
        assert!(left.is_err(), "a bug");
        LocalNode::policy(&*self.service)
    }

    fn generation(&self) -> u64 {
        LocalNode::generation(&*self.service)
    }

    fn totals(&self) -> NodeTotals {
        self.service.totals()
    }

    fn set_fleet_size(&self, nodes: std::num::NonZeroU32) {
        self.service.set_fleet_size(nodes);
    }

    fn start_sharing(&self, wake: WakeCallback) {
        self.service.start_sharing(wake);
    }

    fn pending_changes(&self) -> RegisterChanges {
        self.service.pending_changes()
    }

    fn confirm_changes(&self, put: &RegisterChanges) {
        self.service.confirm_changes(put);
    }

    fn discard_changes(&self, put: &RegisterChanges) {
        self.service.discard_changes(put);
    }

    fn resend_changes(&self, lost_after: Option<u64>) {
        self.service.resend_changes(lost_after);
    }

    fn apply_snapshot(&self, said: &RegisterSnapshot) -> SyncOutcome {
        self.service.apply_snapshot(said)
    }

    fn pending_counts(&self) -> (usize, u64) {
        self.service.pending_counts()
    }
}

#[tokio::test(start_paused = true)]
async fn i13_a_bug_in_the_task_is_counted_and_the_task_goes_on() {
    let register = Arc::new(ModelRegister::default());
    let service = service();
    let bugs = AtomicU64::new(2);
    let node = Arc::new(Buggy {
        service: Arc::clone(&service),
        bugs,
    });
    let member = Member::start_as(&register, service, node, "the secret of this fleet");
    member.membership.wait_until_synced().await;
    pass(&register, Duration::from_secs(10)).await;
    assert_eq!((member.membership.panics(), member.seen()), (2, 1));
}

/// Random numbers that a seed repeats (splitmix64).
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let word = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((word ^ (word >> 31)) % bound).unwrap()
    }
}

/// One node of a fleet whose rounds are taken by hand.
struct Stepped<'a> {
    service: Arc<TestService>,
    exchange: RegisterSync<'a>,
}

impl Stepped<'_> {
    fn act(&self, dice: &mut Dice) {
        let control = self.service.engine().control();
        let key = ["alice", "bob"][dice.below(2)];
        // What makes no sense now, such as lifting what is not there, changes nothing.
        let _done = match dice.below(6) {
            0 => control.block_key("api", &[key], None, BY),
            1 => control.unblock_key("api", &[key], BY),
            2 => control.override_key("api", &[key], ["5/s", "6/s"][dice.below(2)], None, BY),
            3 => control.remove_override("api", &[key], BY),
            4 => control.switch(Some("api"), Switch::halted(Halt::Off), BY),
            _ => control.switch(Some("api"), Switch::default(), BY),
        };
    }

    async fn round(&mut self, register: &ModelRegister) {
        let _told = self.exchange.push_changes(register, &*self.service).await;
        // Asked without a beat, which is about lives.
        if let Ok(said) = register.entries_now(None) {
            let _heard = self
                .exchange
                .pull_changes(register, &*self.service, said.cursor)
                .await;
        }
    }
}

/// What holds, however keys are shown: where they were named they are shown by name.
fn held(service: &TestService) -> String {
    let OperatorState {
        everything,
        limits,
        mut overrides,
        mut blocks,
    } = service.engine().control().operator_state();
    for one in &mut overrides {
        one.key.shown = one.key.key.clone();
    }
    let mut told: Vec<String> = overrides.iter().map(|one| format!("{one:?}")).collect();
    for block in &mut blocks {
        if let tollgate_engine::control::Block::Key { key, .. } = block {
            key.shown = key.key.clone();
        }
        told.push(format!("{block:?}"));
    }
    told.sort();
    format!("{everything:?} {limits:?} {told:?}")
}

/// Acts and rounds in any order, on a register that comes and goes and forgets its end; then everybody is heard out.
async fn story(seed: u64, rounds_at_the_end: u32) -> (Vec<String>, bool) {
    let register = ModelRegister::default();
    let mut dice = Dice(seed);
    let puts = [const { AtomicU64::new(0) }; 3];
    let mut nodes: Vec<Stepped<'_>> = (1..)
        .zip(&puts)
        .map(|(id, puts)| {
            let service = service();
            service.engine().control().start_sharing(Arc::new(|| {}));
            let exchange = RegisterSync::new(NodeId(id), puts);
            Stepped { service, exchange }
        })
        .collect();
    let mut has_lost = false;
    for _ in 0..60 {
        let node = dice.below(3);
        match dice.below(10) {
            0..=3 => nodes[node].act(&mut dice),
            4..=7 => nodes[node].round(&register).await,
            8 => {
                let mood = [
                    RegisterFault::Gone,
                    RegisterFault::Mute,
                    RegisterFault::Well,
                ][dice.below(3)];
                register.be(mood);
            }
            _ => {
                register.be(RegisterFault::Well);
                let version = register.entries_now(None).unwrap().cursor.version;
                if dice.below(3) == 0 && version > 1 {
                    has_lost = true;
                    register.lose_after(version - 1);
                }
            }
        }
    }
    register.be(RegisterFault::Well);
    for _ in 0..rounds_at_the_end {
        for node in &mut nodes {
            node.round(&register).await;
        }
    }
    (
        nodes.iter().map(|node| held(&node.service)).collect(),
        has_lost,
    )
}

#[tokio::test]
async fn whatever_happens_all_nodes_come_to_hold_the_same() {
    let (mut losses, mut differing) = (0, std::collections::HashSet::new());
    for seed in 0..150 {
        let (held, has_lost) = story(seed, 3).await;
        losses += u64::from(has_lost);
        assert!(
            held.iter().all(|one| *one == held[0]),
            "seed {seed}: {held:#?}"
        );
        differing.insert(held[0].clone());
    }
    assert!(losses > 20, "{losses} stories with losses");
    assert!(differing.len() > 10, "they do not all end with nothing");
}

#[tokio::test]
async fn control_nodes_that_are_not_heard_out_differ() {
    let mut differ = 0;
    for seed in 0..50 {
        let (held, _) = story(seed, 0).await;
        differ += u64::from(held.iter().any(|one| *one != held[0]));
    }
    assert!(differ > 10, "{differ} of 50 stories differ");
}
