//! S-05 to S-08, S-13 to S-15, S-21 and S-22 with whole servers: the way to Redis is bad, or Redis has other worries.

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

/// Load, a fault until servers decide by themselves, its end, and load again until Redis decides.
fn run_fault(
    scenario: &'static str,
    rig: &TestFleet,
    fault: impl FnOnce(&TestFleet),
    end: impl FnOnce(&TestFleet),
) -> History {
    let load = rig.load(3, &["alice", "bob", "carol"]);
    load.wait_for_answers(60);
    fault(rig);
    load.until_decided_without(12);
    load.wait_for_answers(60);
    for server in &rig.servers {
        assert!(server.is_ready() && server.is_degraded());
    }
    end(rig);
    let healed = monotonic();
    load.wait_for_answers(40);
    load.until_decided_by_the_store(40);
    let history = load.end();
    let took = recovery(&history, healed, RECOVERY_TIME).unwrap();
    let judged = judge(&history, &Allowance::of(bucket()).replayed_outages(1));
    outcome(scenario, &judged).recovered(took).tell();
    for server in &rig.servers {
        assert!(server.metric("tollgate_panics_total") < 1.0);
        assert!(!server.is_degraded());
        // It opens once for one fault, and does not flap.
        let openings = server.metric("tollgate_breaker_openings_total");
        assert!(openings <= 4.0, "{openings}");
    }
    history
}

#[test]
fn s_05_a_slow_redis_is_done_without_once_it_is_slower_than_the_deadline() {
    let _alone = run_exclusively();
    let rig = TestFleet::start(2, &[DEADLINE_SET], seed(5));
    run_fault(
        "S-05 slow, two servers",
        &rig,
        |rig| {
            rig.proxy.change(|toxics| {
                toxics.back.latency = DEADLINE * 4;
                toxics.back.jitter = DEADLINE;
            });
        },
        |rig| rig.proxy.heal(),
    );
}

#[test]
fn s_06_a_redis_that_refuses_connections_is_tried_again_by_few() {
    let _alone = run_exclusively();
    let rig = TestFleet::start(2, &[DEADLINE_SET], seed(6));
    run_fault(
        "S-06 refused, two servers",
        &rig,
        |rig| rig.proxy.go_down(),
        |rig| rig.proxy.heal(),
    );
    let most = rig
        .proxy
        .counters()
        .most_connects_within(Duration::from_secs(1));
    assert!(most <= 2 * 3 * 10, "{most} connections in a second");
}

#[test]
fn s_07_a_black_hole_is_noticed_and_its_connections_replaced() {
    let _alone = run_exclusively();
    let rig = TestFleet::start(2, &[DEADLINE_SET], seed(7));
    run_fault(
        "S-07 a black hole, two servers",
        &rig,
        |rig| {
            rig.proxy
                .change(|toxics| toxics.back.silence = SwallowMode::Lost);
        },
        |rig| rig.proxy.heal(),
    );
}

#[test]
fn s_08_replies_that_are_lost_are_decided_here_and_charged_once() {
    let _alone = run_exclusively();
    let rig = TestFleet::start(2, &[DEADLINE_SET], seed(8));
    let primed = rig.prime("alice");
    let load = rig.load(3, &["alice"]);
    for _ in 0..6 {
        load.wait_for_answers(30);
        rig.proxy
            .lose_replies("EVALSHA", 1, AfterRewrite::End(CloseMode::Reset));
    }
    load.wait_for_answers(30);
    load.until_decided_by_the_store(40);
    let history = load.end();
    let spent = spends(&history, "alice", bucket(), rig.state() - primed).unwrap();
    assert!(rig.proxy.counters().meddled >= 3, "{spent:?}");
    // Those that were lost are charged in Redis and counted here too; nobody is admitted more for it.
    let judged = judge(&history, &Allowance::of(bucket()).units(1 + spent.unheard));
    outcome("S-08 lost replies, two servers", &judged).tell();
}

