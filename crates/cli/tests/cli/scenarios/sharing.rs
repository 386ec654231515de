//! Three servers on one Redis: they admit exactly the limit, and go on so when one of them is killed or frozen.

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

/// While the bucket is never full, what was admitted times the interval is how far its state moved.
#[test]
fn s_00_three_servers_admit_exactly_the_limit() {
    let _alone = run_exclusively();
    let rig = TestFleet::start(3, &[LONG_DEADLINE], seed(1));
    let primed = rig.prime("alice");
    let load = rig.load(3, &["alice"]);
    load.wait_for_answers(LIMIT * 2);
    let history = load.end();
    let admitted = spends_exactly(&history, "alice", bucket(), rig.state() - primed).unwrap();
    // One was spent before, and one comes back every twelve seconds.
    assert!((LIMIT - 1..LIMIT + 5).contains(&admitted), "{admitted}");
    let worst = bound(&history, &Allowance::of(bucket())).unwrap();
    // The history does not know the one that was spent before.
    denials(&history, bucket(), 1).unwrap();
    coherence(&history, bucket(), PRECISION).unwrap();
    let speed = availability(&history, std::time::Duration::from_secs(10)).unwrap();
    times_to_live(
        &rig.node.times_to_live(),
        std::time::Duration::from_hours(2),
    )
    .unwrap();
    // Those who are denied are answered without asking, most of the time.
    let calls = rig.proxy.counters().commands("EVALSHA");
    let asked = history.records.len() as u64;
    assert!(calls < asked, "{calls} calls for {asked} questions");
    ScenarioOutcome::of("S-00 three servers")
        .worst(&worst)
        .speed(speed)
        .lost(0)
        .tell();
}

/// What the checks above would say of a fleet that is none: every server counts by itself.
#[test]
fn control_servers_that_share_no_secret_are_found_to_admit_too_much() {
    let _alone = run_exclusively();
    let node = RedisNode::start(ServerProgram::Redis, &["--save", "", "--appendonly", "no"]);
    let secrets = ["a secret of its own", "another one of its own"];
    let servers = secrets.map(|secret| {
        let nature = ServerOverrides {
            secret: Some(secret),
            clock: None,
        };
        Server::start_with_overrides(nature, &node.url(), 2, POLICY, &[LONG_DEADLINE])
    });
    let load = Load::start(&servers.each_ref().map(|server| server.http), 3, &["alice"]);
    load.wait_for_answers(LIMIT * 2);
    let history = load.end();
    let broken = bound(&history, &Allowance::of(bucket())).unwrap_err();
    assert_eq!(broken.promise, Promise::Bound);
    assert!(bound(&history, &Allowance::of(bucket()).losses(1)).is_ok());
    let names = node.ask(&["KEYS", "tg1:*"]);
    let states = names.lines().filter(|name| !name.contains("{fleet:"));
    assert_eq!(states.count(), 2, "beside the register: {names}");
}

/// The race of those who read a counter and then write it: everybody asks at the same moment, again and again.
#[test]
fn s_00_questions_at_the_same_moment_never_see_the_same_state() {
    let _alone = run_exclusively();
    let rig = TestFleet::start(3, &[LONG_DEADLINE], seed(1));
    let primed = rig.prime("alice");
    let recorder = Recorder::of_process(1);
    let (together, clients) = (Barrier::new(12), 12);
    std::thread::scope(|scope| {
        for number in 0..clients {
            let (together, recorder) = (&together, &recorder);
            let server = rig.servers[number % 3].http;
            scope.spawn(move || {
                let mut client = Client::new(server);
                for _ in 0..40 {
                    together.wait();
                    ask(&mut client, "alice", recorder);
                }
            });
        }
    });
    let history = recorder.so_far();
    let admitted = spends_exactly(&history, "alice", bucket(), rig.state() - primed).unwrap();
    assert!((LIMIT - 1..LIMIT + 5).contains(&admitted), "{admitted}");
    // What remains was told to nobody twice.
    let mut left: Vec<u64> = history
        .records
        .iter()
        .filter(|record| record.verdict == RecordedVerdict::Admitted)
        .map(|record| record.told.unwrap().remaining)
        .collect();
    left.sort_unstable();
    let all = left.len();
    left.dedup();
    // A unit that comes back meanwhile makes one number true twice.
    assert!(left.len() + 5 >= all, "{} of {all}", left.len());
}

#[test]
fn s_25_when_one_of_three_is_killed_the_others_go_on_with_the_same_quota() {
    let _alone = run_exclusively();
    let mut rig = TestFleet::start(3, &[LONG_DEADLINE], seed(25));
    let primed = rig.prime("alice");
    let lost = Load::start(&[rig.servers[2].http], 2, &["alice"]);
    let rest = [rig.servers[0].http, rig.servers[1].http];
    let load = Load::start(&rest, 2, &["alice"]);
    load.wait_for_answers(60);
    rig.servers[2].kill();
    load.wait_for_answers(LIMIT * 2);
    let (lost, kept) = (lost.end(), load.end());
    let speed = availability(&kept, SLACK * 20).unwrap();
    // A client of the killed server cannot know whether it was charged. No other client was charged for it.
    let history = kept.and(lost);
    let unheard = 2;
    let moved = rig.state() - primed;
    let spent = spends(&history, "alice", bucket(), moved).unwrap();
    assert!(spent.units - spent.heard <= unheard, "{spent:?}");
    let worst = bound(&history, &Allowance::of(bucket())).unwrap();
    ScenarioOutcome::of("S-25 one of three killed")
        .worst(&worst)
        .speed(speed)
        .tell();
}

#[test]
fn s_24_a_server_that_is_frozen_and_goes_on_gives_nothing_away() {
    let _alone = run_exclusively();
    let rig = TestFleet::start(3, &[LONG_DEADLINE], seed(24));
    let primed = rig.prime("alice");
    let rest = [rig.servers[0].http, rig.servers[1].http];
    let (frozen, load) = (
        Load::start(&[rig.servers[2].http], 2, &["alice"]),
        Load::start(&rest, 2, &["alice"]),
    );
    load.wait_for_answers(40);
    rig.servers[2].freeze();
    load.wait_for_answers(LIMIT);
    rig.servers[2].thaw();
    frozen.wait_for_answers(60);
    load.wait_for_answers(LIMIT);
    let (frozen, kept) = (frozen.end(), load.end());
    let speed = availability(&kept, SLACK * 20).unwrap();
    let history = kept.and(frozen);
    assert_eq!(history.count(RecordedVerdict::Lost), 0, "it was only slow");
    spends(&history, "alice", bucket(), rig.state() - primed).unwrap();
    let worst = bound(&history, &Allowance::of(bucket())).unwrap();
    ScenarioOutcome::of("S-24 one of three frozen")
        .worst(&worst)
        .speed(speed)
        .tell();
}
