//! The control with time that is handed in.

use std::sync::Arc;

use tollgate_core::{Nanos, Timestamp};
use tollgate_overload::{Completion, PriorityClass};
use tollgate_policy::model::{Mode, OverloadSpec, Percent};
use tollgate_store::register::{NodeUsage, TargetUsage};

use super::control::{OverloadControl, ProcessSignals};
use super::fleet_usage::ReportedUsage;
use super::retries::Attempt;
use super::targets::MAX_TARGETS;
use super::{OverloadEntry, OverloadTargets, OverloadTicket, ShedMechanism};
use crate::secret::Secret;

const START: Timestamp = Timestamp::from_secs(1_000);

pub(super) fn ticket(class: usize, overload: OverloadSpec) -> OverloadTicket {
    OverloadTicket {
        target: Arc::default(),
        class: PriorityClass::new(class).unwrap(),
        tenant: Some(1),
        attempt: Attempt::Unknown,
        overload,
    }
}

pub(super) fn at(millis: u64) -> Timestamp {
    START.after(Nanos::from_millis(millis))
}

/// A control whose capacity was found, and the milliseconds that it took: an upstream with 60 workers and 50 ms for each request.
pub(super) fn measured() -> (OverloadTargets, u64) {
    let targets = OverloadTargets::default();
    let control = targets.unnamed();
    let spec = OverloadSpec {
        adaptive_concurrency: Mode::Shadow,
        ..OverloadSpec::default()
    };
    let mut now = 0;
    for (requests, latency) in [(60, 50); 10].into_iter().chain([(160, 133); 10]) {
        let enter = |_| OverloadControl::enter(control, at(now), &ticket(0, spec));
        let running: Vec<_> = (0..requests).map(enter).collect();
        now += latency;
        for entry in running {
            let OverloadEntry::Started(permit) = entry else {
                panic!("shadow mode sheds nothing");
            };
            permit.complete(at(now), Completion::Served);
        }
    }
    let capacity = control.usage().unwrap().capacity;
    assert!((50..=60).contains(&capacity), "{capacity}");
    (targets, now)
}

#[test]
fn the_reserve_is_kept_for_the_first_class_and_shadow_mode_only_counts() {
    let (targets, now) = measured();
    let control = targets.unnamed();
    let names = [Box::from("critical"), Box::from("default")];
    let capacity = u64::from(control.status(START, &names, "", "").unwrap().limit);
    let spec = |reserve| OverloadSpec {
        reserve,
        ..OverloadSpec::default()
    };
    let check = |class, mode| {
        control.check(
            at(now),
            &ticket(class, spec(mode)),
            2,
            ProcessSignals::default(),
        )
    };
    let mut running = Vec::new();
    while check(1, Mode::Enforce).is_ok() {
        let others = ticket(1, spec(Mode::Enforce));
        running.push(OverloadControl::enter(control, at(now), &others));
        assert!(running.len() < 10_000);
    }
    let reserve = capacity.div_ceil(5);
    assert_eq!(running.len() as u64, capacity - reserve);
    let shed = check(1, Mode::Enforce).unwrap_err();
    assert_eq!(shed.mechanism, ShedMechanism::Reserve);
    assert_eq!(
        (shed.refusal().status, shed.refusal().retry_after_seconds()),
        (503, Some(1))
    );
    assert!(check(0, Mode::Enforce).is_ok(), "the first class has room");
    assert!(check(1, Mode::Shadow).is_ok() && check(1, Mode::Off).is_ok());
    let status = targets.status(START, &names, OverloadSpec::default());
    let count = status
        .shed
        .iter()
        .find(|count| count.mechanism == ShedMechanism::Reserve && &*count.class == "default");
    let count = count.unwrap();
    assert_eq!((count.enforced, count.shadow), (2, 1));
    // Places come back, and with them the room of other classes.
    drop(running);
    assert!(check(1, Mode::Enforce).is_ok());
    assert_eq!(control.status(START, &names, "", "").unwrap().in_flight, 0);
}

#[test]
fn a_late_runtime_sheds_the_last_class_slowly_and_lets_it_back() {
    let control = OverloadControl::default();
    let spec = OverloadSpec {
        utilization: Mode::Enforce,
        ..OverloadSpec::default()
    };
    let late = Nanos::from_millis(200);
    let check = |millis, class, runtime_delay| {
        let signals = ProcessSignals {
            runtime_delay,
            cpu: 0.0,
        };
        control
            .check(at(millis), &ticket(class, spec), 2, signals)
            .is_ok()
    };
    assert!(check(0, 1, late), "the first moment sheds nothing");
    for tenth in 1..100 {
        assert!(check(100 * tenth, 0, late), "the first class is never shed");
    }
    assert!(!check(10_000, 1, late));
    let names = [Box::from("critical"), Box::from("default")];
    let percent = control.status(START, &names, "", "").unwrap().shed_percent;
    assert_eq!(
        percent,
        [(Box::from("critical"), 0), (Box::from("default"), 100)]
    );
    for tenth in 101..500 {
        check(100 * tenth, 0, Nanos::ZERO);
    }
    assert!(check(50_000, 1, Nanos::ZERO), "after 40 s all are back");
}

