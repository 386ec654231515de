//! S-05 to S-08, S-13 to S-15, S-21 and S-22 with server processes: faults of the connection to Redis, and an overloaded Redis.

use std::io::Write as _;
use std::net::TcpStream;
use std::time::Duration;

use tollgate_testkit::chaos::{ScenarioOutcome, seed};
use tollgate_testkit::clock::monotonic;
use tollgate_testkit::faults::{AcceptMode, AfterRewrite, CloseMode, SwallowMode};
use tollgate_testkit::history::{Allowance, History, recovery, spends};
use tollgate_testkit::redis::until;

use super::{
    DEADLINE, DEADLINE_SET, RECOVERY_TIME, TestFleet, bucket, judge, outcome, run_exclusively,
};

/// Runs load, injects a fault until servers decide by themselves, ends it, and waits until Redis decides again.
fn run_fault(
    scenario: &'static str,
    fleet: &TestFleet,
    fault: impl FnOnce(&TestFleet),
    end: impl FnOnce(&TestFleet),
) -> History {
    let load = fleet.load(3, &["alice", "bob", "carol"]);
    load.wait_for_answers(60);
    fault(fleet);
    load.until_decided_without(12);
    load.wait_for_answers(60);
    for server in &fleet.servers {
        assert!(server.is_ready() && server.is_degraded());
    }
    end(fleet);
    let healed = monotonic();
    load.wait_for_answers(40);
    load.until_decided_by_the_store(40);
    let history = load.end();
    let took = recovery(&history, healed, RECOVERY_TIME).unwrap();
    let judged = judge(&history, &Allowance::of(bucket()).replayed_outages(1));
    outcome(scenario, &judged).recovered(took).tell();
    for server in &fleet.servers {
        assert!(server.metric("tollgate_panics_total") < 1.0);
        assert!(!server.is_degraded());
        // One fault opens the breaker once; it does not flap.
        let openings = server.metric("tollgate_breaker_openings_total");
        assert!(openings <= 4.0, "{openings}");
    }
    history
}

#[test]
fn s_05_a_redis_slower_than_the_deadline_is_bypassed() {
    let _exclusive = run_exclusively();
    let fleet = TestFleet::start(2, &[DEADLINE_SET], seed(5));
    run_fault(
        "S-05 slow, two servers",
        &fleet,
        |fleet| {
            fleet.proxy.change(|toxics| {
                toxics.back.latency = DEADLINE * 4;
                toxics.back.jitter = DEADLINE;
            });
        },
        |fleet| fleet.proxy.heal(),
    );
}

#[test]
fn s_06_a_redis_that_refuses_connections_gets_few_attempts() {
    let _exclusive = run_exclusively();
    let fleet = TestFleet::start(2, &[DEADLINE_SET], seed(6));
    run_fault(
        "S-06 refused, two servers",
        &fleet,
        |fleet| fleet.proxy.go_down(),
        |fleet| fleet.proxy.heal(),
    );
    let most = fleet
        .proxy
        .counters()
        .most_connects_within(Duration::from_secs(1));
    assert!(most <= 2 * 3 * 10, "{most} connections in a second");
}

#[test]
fn s_07_connections_into_a_black_hole_are_replaced() {
    let _exclusive = run_exclusively();
    let fleet = TestFleet::start(2, &[DEADLINE_SET], seed(7));
    run_fault(
        "S-07 a black hole, two servers",
        &fleet,
        |fleet| {
            fleet
                .proxy
                .change(|toxics| toxics.back.silence = SwallowMode::Lost);
        },
        |fleet| fleet.proxy.heal(),
    );
}

#[test]
fn s_08_requests_with_lost_replies_are_decided_locally_and_charged_once() {
    let _exclusive = run_exclusively();
    let fleet = TestFleet::start(2, &[DEADLINE_SET], seed(8));
    let primed = fleet.prime("alice");
    let load = fleet.load(3, &["alice"]);
    for _ in 0..6 {
        load.wait_for_answers(30);
        fleet
            .proxy
            .lose_replies("EVALSHA", 1, AfterRewrite::End(CloseMode::Reset));
    }
    load.wait_for_answers(30);
    load.until_decided_by_the_store(40);
    let history = load.end();
    let spent = spends(&history, "alice", bucket(), fleet.state() - primed).unwrap();
    assert!(fleet.proxy.counters().meddled >= 3, "{spent:?}");
    // Requests with lost replies are charged in Redis and counted locally, so they admit nothing extra.
    let judged = judge(&history, &Allowance::of(bucket()).units(1 + spent.unheard));
    outcome("S-08 lost replies, two servers", &judged).tell();
}