#[test]
fn s_13_a_redis_that_is_busy_with_another_script_is_done_without() {
    let _alone = run_exclusively();
    let rig = TestFleet::start(2, &[DEADLINE_SET], seed(13));
    rig.node
        .tell(&["CONFIG", "SET", "busy-reply-threshold", "100"]);
    run_fault(
        "S-13 a busy script, two servers",
        &rig,
        |rig| {
            let mut other = TcpStream::connect(rig.node.address()).unwrap();
            let endless = b"EVAL \"while true do end\" 0\r\n";
            other.write_all(endless).unwrap();
            // It runs on although nobody waits for it.
            until("it runs", || {
                rig.node
                    .try_ask(&["PING"])
                    .is_ok_and(|reply| reply.starts_with("-BUSY"))
            });
        },
        |rig| rig.node.tell(&["SCRIPT", "KILL"]),
    );
}

#[test]
fn s_14_a_redis_without_memory_is_done_without() {
    let _alone = run_exclusively();
    let rig = TestFleet::start(2, &[DEADLINE_SET], seed(14));
    run_fault(
        "S-14 out of memory, two servers",
        &rig,
        |rig| rig.node.tell(&["CONFIG", "SET", "maxmemory", "100kb"]),
        |rig| rig.node.tell(&["CONFIG", "SET", "maxmemory", "0"]),
    );
}

#[test]
fn s_15_evicted_states_cost_a_burst_each() {
    let _alone = run_exclusively();
    let rig = TestFleet::start(2, &[super::LONG_DEADLINE], seed(15));
    rig.node
        .tell(&["CONFIG", "SET", "maxmemory-policy", "allkeys-random"]);
    let names: Vec<String> = (0..10).map(|number| format!("client{number}")).collect();
    let keys: Vec<&str> = names.iter().map(String::as_str).collect();
    let load = rig.load(3, &keys);
    load.wait_for_answers(100);
    let used: u64 = rig.node.info("used_memory").unwrap().parse().unwrap();
    let most = (used + 300_000).to_string();
    rig.node.tell(&["CONFIG", "SET", "maxmemory", &most]);
    let filler = "x".repeat(2_000);
    for number in 0..600 {
        let name = format!("other {number}");
        rig.node.tell(&["SET", &name, &filler, "EX", "600"]);
    }
    load.wait_for_answers(100);
    let history = load.end();
    let evicted: u64 = rig.node.info("evicted_keys").unwrap().parse().unwrap();
    assert!(evicted > 50, "{evicted}");
    let allowed = Allowance::of(bucket()).losses(evicted);
    let worst = tollgate_testkit::history::bound(&history, &allowed).unwrap();
    ScenarioOutcome::of("S-15 evicted, two servers")
        .worst(&worst)
        .tell();
}

#[test]
fn s_21_servers_that_lost_their_redis_together_do_not_come_back_together() {
    const SERVERS: usize = 6;
    let _alone = run_exclusively();
    let mut rig = TestFleet::start(SERVERS, &[DEADLINE_SET], seed(21));
    let lanes = rig.proxy.counters().connects;
    let load = rig.load(1, &["alice", "bob"]);
    load.wait_for_answers(30);
    rig.node.kill();
    rig.proxy.change(|toxics| toxics.door = AcceptMode::Reset);
    load.until_decided_without(12);
    let tried = rig.proxy.counters().connects;
    until("they try again and again", || {
        rig.proxy.counters().connects > tried + lanes * 3
    });
    rig.node.restart();
    let before = rig.proxy.counters().connects;
    rig.proxy.heal();
    let healed = monotonic();
    load.wait_for_answers(40);
    load.until_decided_by_the_store(40);
    let history = load.end();
    let counters = rig.proxy.counters();
    // The first retry comes within 50 ms, later ones are rare. A server that has reconnected does not try again.
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
fn s_22_more_questions_than_calls_in_flight_are_decided_here_at_once() {
    let _alone = run_exclusively();
    let settings = [DEADLINE_SET, "--redis-most-in-flight=2"];
    let rig = TestFleet::start(1, &settings, seed(22));
    let memory = rig.servers[0].resident();
    rig.proxy
        .change(|toxics| toxics.back.latency = DEADLINE / 2);
    let load = rig.load(16, &["alice", "bob"]);
    load.wait_for_answers(400);
    let busy = rig.servers[0].metric("tollgate_local_decisions_total");
    let history = load.end();
    assert!(busy > 0.0, "some found no room");
    let grown = rig.servers[0].resident().saturating_sub(memory) >> 20;
    assert!(grown < 64, "{grown} MiB");
    let judged = judge(&history, &Allowance::of(bucket()).replayed_outages(1));
    outcome("S-22 more than in flight, one server", &judged).tell();
}