#[test]
fn processor_time_near_its_quota_sheds_the_last_class_and_holds_below() {
    let control = OverloadControl::default();
    let spec = OverloadSpec {
        utilization: Mode::Enforce,
        ..OverloadSpec::default()
    };
    let check = |millis, cpu| {
        let signals = ProcessSignals {
            runtime_delay: Nanos::ZERO,
            cpu,
        };
        let ticket = ticket(1, spec);
        control.check(at(millis), &ticket, 2, signals)
    };
    let names = [Box::from("critical"), Box::from("default")];
    let percent = || control.status(START, &names, "", "").unwrap().shed_percent[1].1;
    for tenth in 0..=30 {
        let _admitted_or_shed = check(100 * tenth, 0.95);
    }
    assert_eq!(percent(), 58);
    for tenth in 31..=90 {
        let _admitted_or_shed = check(100 * tenth, 0.8);
    }
    assert_eq!(percent(), 58, "between the thresholds it holds");
    let utilization = control.status(START, &names, "", "").unwrap().utilization;
    assert!((utilization - 0.8).abs() < 1e-9);
    let shed = (0..100).filter(|_| check(9_000, 0.8).is_err()).count();
    assert!((57..=59).contains(&shed), "{shed}");
}

#[test]
fn the_reserve_counts_the_usage_of_the_fleet_while_it_is_recent() {
    let (targets, now) = measured();
    let control = targets.unnamed();
    let secret = Secret::from_shared_text(b"the secret of this fleet").unwrap();
    let own = NodeUsage::from_busiest(targets.usage(secret), 16);
    let usage = own.targets[0];
    let spec = OverloadSpec {
        reserve: Mode::Enforce,
        ..OverloadSpec::default()
    };
    let check = |millis| {
        let ticket = ticket(1, spec);
        control.check(at(millis), &ticket, 2, ProcessSignals::default())
    };
    let mut running = Vec::new();
    while check(now).is_ok() {
        running.push(OverloadControl::enter(control, at(now), &ticket(1, spec)));
    }
    let alone = running.len();
    let reported = |critical, others| {
        let peer = NodeUsage {
            targets: vec![TargetUsage {
                critical,
                others,
                ..usage
            }],
            mac: None,
        };
        let own = NodeUsage::from_busiest(targets.usage(secret), 16);
        ReportedUsage::new(&own, &[&peer], at(now + 1_500))
    };
    // An idle peer lends half of its room at once, and what remains with the next reports.
    targets.set_peers(secret, &reported(0, 0));
    while check(now).is_ok() {
        running.push(OverloadControl::enter(control, at(now), &ticket(1, spec)));
    }
    assert!(running.len() >= alone + alone / 2 - 2, "{alone}");
    let status = targets.status(at(now), &[Box::from("default")], spec);
    let fleet = status.targets[0].fleet.unwrap();
    assert_eq!((fleet.nodes, fleet.others), (2, running.len() as u64));
    assert_eq!(fleet.limit, 2 * u64::from(usage.capacity));
    // Critical requests of the peer take room here, although this node has none.
    running.truncate(alone - 1);
    assert!(check(now).is_ok());
    targets.set_peers(secret, &reported(2 * usage.capacity, 0));
    assert!(check(now).is_err());
    // Old reports count no more: the node decides alone.
    assert!(check(now + 1_499).is_err());
    assert!(check(now + 1_500).is_ok());
    let status = targets.status(at(now + 1_500), &[Box::from("default")], spec);
    assert_eq!(status.targets[0].fleet, None);
    // A peer that reports no such target is not counted.
    targets.set_peers(secret, &ReportedUsage::new(&own, &[], at(now + 9_000)));
    let status = targets.status(at(now), &[Box::from("default")], spec);
    assert_eq!(status.targets[0].fleet, None);
}

