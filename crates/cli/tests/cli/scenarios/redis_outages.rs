//! S-01 to S-04 with whole servers: Redis is killed, comes back empty, is not there yet, or hangs.

use std::time::Duration;

use tollgate_testkit::chaos::{ScenarioOutcome, seed};
use tollgate_testkit::clock::{monotonic, since};
use tollgate_testkit::history::{Allowance, degraded_throughout, recovery};
use tollgate_testkit::process::free_address;
use tollgate_testkit::redis::{RedisServer as Redis, ServerProgram, until};

use super::client::Client;
use super::{
    DEADLINE_SET, POLICY, RECOVERY_TIME, TestFleet, bucket, judge, outcome, run_exclusively,
};

/// From the fault until everybody decides by themselves: five calls that end at once, and what a busy machine adds.
const DETECTION_TIME: Duration = Duration::from_millis(500);

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap()
}

#[test]
fn s_01_when_redis_is_killed_under_load_everybody_is_answered_in_time() {
    let _alone = run_exclusively();
    let mut rig = TestFleet::start(2, &[DEADLINE_SET], seed(1));
    let load = rig.load(3, &["alice", "bob", "carol"]);
    load.wait_for_answers(100);
    rig.node.kill();
    let killed = monotonic();
    load.until_decided_without(30);
    until("everybody has long noticed", || {
        since(killed) > DETECTION_TIME * 2
    });
    load.wait_for_answers(100);
    let ended = monotonic();
    for server in &rig.servers {
        assert!(server.is_degraded() && server.is_ready());
        assert!(server.metric("tollgate_breaker_openings_total") >= 1.0);
        assert!(server.metric("tollgate_local_decisions_total") > 0.0);
        assert!(server.metric("tollgate_breaker_state") > 0.0);
    }
    let history = load.end();
    let judged = judge(&history, &Allowance::of(bucket()).replayed_outages(1));
    // Nobody was denied by Redis before, so no denial of its is remembered, and all have to say what they did without.
    degraded_throughout(&history, killed + nanos(DETECTION_TIME), ended).unwrap();
    outcome("S-01 killed under load", &judged).tell();
}

#[test]
fn s_02_when_redis_comes_back_empty_it_decides_again_and_costs_one_burst_more() {
    let _alone = run_exclusively();
    let mut rig = TestFleet::start(2, &[DEADLINE_SET], seed(2));
    let load = rig.load(3, &["alice", "bob"]);
    load.wait_for_answers(300);
    rig.node.kill();
    load.until_decided_without(20);
    rig.node.restart_empty();
    let healed = monotonic();
    load.until_decided_by_the_store(60);
    load.wait_for_answers(300);
    let history = load.end();
    let took = recovery(&history, healed, RECOVERY_TIME).unwrap();
    let allowed = Allowance::of(bucket()).replayed_outages(1).losses(1);
    let judged = judge(&history, &allowed);
    for server in &rig.servers {
        assert!(!server.is_degraded());
    }
    outcome("S-02 restarted empty, two servers", &judged)
        .recovered(took)
        .tell();
}

#[test]
fn s_03_a_server_starts_without_redis_and_finds_it_by_itself() {
    let _alone = run_exclusively();
    let _unused = seed(3);
    let address = free_address().unwrap();
    let url = format!("redis://{address}");
    let server = super::Server::start(&url, 1, POLICY, &[DEADLINE_SET]);
    assert!(server.is_ready() && server.is_degraded());
    let mut client = Client::new(server.http);
    for _ in 0..10 {
        let answer = client.check("alice").unwrap();
        assert!(answer.status == 200 && answer.is_degraded(), "{answer:?}");
    }
    let redis = Redis::start_at(ServerProgram::Redis, address);
    let came = monotonic();
    until("Redis decides", || {
        !client.check("alice").unwrap().is_degraded()
    });
    let took = since(came);
    assert!(took < RECOVERY_TIME, "{took:?}");
    until("it is told", || !server.is_degraded());
    // What was admitted before is known to it now.
    let left = client.check("alice").unwrap().to_recorded().told.unwrap();
    assert!(left.remaining + 11 <= left.limit, "{left:?}");
    drop(redis);
    ScenarioOutcome::of("S-03 absent at the start")
        .recovered(took)
        .tell();
}

#[test]
fn s_04_when_redis_hangs_calls_end_at_the_deadline_and_nothing_is_sent_twice() {
    let _alone = run_exclusively();
    let rig = TestFleet::start(2, &[DEADLINE_SET], seed(4));
    let load = rig.load(3, &["alice"]);
    load.wait_for_answers(60);
    rig.node.pause();
    load.until_decided_without(20);
    let sent = rig.proxy.counters().commands("EVALSHA");
    load.wait_for_answers(200);
    let more = rig.proxy.counters().commands("EVALSHA") - sent;
    // Nobody asks a store that is away, but for those who look whether it is back.
    assert!(more <= 60, "{more} calls while it hangs");
    rig.node.resume();
    let healed = monotonic();
    load.until_decided_by_the_store(40);
    let history = load.end();
    let took = recovery(&history, healed, RECOVERY_TIME).unwrap();
    let judged = judge(&history, &Allowance::of(bucket()).replayed_outages(1));
    assert!(rig.node.calls("evalsha") <= rig.proxy.counters().commands("EVALSHA"));
    outcome("S-04 hung, two servers", &judged)
        .recovered(took)
        .tell();
}
