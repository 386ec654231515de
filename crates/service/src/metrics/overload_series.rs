//! Writes the series of overload control: the limit, who waits, and what is shed of each class.
//!
//! Labels are names of the policy, and the number of targets is bounded. Must not know: HTTP, how load is measured.

use super::exposition::MetricsPage;
use super::families;
use crate::overload::{OverloadStatus, OverloadTargetStatus};

pub(super) fn write_overload(page: &mut MetricsPage, status: &OverloadStatus) {
    let mut gauge = |family, value: fn(&OverloadTargetStatus) -> u64| {
        let mut series = page.family(family);
        for target in &status.targets {
            series.add(&[&target.upstream, &target.route], value(target));
        }
    };
    gauge(&families::OVERLOAD_LIMIT, |target| target.limit.into());
    gauge(&families::OVERLOAD_IN_FLIGHT, |target| {
        target.in_flight.into()
    });
    gauge(&families::OVERLOAD_QUEUED, |target| target.queued as u64);
    let mut percent = page.family(&families::OVERLOAD_SHED_PERCENT);
    for target in &status.targets {
        for (class, share) in &target.shed_percent {
            percent.add(&[&target.upstream, &target.route, class], (*share).into());
        }
    }
    let fleets = || {
        let targets = status.targets.iter();
        targets.filter_map(|target| Some((&*target.upstream, &*target.route, target.fleet?)))
    };
    if fleets().next().is_some() {
        let mut limit = page.family(&families::OVERLOAD_FLEET_LIMIT);
        for (upstream, route, fleet) in fleets() {
            limit.add(&[upstream, route], fleet.limit);
        }
        let mut in_flight = page.family(&families::OVERLOAD_FLEET_IN_FLIGHT);
        for (upstream, route, fleet) in fleets() {
            in_flight.add(&[upstream, route, "critical"], fleet.critical);
            in_flight.add(&[upstream, route, "others"], fleet.others);
        }
    }
    if let Some(cpu) = status.cpu {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a share is between 0 and 4"
        )]
        let percent = (cpu * 100.0).round() as u64;
        page.family(&families::OVERLOAD_CPU).add(&[], percent);
    }
    let (sent, shadow) = status.credit_offers;
    let mut offers = page.family(&families::OVERLOAD_CREDIT_OFFERS);
    offers.add(&["enforce"], sent);
    offers.add(&["shadow"], shadow);
    let credits = || {
        let targets = status.targets.iter();
        targets.filter_map(|target| Some((&*target.upstream, &*target.route, target.credits?)))
    };
    if credits().next().is_some() {
        let mut issued = page.family(&families::OVERLOAD_CREDITS);
        for (upstream, route, credits) in credits() {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "casts from floats saturate"
            )]
            issued.add(&[upstream, route], credits.issued_per_second as u64);
        }
        let mut clients = page.family(&families::OVERLOAD_CREDIT_CLIENTS);
        for (upstream, route, credits) in credits() {
            clients.add(&[upstream, route], credits.clients as u64);
        }
    }
    let mut shed = page.family(&families::OVERLOAD_SHED);
    for count in &status.shed {
        let mechanism = count.mechanism.name();
        shed.add(&[&count.class, mechanism, "enforce"], count.enforced);
        shed.add(&[&count.class, mechanism, "shadow"], count.shadow);
    }
}
