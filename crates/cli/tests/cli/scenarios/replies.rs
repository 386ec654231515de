//! S-09, S-10, S-11 and S-12 with whole servers: replies in pieces, forged ones, errors, and scripts that are forgotten.

use std::num::NonZeroUsize;
use std::time::Duration;

use tollgate_testkit::chaos::{ScenarioOutcome, seed};
use tollgate_testkit::clock::monotonic;
use tollgate_testkit::faults::{CloseMode, DataLimit, Slicer};
use tollgate_testkit::history::{Allowance, History, bound, recovery, spends, spends_exactly};
use tollgate_testkit::redis::until;

use super::{
    DEADLINE_SET, LONG_DEADLINE, RECOVERY_TIME, TestFleet, bucket, judge, outcome, run_exclusively,
};

const KEYS: [&str; 4] = ["alice", "bob", "carol", "dave"];

/// One server that hears each of these three times instead of what Redis answers, and is asked all the while.
fn run_with_replies(scenario: &'static str, own_seed: u64, replies: &[Vec<u8>]) -> History {
    let rig = TestFleet::start(1, &[DEADLINE_SET], seed(own_seed));
    let memory = rig.servers[0].resident();
    let load = rig.load(4, &KEYS);
    for reply in replies {
        let before = rig.proxy.counters().meddled;
        rig.proxy.replace_replies("EVALSHA", 3, reply);
        until("all of them were answered", || {
            rig.proxy.counters().meddled >= before + 3
        });
        load.wait_for_answers(4);
    }
    rig.proxy.heal();
    let healed = monotonic();
    load.wait_for_answers(40);
    load.until_decided_by_the_store(40);
    let history = load.end();
    assert!(history.records.iter().any(|record| record.is_degraded));
    let took = recovery(&history, healed, RECOVERY_TIME).unwrap();
    let allowed = Allowance::of(bucket()).replayed_outages(replies.len() as u64);
    let judged = judge(&history, &allowed);
    outcome(scenario, &judged).recovered(took).tell();
    let grown = rig.servers[0].resident().saturating_sub(memory) >> 20;
    assert!(grown < 64, "{grown} MiB");
    assert!(!rig.servers[0].log().contains("panicked"));
    history
}

#[test]
fn s_09_replies_in_slices_are_read_and_those_cut_off_are_charged_at_most_once() {
    let _alone = run_exclusively();
    let rig = TestFleet::start(1, &[LONG_DEADLINE], seed(9));
    let primed = rig.prime("alice");
    rig.proxy.change(|toxics| {
        toxics.back.slices = Some(Slicer {
            bytes: NonZeroUsize::MIN,
            pause: Duration::from_millis(1),
        });
    });
    let load = rig.load(3, &["alice"]);
    load.wait_for_answers(12);
    rig.proxy.heal();
    load.wait_for_answers(30);
    assert!(load.so_far().records.iter().all(|r| !r.is_degraded));
    // Every connection ends in the middle of a reply, again and again.
    for bytes in [3, 500, 2_000] {
        rig.proxy.change(|toxics| {
            let ending = CloseMode::Close;
            toxics.back.limit = Some(DataLimit { bytes, ending });
        });
        load.wait_for_answers(20);
    }
    rig.proxy.heal();
    let healed = monotonic();
    load.wait_for_answers(40);
    load.until_decided_by_the_store(40);
    let history = load.end();
    let spent = spends(&history, "alice", bucket(), rig.state() - primed).unwrap();
    let took = recovery(&history, healed, RECOVERY_TIME).unwrap();
    let allowed = Allowance::of(bucket()).replayed_outages(1);
    let worst = bound(&history, &allowed).unwrap();
    println!("{spent:?}");
    ScenarioOutcome::of("S-09 sliced replies, one server")
        .worst(&worst)
        .lost(0)
        .recovered(took)
        .tell();
}

#[test]
fn s_10_whatever_redis_answers_the_server_goes_on() {
    let _alone = run_exclusively();
    let forged: [&[u8]; 8] = [
        b"$-1\r\n",
        b"+OK\r\n",
        b"*6\r\n:1\r\n:0\r\n:1\r\n:0\r\n:99999999999999999\r\n:0\r\n",
        b"*6\r\n:-1\r\n:0\r\n:1\r\n:0\r\n:0\r\n:0\r\n",
        b"*6\r\n:1\r\n:99999999999999999999999\r\n:1\r\n:0\r\n:0\r\n:0\r\n",
        b"$1073741824\r\nabc",
        b"*2147483647\r\n:1\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n",
    ];
    run_with_replies(
        "S-10 forged replies, one server",
        10,
        &forged.map(<[u8]>::to_vec),
    );
}

#[test]
fn s_11_whatever_error_redis_answers_nobody_else_hears_of_it() {
    let _alone = run_exclusively();
    let errors = [
        "LOADING Redis is loading the dataset in memory",
        "READONLY You can't write against a read only replica.",
        "OOM command not allowed when used memory > 'maxmemory'.",
        "MISCONF Redis is configured to save RDB snapshots",
        "NOREPLICAS Not enough good replicas to write.",
        "NOAUTH Authentication required.",
        "CLUSTERDOWN Hash slot not served",
        "TRYAGAIN Multiple keys request during rehashing of slot",
        "MOVED 3999 127.0.0.1:1",
        "ASK 3999 127.0.0.1:1",
        "ERR Error running script",
    ];
    let lines = errors.map(|line| format!("-{line}\r\n").into_bytes());
    run_with_replies("S-11 error replies, one server", 11, &lines);
}

#[test]
fn s_12_flushed_scripts_cost_no_decision() {
    let _alone = run_exclusively();
    let rig = TestFleet::start(2, &[LONG_DEADLINE], seed(12));
    let primed = rig.prime("alice");
    let load = rig.load(3, &["alice"]);
    for _ in 0..8 {
        rig.node.tell(&["SCRIPT", "FLUSH"]);
        load.wait_for_answers(25);
    }
    let history = load.end();
    assert!(history.records.iter().all(|record| !record.is_degraded));
    let moved = rig.state() - primed;
    spends_exactly(&history, "alice", bucket(), moved).unwrap();
    let worst = bound(&history, &Allowance::of(bucket())).unwrap();
    ScenarioOutcome::of("S-12 scripts flushed, two servers")
        .worst(&worst)
        .lost(0)
        .tell();
}
