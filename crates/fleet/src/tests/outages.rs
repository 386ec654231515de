//! Outages of the store: fallback quotas, lost replies, recovery.

use super::*;
use tollgate_policy::rules::Rules;
use tollgate_policy::source::SourceFormat;

#[test]
fn s_01_without_the_store_each_node_admits_its_share_of_half_the_quota() {
    let node = FleetTest::new(vec![per_hour(100)]);
    node.fleet().set_nodes(5);
    node.remote.fail(Fault::Gone);
    let verdict = node.check("alice");
    assert!(verdict.is_admitted() && verdict.degraded().store);
    assert_eq!(node.admitted("alice", 100), 9);
    assert_eq!(node.admitted("bob", 100), 10);
    let denied = node.check("alice");
    assert_eq!(denied.reason(), Some(DenialReason::Rate));
    assert!(matches!(denied.outcome(), Outcome::Deny { .. }));
    assert!(denied.degraded().store);
}

#[test]
fn s_01_after_a_few_failures_the_store_is_not_asked() {
    let node = FleetTest::new(vec![per_hour(1_000_000)]);
    node.remote.fail(Fault::Gone);
    assert_eq!(node.admitted("alice", 1_000), 1_000);
    assert!(node.remote.calls() <= 5, "{}", node.remote.calls());
    assert!(node.fleet().is_degraded());
    assert_eq!(node.fleet().totals().openings, 1);
}

/// I-01: what the store admitted before its failure counts against this node's share.
#[test]
fn what_the_store_admitted_counts_against_the_fallback() {
    let node = FleetTest::new(vec![per_hour(100)]);
    node.fleet().set_nodes(2);
    assert_eq!(node.admitted("alice", 60), 60);
    node.remote.fail(Fault::Gone);
    let local = node.admitted("alice", 100);
    assert_eq!(
        local, 10,
        "of a share of 25, in proportion to the 40 of 100 units left"
    );
}

#[test]
fn s_02_after_recovery_fallback_charges_are_replayed_to_the_store() {
    let node = FleetTest::new(vec![per_hour(100)]);
    node.remote.fail(Fault::Gone);
    assert_eq!(node.admitted("alice", 1_000), 50);
    node.remote.fail(Fault::None);
    assert_eq!(
        node.probe(),
        ProbeOutcome {
            unavailable: 1,
            recovered: 0
        },
        "not within the first second"
    );
    node.clock.advance(Nanos::from_secs(1));
    assert_eq!(
        node.probe(),
        ProbeOutcome {
            unavailable: 0,
            recovered: 1
        }
    );
    assert_eq!(node.fleet().totals().replayed, 1);
    assert_eq!(node.admitted("alice", 1_000), 50, "a hundred in all");
    assert!(!node.check("bob").degraded().store);
}

#[test]
fn s_03_a_store_that_is_down_at_the_start_is_unavailable_until_a_probe_succeeds() {
    let (engine, clock) = engine(vec![per_hour(100)]);
    let remote = FlakyRemote::new(&clock, 1);
    remote.fail(Fault::Gone);
    let node = FleetTest::sharing(engine, clock, remote);
    assert!(node.fleet().is_degraded());
    assert_eq!(node.admitted("alice", 1_000), 50);
    assert_eq!(node.remote.calls(), 0);
    node.remote.fail(Fault::None);
    node.clock.advance(Nanos::from_secs(1));
    assert_eq!(node.probe().recovered, 1);
    assert_eq!(node.admitted("alice", 1_000), 50);
}

/// I-02: if a reply is lost, the call may have been carried out. It is not repeated, and not replayed.
#[test]
fn s_08_a_lost_reply_is_decided_by_the_fallback_and_charged_once_in_the_store() {
    let node = FleetTest::new(vec![per_hour(100)]);
    node.remote.fail(Fault::ReplyLost);
    let verdict = node.check("alice");
    assert!(verdict.is_admitted() && verdict.degraded().store);
    assert_eq!(node.remote.calls(), 1);
    node.remote.fail(Fault::None);
    node.probe();
    assert_eq!(node.admitted("alice", 1_000), 99);
}

