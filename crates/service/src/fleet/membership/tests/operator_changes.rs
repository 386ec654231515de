//! Operators' changes that reach all nodes, through failures and losses of the register.

use std::sync::Arc;
use std::time::Duration;

use tollgate_core::Nanos;
use tollgate_engine::control::{Halt, Switch};
use tollgate_store::register::NodeId;
use tollgate_testkit::register::{ModelRegister, RegisterFault};

use super::{BY, Member, TWO_SECONDS, advance, service};
use crate::fleet::membership::FleetSize;

#[tokio::test(start_paused = true)]
async fn an_operators_change_reaches_all_nodes_within_two_seconds_and_survives_their_restart() {
    let register = Arc::new(ModelRegister::default());
    let (one, two) = (
        Member::start_default(&register),
        Member::start_default(&register),
    );
    advance(&register, TWO_SECONDS).await;
    one.block("mallory");
    let control = two.service.engine().control();
    control
        .switch(None, Switch::halted(Halt::Shadow), BY)
        .unwrap();
    advance(&register, TWO_SECONDS).await;
    for member in [&one, &two] {
        let controls = member.service.engine().control().operator_state();
        assert_eq!(controls.everything, Switch::halted(Halt::Shadow));
        assert_eq!(controls.blocks.len(), 1);
    }
    let version = one.membership.view().controls_version;
    assert_eq!((version, two.membership.view().controls_version), (2, 2));
    one.stop().await;
    drop(two);
    let late = Member::start_default(&register);
    late.membership.wait_until_synced().await;
    assert_eq!(late.blocks(), 1, "before it is ready");
}

#[tokio::test(start_paused = true)]
async fn s_03_without_a_register_a_node_starts_and_operators_changes_stay_pending() {
    let register = Arc::new(ModelRegister::default());
    register.be(RegisterFault::Gone);
    let one = Member::start_default(&register);
    one.membership.wait_until_synced().await;
    assert_eq!(one.membership.fleet_size(), FleetSize::Unknown);
    one.block("mallory");
    assert_eq!(one.blocks(), 1, "it applies to this node at once");
    advance(&register, Duration::from_secs(60)).await;
    let view = one.membership.view();
    assert!(view.error.unwrap().contains("cannot be reached"));
    assert_eq!(view.pending_changes, 1);
    assert!(view.beat_age >= Nanos::from_secs(60));
    // Each attempt pushes changes and sends a heartbeat.
    let calls = register.calls();
    assert!((30..300).contains(&calls), "{calls} calls in a minute");
    register.be(RegisterFault::Well);
    let two = Member::start_default(&register);
    advance(&register, Duration::from_secs(3)).await;
    assert_eq!(
        (one.visible_nodes(), two.visible_nodes(), two.blocks()),
        (2, 2, 1)
    );
    let view = one.membership.view();
    assert_eq!((view.error, view.pending_changes), (None, 0));
}

#[tokio::test(start_paused = true)]
async fn s_08_a_push_without_a_reply_is_applied_once() {
    let register = Arc::new(ModelRegister::default());
    let (one, two) = (
        Member::start_default(&register),
        Member::start_default(&register),
    );
    advance(&register, TWO_SECONDS).await;
    register.be(RegisterFault::Mute);
    let switch = |member: &Member, halt| {
        let control = member.service.engine().control();
        control
            .switch(Some("api"), Switch::halted(halt), BY)
            .unwrap();
    };
    switch(&one, Halt::Off);
    advance(&register, TWO_SECONDS).await;
    // The register has the change. Another node pushes a newer one before the first node gets its reply.
    register.be(RegisterFault::Well);
    let newer = ManualPusher(NodeId(99));
    newer.push_shadow_switch(&register);
    advance(&register, Duration::from_secs(4)).await;
    for member in [&one, &two] {
        let controls = member.service.engine().control().operator_state();
        assert_eq!(controls.limits["api"], Switch::halted(Halt::Shadow));
    }
}

/// Pushes changes to the register by hand.
struct ManualPusher(NodeId);

impl ManualPusher {
    fn push_shadow_switch(&self, register: &ModelRegister) {
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
async fn s_02_changes_are_pushed_again_to_a_register_that_lost_all_data() {
    let register = Arc::new(ModelRegister::default());
    let (one, two) = (
        Member::start_default(&register),
        Member::start_default(&register),
    );
    one.block("mallory");
    two.block("eve");
    advance(&register, TWO_SECONDS).await;
    register.lose_everything();
    advance(&register, TWO_SECONDS).await;
    let three = Member::start_default(&register);
    advance(&register, TWO_SECONDS).await;
    assert_eq!([&one, &two, &three].map(Member::blocks), [2, 2, 2]);
}