#[test]
fn s_13_a_redis_that_is_busy_with_a_script_is_bypassed() {
    let _exclusive = run_exclusively();
    let fleet = TestFleet::start(2, &[DEADLINE_SET], seed(13));
    fleet
        .node
        .tell(&["CONFIG", "SET", "busy-reply-threshold", "100"]);
    run_fault(
        "S-13 a busy script, two servers",
        &fleet,
        |fleet| {
            let mut other = TcpStream::connect(fleet.node.address()).unwrap();
            let endless = b"EVAL \"while true do end\" 0\r\n";
            other.write_all(endless).unwrap();
            // The script runs on although its client does not read the reply.
            until("it runs", || {
                fleet
                    .node
                    .try_ask(&["PING"])
                    .is_ok_and(|reply| reply.starts_with("-BUSY"))
            });
        },
        |fleet| fleet.node.tell(&["SCRIPT", "KILL"]),
    );
}

#[test]
fn s_14_a_redis_out_of_memory_is_bypassed() {
    let _exclusive = run_exclusively();
    let fleet = TestFleet::start(2, &[DEADLINE_SET], seed(14));
    run_fault(
        "S-14 out of memory, two servers",
        &fleet,
        |fleet| fleet.node.tell(&["CONFIG", "SET", "maxmemory", "100kb"]),
        |fleet| fleet.node.tell(&["CONFIG", "SET", "maxmemory", "0"]),
    );
}

#[test]
fn s_15_evicted_states_cost_a_burst_each() {
    let _exclusive = run_exclusively();
    let fleet = TestFleet::start(2, &[super::LONG_DEADLINE], seed(15));
    fleet
        .node
        .tell(&["CONFIG", "SET", "maxmemory-policy", "allkeys-random"]);
    let names: Vec<String> = (0..10).map(|number| format!("client{number}")).collect();
    let keys: Vec<&str> = names.iter().map(String::as_str).collect();
    let load = fleet.load(3, &keys);
    load.wait_for_answers(100);
    let used: u64 = fleet.node.info("used_memory").unwrap().parse().unwrap();
    let most = (used + 300_000).to_string();
    fleet.node.tell(&["CONFIG", "SET", "maxmemory", &most]);
    let filler = "x".repeat(2_000);
    for number in 0..600 {
        let name = format!("other {number}");
        fleet.node.tell(&["SET", &name, &filler, "EX", "600"]);
    }
    load.wait_for_answers(100);
    let history = load.end();
    let evicted: u64 = fleet.node.info("evicted_keys").unwrap().parse().unwrap();
    assert!(evicted > 50, "{evicted}");
    let allowed = Allowance::of(bucket()).losses(evicted);
    let worst = tollgate_testkit::history::bound(&history, &allowed).unwrap();
    ScenarioOutcome::of("S-15 evicted, two servers")
        .worst(&worst)
        .tell();
}

#[test]
fn s_21_servers_do_not_reconnect_at_the_same_moment() {
    const SERVERS: usize = 6;
    let _exclusive = run_exclusively();
    let mut fleet = TestFleet::start(SERVERS, &[DEADLINE_SET], seed(21));
    let lanes = fleet.proxy.counters().connects;
    let load = fleet.load(1, &["alice", "bob"]);
    load.wait_for_answers(30);
    fleet.node.kill();
    fleet.proxy.change(|toxics| toxics.door = AcceptMode::Reset);
    load.until_decided_without(12);
    let tried = fleet.proxy.counters().connects;
    until("they try again and again", || {
        fleet.proxy.counters().connects > tried + lanes * 3
    });
    fleet.node.restart();
    let before = fleet.proxy.counters().connects;
    fleet.proxy.heal();
    let healed = monotonic();
    load.wait_for_answers(40);
    load.until_decided_by_the_store(40);
    let history = load.end();
    let counters = fleet.proxy.counters();
    // The first attempts follow within 50 ms, then they back off. A server that has reconnected makes no further attempt.
    let most = counters.most_connects_within(Duration::from_millis(100));
    assert!(most <= lanes * 3, "{most} of {lanes} came at once");
    let after = counters.connects - before;
    assert!(after <= lanes * 2, "{after} connections for {lanes}");
    let took = recovery(&history, healed, RECOVERY_TIME).unwrap();
    let allowed = Allowance::of(bucket()).replayed_outages(1).losses(1);
    let judged = judge(&history, &allowed);
    outcome("S-21 six servers come back", &judged)
        .recovered(took)
        .tell();
}

#[test]
fn s_22_requests_beyond_the_calls_in_flight_are_decided_locally_at_once() {
    let _exclusive = run_exclusively();
    let settings = [DEADLINE_SET, "--redis-most-in-flight=2"];
    let fleet = TestFleet::start(1, &settings, seed(22));
    let memory = fleet.servers[0].resident();
    fleet
        .proxy
        .change(|toxics| toxics.back.latency = DEADLINE / 2);
    let load = fleet.load(16, &["alice", "bob"]);
    load.wait_for_answers(400);
    let busy = fleet.servers[0].metric("tollgate_local_decisions_total");
    let history = load.end();
    assert!(busy > 0.0, "some found no room");
    let grown = fleet.servers[0].resident().saturating_sub(memory) >> 20;
    assert!(grown < 64, "{grown} MiB");
    let judged = judge(&history, &Allowance::of(bucket()).replayed_outages(1));
    outcome("S-22 more than in flight, one server", &judged).tell();
}
