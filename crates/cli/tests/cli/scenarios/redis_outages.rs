//! S-01 to S-04 with server processes: Redis is killed, restarts empty, is missing at startup, or hangs.

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

/// The time from the fault until all servers decide by themselves: five failed calls, plus what a busy machine adds.
const DETECTION_TIME: Duration = Duration::from_millis(500);

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap()
}

#[test]
fn s_01_when_redis_is_killed_under_load_all_requests_are_answered_in_time() {
    let _exclusive = run_exclusively();
    let mut fleet = TestFleet::start(2, &[DEADLINE_SET], seed(1));
    let load = fleet.load(3, &["alice", "bob", "carol"]);
    load.wait_for_answers(100);
    fleet.node.kill();
    let killed = monotonic();
    load.until_decided_without(30);
    until("all servers have detected the outage", || {
        since(killed) > DETECTION_TIME * 2
    });
    load.wait_for_answers(100);
    let ended = monotonic();
    for server in &fleet.servers {
        assert!(server.is_degraded() && server.is_ready());
        assert!(server.metric("tollgate_breaker_openings_total") >= 1.0);
        assert!(server.metric("tollgate_local_decisions_total") > 0.0);
        assert!(server.metric("tollgate_breaker_state") > 0.0);
    }
    let history = load.end();
    let judged = judge(&history, &Allowance::of(bucket()).replayed_outages(1));
    // Redis denied nothing before, so there are no cached denials, and every response must be degraded.
    degraded_throughout(&history, killed + nanos(DETECTION_TIME), ended).unwrap();
    outcome("S-01 killed under load", &judged).tell();
}

#[test]
fn s_02_when_redis_comes_back_empty_it_decides_again_and_costs_one_burst_more() {
    let _exclusive = run_exclusively();
    let mut fleet = TestFleet::start(2, &[DEADLINE_SET], seed(2));
    let load = fleet.load(3, &["alice", "bob"]);
    load.wait_for_answers(300);
    fleet.node.kill();
    load.until_decided_without(20);
    fleet.node.restart_empty();
    let healed = monotonic();
    load.until_decided_by_the_store(60);
    load.wait_for_answers(300);
    load.until_decided_by_the_store(40);
    let history = load.end();
    let took = recovery(&history, healed, RECOVERY_TIME).unwrap();
    let allowed = Allowance::of(bucket()).replayed_outages(1).losses(1);
    let judged = judge(&history, &allowed);
    for server in &fleet.servers {
        assert!(!server.is_degraded());
    }
    outcome("S-02 restarted empty, two servers", &judged)
        .recovered(took)
        .tell();
}

#[test]
fn s_03_a_server_starts_without_redis_and_connects_when_it_appears() {
    let _exclusive = run_exclusively();
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
    until("the metric says so", || !server.is_degraded());
    // Redis has the units that were admitted before.
    let left = client.check("alice").unwrap().to_recorded().quota.unwrap();
    assert!(left.remaining + 11 <= left.limit, "{left:?}");
    drop(redis);
    ScenarioOutcome::of("S-03 absent at the start")
        .recovered(took)
        .tell();
}

#[test]
fn s_04_when_redis_hangs_calls_end_at_the_deadline_and_nothing_is_sent_twice() {
    let _exclusive = run_exclusively();
    let fleet = TestFleet::start(2, &[DEADLINE_SET], seed(4));
    let load = fleet.load(3, &["alice"]);
    load.wait_for_answers(60);
    fleet.node.pause();
    load.until_decided_without(20);
    let sent = fleet.proxy.counters().commands("EVALSHA");
    load.wait_for_answers(200);
    let more = fleet.proxy.counters().commands("EVALSHA") - sent;
    // Only probes call a store whose breaker is open.
    assert!(more <= 60, "{more} calls while it hangs");
    fleet.node.resume();
    let healed = monotonic();
    load.until_decided_by_the_store(40);
    let history = load.end();
    let took = recovery(&history, healed, RECOVERY_TIME).unwrap();
    let judged = judge(&history, &Allowance::of(bucket()).replayed_outages(1));
    assert!(fleet.node.calls("evalsha") <= fleet.proxy.counters().commands("EVALSHA"));
    outcome("S-04 hung, two servers", &judged)
        .recovered(took)
        .tell();
}
