//! S-01, S-02 and S-04: a server that is killed, restarts empty, or only stops responding.

use std::sync::Arc;
use std::time::Duration;

use tollgate_testkit::chaos::{ScenarioOutcome, seed};
use tollgate_testkit::clock::monotonic;
use tollgate_testkit::history::{
    Allowance, RecordedVerdict, availability, bound, recovery, spends,
};

use super::load::LoadGenerator;
use super::{DEADLINE, ProxiedServer, SLACK, SOON, bucket, limit, with_fallback_answers};
use crate::topology::{exclusive, wait_until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s_04_a_paused_server_executes_nothing_twice_when_it_resumes() {
    let _exclusive = exclusive().await;
    let proxied = ProxiedServer::start(&[], seed(4));
    let store = Arc::new(proxied.store(DEADLINE).await);
    let primed = proxied.prime(&store, "alice").await;
    let load = LoadGenerator::start(&[store], &["alice"; 8], limit(), Duration::from_millis(2));
    load.go_on(40).await;
    proxied.node.pause();
    wait_until("calls end at their deadline", || async {
        load.failures() >= 8
    })
    .await;
    load.go_on(200).await;
    proxied.node.resume();
    let healed = monotonic();
    load.until_answered(80).await;
    let history = load.end().await;
    // Calls sent before the pause run when the server resumes, and count as spent, once.
    let moved = proxied.state("alice") - primed;
    let spent = spends(&history, "alice", bucket(), moved).unwrap();
    let sent = proxied.proxy.counters().commands("EVALSHA");
    let carried_out = proxied.node.calls("evalsha");
    assert!(carried_out <= sent, "{carried_out} of {sent}");
    let asked = history.records.len() as u64 + 1;
    assert!(sent <= asked, "{sent} commands for {asked} questions");
    println!("{spent:?}");
    let worst = bound(&history, &Allowance::of(bucket())).unwrap();
    let speed = availability(&with_fallback_answers(&history), DEADLINE + SLACK).unwrap();
    let took = recovery(&with_fallback_answers(&history), healed, SOON).unwrap();
    ScenarioOutcome::of("S-04 a hung server")
        .worst(&worst)
        .lost(
            (history.count(RecordedVerdict::Lost) + history.count(RecordedVerdict::Failed)) as u64,
        )
        .speed(speed)
        .recovered(took)
        .tell();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s_02_a_server_that_restarts_empty_costs_one_burst_and_one_with_its_state_none() {
    for is_kept in [true, false] {
        let _exclusive = exclusive().await;
        let kept = ["--appendonly", "yes", "--appendfsync", "always"];
        let mut proxied = ProxiedServer::start(if is_kept { &kept } else { &[] }, seed(2));
        let store = Arc::new(proxied.store(DEADLINE).await);
        proxied.prime(&store, "alice").await;
        let small = crate::server_time::numbered_limit(1, super::bucket_of(20));
        let load =
            LoadGenerator::start(&[store], &["alice", "bob"], small, Duration::from_millis(1));
        load.go_on(100).await;
        proxied.node.kill();
        wait_until("calls fail", || async { load.failures() >= 8 }).await;
        if is_kept {
            proxied.node.restart();
        } else {
            proxied.node.restart_empty();
        }
        let healed = monotonic();
        load.until_answered(100).await;
        let history = load.end().await;
        let limit = tollgate_testkit::history::Bucket::from(&super::bucket_of(20));
        let within = |times| bound(&history, &Allowance::of(limit).losses(times));
        assert_eq!(within(0).is_ok(), is_kept, "the state decides");
        let worst = within(1).unwrap();
        let speed = availability(&with_fallback_answers(&history), DEADLINE + SLACK).unwrap();
        let took = recovery(&with_fallback_answers(&history), healed, SOON).unwrap();
        if !is_kept {
            ScenarioOutcome::of("S-02 restarted empty")
                .worst(&worst)
                .lost(
                    (history.count(RecordedVerdict::Lost) + history.count(RecordedVerdict::Failed))
                        as u64,
                )
                .speed(speed)
                .recovered(took)
                .tell();
        }
    }
}
