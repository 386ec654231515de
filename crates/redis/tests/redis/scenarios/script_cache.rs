//! S-12 and S-13: a server that loses its scripts, and one that is busy with another client's script.

use std::io::Write as _;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use tollgate_store::{Op, StoreErrorKind};
use tollgate_testkit::chaos::{ScenarioOutcome, seed};
use tollgate_testkit::clock::monotonic;
use tollgate_testkit::history::{
    Allowance, RecordedVerdict, availability, bound, coherence, denials, recovery, spends,
    spends_exactly,
};

use super::load::LoadGenerator;
use super::{DEADLINE, ProxiedServer, SLACK, SOON, bucket, limit, with_fallback_answers};
use crate::server_time::{LONG_TIMEOUT, decide_one};
use crate::topology::{exclusive, wait_until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s_12_scripts_that_are_flushed_again_and_again_lose_no_decision() {
    let _exclusive = exclusive().await;
    let proxied = ProxiedServer::start(&[], seed(12));
    let stores = [
        Arc::new(proxied.store(LONG_TIMEOUT).await),
        Arc::new(proxied.store(LONG_TIMEOUT).await),
    ];
    let primed = proxied.prime(&stores[0], "alice").await;
    let before = proxied.proxy.counters();
    let load = LoadGenerator::start(&stores, &["alice"; 6], limit(), Duration::from_millis(2));
    for _ in 0..12 {
        proxied.node.tell(&["SCRIPT", "FLUSH"]);
        load.go_on(25).await;
    }
    let history = load.end().await;
    let moved = proxied.state("alice") - primed;
    spends_exactly(&history, "alice", bucket(), moved).unwrap();
    let worst = bound(&history, &Allowance::of(bucket())).unwrap();
    denials(&history, bucket(), 0).unwrap();
    coherence(&history, bucket(), 0).unwrap();
    assert_eq!(
        history.count(RecordedVerdict::Lost) + history.count(RecordedVerdict::Failed),
        0
    );
    let counters = proxied.proxy.counters();
    let loads = counters.commands("SCRIPT LOAD") - before.commands("SCRIPT LOAD");
    assert!(loads >= 12, "{loads}");
    // One more round trip for each call that finds the script missing: the script, and the call again.
    let calls = counters.commands("EVALSHA") - before.commands("EVALSHA");
    assert_eq!(calls, history.records.len() as u64 + loads);
    let speed = availability(&history, LONG_TIMEOUT).unwrap();
    ScenarioOutcome::of("S-12 scripts flushed")
        .worst(&worst)
        .lost(0)
        .speed(speed)
        .tell();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s_13_a_server_that_is_busy_with_a_script_is_used_again_when_that_is_killed() {
    let _exclusive = exclusive().await;
    let proxied = ProxiedServer::start(&["--busy-reply-threshold", "100"], seed(13));
    let store = Arc::new(proxied.store(DEADLINE).await);
    let primed = proxied.prime(&store, "alice").await;
    let stores = [Arc::clone(&store)];
    let load = LoadGenerator::start(&stores, &["alice"; 2], limit(), Duration::from_millis(2));
    load.go_on(20).await;
    let mut other = TcpStream::connect(proxied.node.address()).unwrap();
    other
        .write_all(b"EVAL \"while true do end\" 0\r\n")
        .unwrap();
    wait_until("the server replies BUSY", || async {
        let asked = decide_one(&store, "bob", &limit(), Op::Spend(0)).await;
        asked.is_err_and(|error| error.kind() == StoreErrorKind::Refused)
    })
    .await;
    proxied.node.tell(&["SCRIPT", "KILL"]);
    let healed = monotonic();
    load.until_answered(40).await;
    let history = load.end().await;
    spends(&history, "alice", bucket(), proxied.state("alice") - primed).unwrap();
    let worst = bound(&history, &Allowance::of(bucket())).unwrap();
    let speed = availability(&with_fallback_answers(&history), DEADLINE + SLACK).unwrap();
    let took = recovery(&with_fallback_answers(&history), healed, SOON).unwrap();
    ScenarioOutcome::of("S-13 a busy script")
        .worst(&worst)
        .lost(
            (history.count(RecordedVerdict::Lost) + history.count(RecordedVerdict::Failed)) as u64,
        )
        .speed(speed)
        .recovered(took)
        .tell();
}
