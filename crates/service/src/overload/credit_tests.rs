//! Credits of a target whose capacity was found, with time that is handed in.

use std::net::IpAddr;
use std::sync::Arc;

use tollgate_core::Nanos;
use tollgate_overload::CreditClient;
use tollgate_policy::model::{Mode, OverloadSpec};

use super::control::{OverloadControl, ProcessSignals};
use super::tests::{at, measured, ticket};
use super::{OverloadTicket, tenant_of};

fn credit_ticket(mode: Mode, tenant: Option<u64>) -> OverloadTicket {
    let spec = OverloadSpec {
        credits: mode,
        ..OverloadSpec::default()
    };
    OverloadTicket {
        tenant,
        ..ticket(0, spec)
    }
}

/// The credits of a client in its first response.
fn first_offer(
    control: &OverloadControl,
    now: u64,
    mode: Mode,
    tenant: Option<u64>,
) -> Option<u32> {
    let offer = control.offer_credits(at(now), &credit_ticket(mode, tenant))?;
    Some(offer.quota)
}

#[test]
fn credits_are_sent_only_in_force_and_to_known_addresses() {
    let (targets, now) = measured();
    let control = targets.unnamed();
    for (mode, tenant) in [
        (Mode::Off, Some(1)),
        (Mode::Shadow, Some(1)),
        (Mode::Enforce, None),
    ] {
        assert_eq!(first_offer(control, now, mode, tenant), None, "{mode:?}");
    }
    // The upstream does about 60 requests in 50 ms; a new client gets a sixteenth of them in a second.
    let quota = first_offer(control, now, Mode::Enforce, Some(2)).unwrap();
    assert!((50..=75).contains(&quota), "{quota}");
    let status = targets.status(at(now), &[], OverloadSpec::default());
    assert_eq!(status.credit_offers, (1, 1));
    assert_eq!(status.targets[0].credits.unwrap().clients, 2);

    // A target that nobody has measured has none to give.
    assert_eq!(
        first_offer(&OverloadControl::default(), now, Mode::Enforce, Some(1)),
        None
    );
}

#[test]
fn credits_that_are_switched_off_are_forgotten() {
    let (targets, now) = measured();
    let control = targets.unnamed();
    assert!(first_offer(control, now, Mode::Enforce, Some(1)).is_some());
    let off = credit_ticket(Mode::Off, Some(1));
    let checked = control.check(at(now), &off, 1, ProcessSignals::default());
    assert_eq!(checked, Ok(()));
    let status = targets.status(at(now), &[], OverloadSpec::default());
    assert_eq!(status.targets[0].credits, None);
}

#[test]
fn a_shed_client_is_told_when_to_come_back_and_in_shadow_mode_only_the_least() {
    let (targets, _) = measured();
    let control: &Arc<OverloadControl> = targets.unnamed();
    let class = ticket(0, OverloadSpec::default()).class;
    let mut last = 0;
    for id in 0..5_000 {
        let client = Some(CreditClient { id, class });
        let shed = control.shed_queued(class, Mode::Enforce, client);
        assert_eq!(shed.credits.unwrap().remaining, 0);
        let wait = shed.refusal().retry_after.unwrap().as_nanos() / 1_000_000_000;
        assert!(wait >= last, "later clients come later");
        last = wait;
    }
    // 5,000 clients, about 1,200 in a second.
    assert!((3..=6).contains(&last), "{last}");
    let client = Some(CreditClient { id: 9_000, class });
    let shed = control.shed_queued(class, Mode::Shadow, client);
    assert_eq!(shed.credits, None);
    assert_eq!(shed.refusal().retry_after, Some(Nanos::SECOND));
}

#[test]
fn a_client_cannot_choose_another_account_inside_its_network() {
    let tenant = |address: &str| tenant_of(address.parse::<IpAddr>().unwrap());
    assert_eq!(tenant("2001:db8:1:2::1"), tenant("2001:db8:1:2:ffff::9"));
    assert_ne!(tenant("2001:db8:1:2::1"), tenant("2001:db8:1:3::1"));
    assert_eq!(tenant("::ffff:192.0.2.1"), tenant("192.0.2.1"));
    assert_ne!(tenant("192.0.2.1"), tenant("192.0.2.2"));
}
