//! Nodes that join, leave, die, or differ in their secret or policy.

use std::sync::Arc;
use std::time::Duration;

use tollgate_core::Nanos;
use tollgate_policy::source::SourceFormat;
use tollgate_testkit::register::{ModelRegister, RegisterFault};

use super::{Member, OTHER_POLICY, POLICY, TWO_SECONDS, advance, service_with};
use crate::Secret;
use crate::fleet::membership::{FleetSize, Membership, MembershipSettings};

#[tokio::test(start_paused = true)]
async fn nodes_see_other_nodes_join_leave_and_die() {
    let register = Arc::new(ModelRegister::default());
    let (one, two, three) = (
        Member::start_default(&register),
        Member::start_default(&register),
        Member::start_default(&register),
    );
    assert_eq!(one.membership.fleet_size(), FleetSize::Unknown);
    advance(&register, TWO_SECONDS).await;
    for member in [&one, &two, &three] {
        assert_eq!(
            member.membership.fleet_size(),
            FleetSize::Observed(3.try_into().unwrap())
        );
        let view = member.membership.view();
        assert_eq!(view.nodes.iter().filter(|one| one.is_self).count(), 1);
        // The last heartbeat and the last round are each at most 1.1 heartbeat intervals old, in steps of 50 ms. A bound of one
        // second failed in one run of thirty.
        let oldest = Nanos::from_millis(1_200);
        assert!(view.nodes.iter().all(|one| one.age < oldest));
        assert_eq!((view.mismatches, view.error), ([0, 0], None));
    }
    two.stop().await;
    advance(&register, Duration::from_secs(1)).await;
    assert_eq!(one.visible_nodes(), 2, "it has left");
    drop(three);
    advance(&register, TWO_SECONDS).await;
    assert_eq!(one.visible_nodes(), 2, "its entry has not expired yet");
    advance(&register, TWO_SECONDS).await;
    assert_eq!(one.visible_nodes(), 1);
}

#[tokio::test(start_paused = true)]
async fn another_secret_or_policy_raises_an_alarm_until_it_is_fixed() {
    let register = Arc::new(ModelRegister::default());
    let one = Member::start_default(&register);
    let other_secret = Member::start(
        &register,
        service_with(POLICY, "not the secret at all"),
        "not the secret at all",
    );
    advance(&register, Duration::from_secs(1)).await;
    assert_eq!(
        one.membership.view().mismatches,
        [0, 0],
        "below the threshold"
    );
    advance(&register, TWO_SECONDS).await;
    assert_eq!(
        one.membership.view().mismatches,
        [1, 0],
        "policies are compared only if the secrets match"
    );
    assert_eq!(other_secret.membership.view().mismatches, [1, 0]);
    other_secret.stop().await;
    advance(&register, Duration::from_secs(1)).await;
    assert_eq!(one.membership.view().mismatches, [0, 0]);
    let other = Member::start(
        &register,
        service_with(OTHER_POLICY, "the secret of this fleet"),
        "the secret of this fleet",
    );
    advance(&register, Duration::from_secs(5)).await;
    assert_eq!(
        one.membership.view().mismatches,
        [0, 0],
        "below the threshold of policies"
    );
    advance(&register, Duration::from_secs(10)).await;
    assert_eq!(one.membership.view().mismatches, [0, 1]);
    let same = tollgate_policy::load(POLICY, "policy.yaml", SourceFormat::Yaml).unwrap();
    other.service.replace(&same).unwrap();
    advance(&register, TWO_SECONDS).await;
    assert_eq!(one.membership.view().mismatches, [0, 0]);
}

#[tokio::test(start_paused = true)]
async fn the_configured_fleet_size_counts_until_the_register_reports_one() {
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
    let (one, two) = (
        Member::start_default(&register),
        Member::start_default(&register),
    );
    advance(&register, TWO_SECONDS).await;
    register.be(RegisterFault::Gone);
    drop(two);
    advance(&register, Duration::from_secs(60)).await;
    assert_eq!(
        one.membership.fleet_size(),
        FleetSize::Observed(2.try_into().unwrap()),
        "as last reported"
    );
}