#[test]
fn on_store_failure_decides_without_the_store() {
    let with = |on_store_failure| LimitRule {
        on_store_failure,
        ..per_hour(10)
    };
    let open = FleetTest::new(vec![with(OnStoreFailure::Open)]);
    open.remote.fail(Fault::Gone);
    assert_eq!(open.admitted("alice", 100), 100);
    assert!(open.check("alice").degraded().store);
    let closed = FleetTest::new(vec![with(OnStoreFailure::Closed)]);
    closed.remote.fail(Fault::Gone);
    let verdict = closed.check("alice");
    assert!(!verdict.is_admitted() && verdict.degraded().store);
    assert_eq!(verdict.reason(), Some(DenialReason::Capacity));
    assert_eq!(verdict.status(), Some(503));
}

/// I-04: an unavailable store causes no errors, not even for settlements.
#[test]
fn i_04_settlements_and_refunds_are_no_errors_without_the_store() {
    let node = FleetTest::new(vec![limit("at once", places(4)), per_hour(10)]);
    let mut held = node.check("alice");
    let mut charged = node.check_with("alice", CheckMode::Reserve);
    node.remote.fail(Fault::Gone);
    let ticket = held.take_ticket().unwrap();
    poll_once(node.fleet_engine().respond(ticket, &200))
        .unwrap()
        .unwrap();
    let ticket = charged.take_ticket().unwrap();
    poll_once(node.fleet_engine().settle(ticket, 0))
        .unwrap()
        .unwrap();
    assert!(node.check_with("alice", CheckMode::Refund).is_admitted());
}

/// Requests of two teams with shares and of one without, all of them all the time. Returns how many are admitted at once, and in each of
/// the following intervals on average.
fn admitted_with_shares(node: &FleetTest) -> (usize, usize) {
    let teams = ["a", "b", "other"];
    let round = |first: usize| {
        let requests = (0..300).map(|index| teams[(first + index) % teams.len()]);
        requests
            .filter(|team| {
                let caller = TestCaller::named("someone").with("header.team", team);
                let options = CheckOptions::new(CheckMode::Charge);
                let verdict = poll_once(node.fleet_engine().check(&caller, options));
                verdict.unwrap().is_admitted()
            })
            .count()
    };
    let at_once = round(0);
    let later = (0..600).map(|second| {
        node.clock.advance(Nanos::from_secs(10));
        round(second)
    });
    (at_once, later.sum())
}

/// A fallback quota forgot the overdraft of the common bucket: what owners were charged there was forgiven, and borrowers got it again.
#[test]
fn s_01_without_the_store_shares_and_borrowers_together_admit_half_of_the_quota() {
    let text = "limits: [{ name: api, rate: 360/1h, burst: 100, shares: { by: header.team, a: 50%, b: 30% } }]";
    let policy = tollgate_policy::load(text, "test.yaml", SourceFormat::Yaml).unwrap();
    let rules = Rules::compile(&policy, [7; 16]).unwrap();
    let clock = Arc::new(ManualClock::at(crate::testing::START));
    let store = MemoryStore::with_clock(1_000, Arc::clone(&clock)).unwrap();
    let engine = Engine::new(rules, store).unwrap();
    let remote = FlakyRemote::new(&clock, 1);
    let node = FleetTest::sharing(engine, clock, remote);
    node.fleet().set_nodes(1);
    node.remote.fail(Fault::Gone);
    let (at_once, later) = admitted_with_shares(&node);
    assert!(at_once <= 50, "{at_once} at once");
    // 6,000 s refill 600 units.
    assert!(at_once + later <= 50 + 300, "{at_once} and {later}");
    assert!(later >= 280, "{later} of 300");
}
