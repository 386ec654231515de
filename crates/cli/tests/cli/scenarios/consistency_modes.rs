//! `consistency: leased` and `async` with three servers on one Redis. `leased` never admits more than the limit, also if
//! servers are killed or frozen. `async` never admits more than the bound that `explain` prints.

use std::time::Duration;

use tollgate_testkit::chaos::{ScenarioOutcome, seed};
use tollgate_testkit::clock::{monotonic, since};
use tollgate_testkit::history::{Allowance, RecordedVerdict, availability, bound};
use tollgate_testkit::redis::until;

use super::load::Load;
use super::{LIMIT, LONG_DEADLINE, SLACK, TestFleet, addresses, bucket, run_exclusively};

const LEASED: &str =
    "limits: [{ name: per-key, key: header.x-api-key, rate: 300/h, consistency: leased }]";
const ASYNC: &str =
    "limits: [{ name: per-key, key: header.x-api-key, rate: 300/h, consistency: async 1s }]";

/// Longer than the lease of a slice.
const LEASE: Duration = Duration::from_millis(4_500);

#[test]
fn s_00_three_servers_with_leases_never_admit_more_than_the_limit() {
    let _exclusive = run_exclusively();
    let fleet = TestFleet::start_with_policy(LEASED, 3, &[LONG_DEADLINE], seed(1));
    let load = fleet.load(3, &["alice"]);
    load.wait_for_answers(LIMIT * 3);
    let history = load.end();
    let worst = bound(&history, &Allowance::of(bucket())).unwrap();
    let speed = availability(&history, SLACK * 20).unwrap();
    // Units in unused leases are not admitted; they are fewer than half.
    assert!(worst.admitted >= LIMIT / 2, "{worst:?}");
    let calls = fleet.proxy.counters().commands("EVALSHA");
    let asked = history.records.len() as u64;
    println!("{worst:?}: {calls} calls for {asked} questions");
    assert!(
        calls * 3 < worst.admitted,
        "{calls} calls for {asked} questions"
    );
    ScenarioOutcome::of("S-00 leased, three servers")
        .worst(&worst)
        .speed(speed)
        .lost(0)
        .tell();
}

/// The lease of a killed node counts as spent. A frozen node does not spend its lease after it has expired.
#[test]
fn s_24_s_25_leases_of_a_killed_or_frozen_server_are_never_spent_twice() {
    let _exclusive = run_exclusively();
    let mut fleet = TestFleet::start_with_policy(LEASED, 3, &[LONG_DEADLINE], seed(24));
    let each: Vec<Load> = addresses(&fleet.servers)
        .iter()
        .map(|server| Load::start(&[*server], 2, &["alice"]))
        .collect();
    each.iter().for_each(|load| load.wait_for_answers(25));
    fleet.servers[2].freeze();
    each[0].wait_for_answers(40);
    fleet.servers[1].kill();
    let frozen = monotonic();
    until("leases have ended", || since(frozen) > LEASE);
    each[0].wait_for_answers(60);
    fleet.servers[2].thaw();
    each[2].wait_for_answers(60);
    each[0].wait_for_answers(60);
    let [mut first, killed, thawed] =
        <[_; 3]>::try_from(each.into_iter().map(Load::end).collect::<Vec<_>>()).unwrap();
    assert_eq!(
        first.count(RecordedVerdict::Lost) + first.count(RecordedVerdict::Failed),
        0
    );
    first = first.and(killed).and(thawed);
    let worst = bound(&first, &Allowance::of(bucket())).unwrap();
    ScenarioOutcome::of("S-24 leased, one frozen and one killed")
        .worst(&worst)
        .tell();
}

#[test]
fn s_00_three_servers_with_async_counting_stay_within_the_printed_bound() {
    let _exclusive = run_exclusively();
    let fleet = TestFleet::start_with_policy(ASYNC, 3, &[LONG_DEADLINE], seed(1));
    let load = fleet.load(3, &["alice"]);
    load.wait_for_answers(LIMIT * 4);
    let history = load.end();
    let allowed = Allowance::of(bucket()).reconciled_by(3, Duration::from_secs(1));
    let worst = bound(&history, &allowed).unwrap();
    let speed = availability(&history, SLACK * 20).unwrap();
    let calls = fleet.proxy.counters().commands("EVALSHA");
    let asked = history.records.len() as u64;
    println!("{worst:?}: {calls} calls for {asked} questions");
    assert!(calls * 5 < asked, "{calls} calls for {asked} questions");
    ScenarioOutcome::of("S-00 async, three servers")
        .worst(&worst)
        .speed(speed)
        .lost(0)
        .tell();
}
