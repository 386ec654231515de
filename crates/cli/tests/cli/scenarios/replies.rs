//! S-09 to S-12 with server processes: fragmented replies, forged replies, error replies, and flushed scripts.

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

/// Runs load on one server and replaces three replies of Redis by each of these.
fn run_with_replies(scenario: &'static str, own_seed: u64, replies: &[Vec<u8>]) -> History {
    let fleet = TestFleet::start(1, &[DEADLINE_SET], seed(own_seed));
    let memory = fleet.servers[0].resident();
    let load = fleet.load(4, &KEYS);
    for reply in replies {
        let before = fleet.proxy.counters().meddled;
        fleet.proxy.replace_replies("EVALSHA", 3, reply);
        until("all of them were answered", || {
            fleet.proxy.counters().meddled >= before + 3
        });
        load.wait_for_answers(4);
    }
    fleet.proxy.heal();
    let healed = monotonic();
    load.wait_for_answers(40);
    load.until_decided_by_the_store(40);
    let history = load.end();
    assert!(history.records.iter().any(|record| record.is_degraded));
    let took = recovery(&history, healed, RECOVERY_TIME).unwrap();
    let allowed = Allowance::of(bucket()).replayed_outages(replies.len() as u64);
    let judged = judge(&history, &allowed);
    outcome(scenario, &judged).recovered(took).tell();
    let grown = fleet.servers[0].resident().saturating_sub(memory) >> 20;
    assert!(grown < 64, "{grown} MiB");
    assert!(!fleet.servers[0].log().contains("panicked"));
    history
}

#[test]
fn s_09_fragmented_replies_are_read_and_truncated_ones_are_charged_at_most_once() {
    let _exclusive = run_exclusively();
    let fleet = TestFleet::start(1, &[LONG_DEADLINE], seed(9));
    let primed = fleet.prime("alice");
    fleet.proxy.change(|toxics| {
        toxics.back.slices = Some(Slicer {
            bytes: NonZeroUsize::MIN,
            pause: Duration::from_millis(1),
        });
    });
    let load = fleet.load(3, &["alice"]);
    load.wait_for_answers(12);
    fleet.proxy.heal();
    load.wait_for_answers(30);
    assert!(load.history().records.iter().all(|r| !r.is_degraded));
    // Every connection closes in the middle of a reply, repeatedly.
    for bytes in [3, 500, 2_000] {
        fleet.proxy.change(|toxics| {
            let ending = CloseMode::Close;
            toxics.back.limit = Some(DataLimit { bytes, ending });
        });
        load.wait_for_answers(20);
    }
    fleet.proxy.heal();
    let healed = monotonic();
    load.wait_for_answers(40);
    load.until_decided_by_the_store(40);
    let history = load.end();
    let spent = spends(&history, "alice", bucket(), fleet.state() - primed).unwrap();
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
fn s_10_no_forged_reply_of_redis_breaks_the_server() {
    let _exclusive = run_exclusively();
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
fn s_11_no_error_reply_of_redis_reaches_a_client() {
    let _exclusive = run_exclusively();
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
    let _exclusive = run_exclusively();
    let fleet = TestFleet::start(2, &[LONG_DEADLINE], seed(12));
    let primed = fleet.prime("alice");
    let load = fleet.load(3, &["alice"]);
    for _ in 0..8 {
        fleet.node.tell(&["SCRIPT", "FLUSH"]);
        load.wait_for_answers(25);
    }
    let history = load.end();
    assert!(history.records.iter().all(|record| !record.is_degraded));
    let moved = fleet.state() - primed;
    spends_exactly(&history, "alice", bucket(), moved).unwrap();
    let worst = bound(&history, &Allowance::of(bucket())).unwrap();
    ScenarioOutcome::of("S-12 scripts flushed, two servers")
        .worst(&worst)
        .lost(0)
        .tell();
}
