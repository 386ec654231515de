//! Three servers on one Redis admit exactly the limit, also if one of them is killed or frozen.

use std::sync::Barrier;

use tollgate_testkit::chaos::{ScenarioOutcome, seed};
use tollgate_testkit::history::{
    Allowance, Promise, RecordedVerdict, Recorder, availability, bound, coherence, denials, spends,
    spends_exactly, times_to_live,
};
use tollgate_testkit::redis::{RedisNode, ServerProgram};

use super::client::Client;
use super::load::{Load, ask};
use super::server::{Server, ServerOverrides};
use super::{LIMIT, LONG_DEADLINE, POLICY, PRECISION, SLACK, TestFleet, bucket, run_exclusively};

/// While the bucket is never full, its state moves by the interval for each admitted unit.
#[test]
fn s_00_three_servers_admit_exactly_the_limit() {
    let _exclusive = run_exclusively();
    let fleet = TestFleet::start(3, &[LONG_DEADLINE], seed(1));
    let primed = fleet.prime("alice");
    let load = fleet.load(3, &["alice"]);
    load.wait_for_answers(LIMIT * 2);
    let history = load.end();
    let admitted = spends_exactly(&history, "alice", bucket(), fleet.state() - primed).unwrap();
    // One unit was spent before, and one is refilled every twelve seconds.
    assert!((LIMIT - 1..LIMIT + 5).contains(&admitted), "{admitted}");
    let worst = bound(&history, &Allowance::of(bucket())).unwrap();
    // The history does not contain the unit that was spent before.
    denials(&history, bucket(), 1).unwrap();
    coherence(&history, bucket(), PRECISION).unwrap();
    let speed = availability(&history, std::time::Duration::from_secs(10)).unwrap();
    times_to_live(
        &fleet.node.times_to_live(),
        std::time::Duration::from_hours(2),
    )
    .unwrap();
    // Most denials come from the denial cache, without a call.
    let calls = fleet.proxy.counters().commands("EVALSHA");
    let asked = history.records.len() as u64;
    assert!(calls < asked, "{calls} calls for {asked} questions");
    ScenarioOutcome::of("S-00 three servers")
        .worst(&worst)
        .speed(speed)
        .lost(0)
        .tell();
}

/// Negative control: servers with different secrets count separately, and the check finds it.
#[test]
fn control_servers_that_share_no_secret_are_found_to_admit_too_much() {
    let _exclusive = run_exclusively();
    let node = RedisNode::start(ServerProgram::Redis, &["--save", "", "--appendonly", "no"]);
    let secrets = ["a secret of its own", "another one of its own"];
    let servers = secrets.map(|secret| {
        let nature = ServerOverrides {
            secret: Some(secret),
            ..ServerOverrides::default()
        };
        Server::start_with_overrides(nature, &node.url(), 2, POLICY, &[LONG_DEADLINE])
    });
    let load = Load::start(&servers.each_ref().map(|server| server.http), 3, &["alice"]);
    load.wait_for_answers(LIMIT * 2);
    let history = load.end();
    let broken = bound(&history, &Allowance::of(bucket())).unwrap_err();
    assert_eq!(broken.promise, Promise::Bound);
    assert!(bound(&history, &Allowance::of(bucket()).losses(1)).is_ok());
    let names = node.ask(&["KEYS", "tg2:*"]);
    assert_eq!(names.lines().count(), 2, "{names}");
}

/// The read-then-write race: all clients send requests at the same moment, repeatedly.
#[test]
fn s_00_concurrent_requests_never_see_the_same_state() {
    let _exclusive = run_exclusively();
    let fleet = TestFleet::start(3, &[LONG_DEADLINE], seed(1));
    let primed = fleet.prime("alice");
    let recorder = Recorder::of_process(1);
    let (together, clients) = (Barrier::new(12), 12);
    std::thread::scope(|scope| {
        for number in 0..clients {
            let (together, recorder) = (&together, &recorder);
            let server = fleet.servers[number % 3].http;
            scope.spawn(move || {
                let mut client = Client::new(server);
                for _ in 0..40 {
                    together.wait();
                    ask(&mut client, "alice", recorder);
                }
            });
        }
    });
    let history = recorder.history();
    let admitted = spends_exactly(&history, "alice", bucket(), fleet.state() - primed).unwrap();
    assert!((LIMIT - 1..LIMIT + 5).contains(&admitted), "{admitted}");
    // No two responses have the same `remaining`.
    let mut left: Vec<u64> = history
        .records
        .iter()
        .filter(|record| record.verdict == RecordedVerdict::Admitted)
        .map(|record| record.quota.unwrap().remaining)
        .collect();
    left.sort_unstable();
    let all = left.len();
    left.dedup();
    // A unit that is refilled meanwhile can repeat a number.
    assert!(left.len() + 5 >= all, "{} of {all}", left.len());
}

#[test]
fn s_25_when_one_of_three_is_killed_the_others_go_on_with_the_same_quota() {
    let _exclusive = run_exclusively();
    let mut fleet = TestFleet::start(3, &[LONG_DEADLINE], seed(25));
    let primed = fleet.prime("alice");
    let lost = Load::start(&[fleet.servers[2].http], 2, &["alice"]);
    let rest = [fleet.servers[0].http, fleet.servers[1].http];
    let load = Load::start(&rest, 2, &["alice"]);
    load.wait_for_answers(60);
    fleet.servers[2].kill();
    load.wait_for_answers(LIMIT * 2);
    let (lost, kept) = (lost.end(), load.end());
    let speed = availability(&kept, SLACK * 20).unwrap();
    // Clients of the killed server do not know the result of their last request. At most those requests are unaccounted.
    let history = kept.and(lost);
    let unheard = 2;
    let moved = fleet.state() - primed;
    let spent = spends(&history, "alice", bucket(), moved).unwrap();
    assert!(spent.units - spent.heard <= unheard, "{spent:?}");
    let worst = bound(&history, &Allowance::of(bucket())).unwrap();
    ScenarioOutcome::of("S-25 one of three killed")
        .worst(&worst)
        .speed(speed)
        .tell();
}

#[test]
fn s_24_a_server_that_was_frozen_admits_nothing_extra() {
    let _exclusive = run_exclusively();
    let fleet = TestFleet::start(3, &[LONG_DEADLINE], seed(24));
    let primed = fleet.prime("alice");
    let rest = [fleet.servers[0].http, fleet.servers[1].http];
    let (frozen, load) = (
        Load::start(&[fleet.servers[2].http], 2, &["alice"]),
        Load::start(&rest, 2, &["alice"]),
    );
    load.wait_for_answers(40);
    fleet.servers[2].freeze();
    load.wait_for_answers(LIMIT);
    fleet.servers[2].thaw();
    frozen.wait_for_answers(60);
    load.wait_for_answers(LIMIT);
    let (frozen, kept) = (frozen.end(), load.end());
    let speed = availability(&kept, SLACK * 20).unwrap();
    let history = kept.and(frozen);
    assert_eq!(history.count(RecordedVerdict::Lost), 0, "it was only slow");
    spends(&history, "alice", bucket(), fleet.state() - primed).unwrap();
    let worst = bound(&history, &Allowance::of(bucket())).unwrap();
    ScenarioOutcome::of("S-24 one of three frozen")
        .worst(&worst)
        .speed(speed)
        .tell();
}