#[test]
fn retries_above_their_share_of_first_tries_are_shed_and_unknown_clients_do_not_count() {
    let targets = OverloadTargets::default();
    let control = targets.unnamed();
    let check = |attempt, retries, hundredths| {
        let spec = OverloadSpec {
            retries,
            retry_share: Percent::from_hundredths(hundredths),
            ..OverloadSpec::default()
        };
        let ticket = OverloadTicket {
            attempt,
            ..ticket(0, spec)
        };
        control.check(at(0), &ticket, 1, ProcessSignals::default())
    };
    let admitted = |attempt, mode| {
        let checks = (0..1_000).filter(|_| check(attempt, mode, 1_000).is_ok());
        checks.count()
    };
    assert_eq!(admitted(Attempt::Retry, Mode::Off), 1_000);
    assert_eq!(admitted(Attempt::Unknown, Mode::Enforce), 1_000);
    assert_eq!(
        admitted(Attempt::Retry, Mode::Enforce),
        10,
        "what is saved at first"
    );
    assert_eq!(
        admitted(Attempt::Unknown, Mode::Enforce),
        1_000,
        "earn nothing"
    );
    assert_eq!(admitted(Attempt::Retry, Mode::Enforce), 0);
    for _ in 0..50 {
        check(Attempt::First, Mode::Enforce, 1_000).unwrap();
    }
    assert_eq!(admitted(Attempt::Retry, Mode::Enforce), 5, "a tenth of 50");
    let shed = check(Attempt::Retry, Mode::Enforce, 1_000).unwrap_err();
    assert_eq!(shed.mechanism, ShedMechanism::Retries);
    assert_eq!(shed.refusal().status, 503);
    assert_eq!(
        admitted(Attempt::Retry, Mode::Shadow),
        1_000,
        "only counted"
    );
    let status = targets.status(START, &[Box::from("default")], OverloadSpec::default());
    let count = status
        .shed
        .iter()
        .find(|count| count.mechanism == ShedMechanism::Retries);
    let count = count.unwrap();
    assert_eq!(
        (count.enforced, count.shadow),
        (990 + 1_000 + 995 + 1, 1_000)
    );
    // A reload with another share begins with a new budget.
    assert!(check(Attempt::Retry, Mode::Enforce, 2_000).is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_place_that_nobody_takes_goes_to_the_next_and_waits_are_bounded() {
    let targets = OverloadTargets::default();
    let control = targets.unnamed();
    let spec = OverloadSpec {
        adaptive_concurrency: Mode::Enforce,
        ..OverloadSpec::default()
    };
    let enter = |class| OverloadControl::enter(control, at(0), &ticket(class, spec));
    let mut running = Vec::new();
    let (first, second) = loop {
        match enter(0) {
            OverloadEntry::Started(permit) => running.push(permit),
            OverloadEntry::Waiting(gone) => {
                let (OverloadEntry::Waiting(first), OverloadEntry::Waiting(second)) =
                    (enter(1), enter(1))
                else {
                    panic!("the queue has room");
                };
                drop(gone);
                break (first, second);
            }
            OverloadEntry::Shed(shed) => panic!("{shed:?}"),
        }
    };
    drop(running.pop());
    let permit = first.wait().await.unwrap();
    // Nothing ends any more: the wait ends by itself.
    assert_eq!(
        second.wait().await.unwrap_err().mechanism,
        ShedMechanism::Concurrency
    );
    drop((permit, running));
    let names = [Box::from("critical"), Box::from("default")];
    let status = targets.status(START, &names, spec);
    let target = &status.targets[0];
    assert_eq!((target.in_flight, target.queued), (0, 0));
    assert_eq!(status.shed[1].enforced, 1);
}

#[test]
fn targets_learn_apart_last_as_long_as_they_are_held_and_are_bounded() {
    let targets = OverloadTargets::default();
    let spec = OverloadSpec {
        adaptive_concurrency: Mode::Enforce,
        ..OverloadSpec::default()
    };
    let enter = |control| OverloadControl::enter(control, at(0), &ticket(0, spec));
    let slow = targets.target("slow", "/a");
    let mut held = Vec::new();
    while let OverloadEntry::Started(permit) = enter(&slow) {
        held.push(permit);
    }
    let fast = targets.target("fast", "/b");
    assert!(matches!(enter(&fast), OverloadEntry::Started(_)));
    // A reload asks for the same target again, and for the route with another upstream.
    assert!(Arc::ptr_eq(&slow, &targets.target("slow", "/a")));
    assert!(!Arc::ptr_eq(&slow, &targets.target("fast", "/a")));
    let in_flight = || {
        let status = targets.status(START, &[Box::from("default")], spec);
        let of = |target: super::OverloadTargetStatus| (target.upstream, target.in_flight);
        status.targets.into_iter().map(of).collect::<Vec<_>>()
    };
    assert_eq!(in_flight(), [("slow".into(), 32), ("fast".into(), 0)]);
    drop(held);
    assert_eq!(in_flight()[0].1, 0);
    drop(slow);
    assert_eq!(
        in_flight(),
        [("fast".into(), 0)],
        "nobody holds the slow one"
    );
    let name = |index: usize| format!("/{index}");
    let routes = (0..MAX_TARGETS + 9).map(|index| targets.target("app", &name(index)));
    let routes: Vec<_> = routes.collect();
    let unnamed = |route: &&Arc<OverloadControl>| Arc::ptr_eq(route, targets.unnamed());
    assert_eq!(routes.iter().filter(unnamed).count(), 10, "one is `fast`");
}
