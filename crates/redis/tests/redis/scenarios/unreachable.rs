//! S-06, S-07 and S-21: connections that are refused, reset or black-holed, and a fleet that reconnects.

use std::sync::Arc;
use std::time::Duration;

use tollgate_store::Op;
use tollgate_testkit::chaos::{ScenarioOutcome, seed};
use tollgate_testkit::clock::monotonic;
use tollgate_testkit::faults::{AcceptMode, CloseMode, DataLimit, SwallowMode};
use tollgate_testkit::history::{
    Allowance, RecordedVerdict, availability, bound, recovery, spends,
};

use super::load::LoadGenerator;
use super::{DEADLINE, ProxiedServer, SLACK, SOON, bucket, limit, with_fallback_answers};
use crate::server_time::decide_one;
use crate::topology::{exclusive, wait_until};

/// The most connect attempts of one pooled connection in any two seconds: the pauses double from 50 ms, with full
/// jitter.
const ATTEMPTS: u64 = 20;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s_06_refused_and_reset_connections_are_replaced_by_one_task_each() {
    let _exclusive = exclusive().await;
    let proxied = ProxiedServer::start(&[], seed(6));
    let store = Arc::new(proxied.store(DEADLINE).await);
    let primed = proxied.prime(&store, "alice").await;
    let lanes = proxied.proxy.counters().connects;
    let keys = ["alice"; 8];
    let load = LoadGenerator::start(
        &[Arc::clone(&store)],
        &keys,
        limit(),
        Duration::from_millis(2),
    );
    load.go_on(40).await;
    // In the middle of a command: the server gets half of it and executes nothing.
    proxied.proxy.change(|toxics| {
        toxics.there.limit = Some(DataLimit {
            bytes: 1,
            ending: CloseMode::Reset,
        });
    });
    wait_until("calls fail", || async { load.failures() > 0 }).await;
    proxied.proxy.change(|toxics| {
        toxics.there.limit = None;
        toxics.door = AcceptMode::Reset;
    });
    let before = proxied.proxy.counters().connects;
    wait_until("the store tries to reconnect", || async {
        proxied.proxy.counters().connects >= before + lanes * 4
    })
    .await;
    proxied.proxy.go_down();
    load.go_on(200).await;
    proxied.proxy.heal();
    let healed = monotonic();
    load.until_answered(80).await;
    let history = load.end().await;
    let counters = proxied.proxy.counters();
    let most = counters.most_connects_within(Duration::from_secs(2));
    assert!(
        most <= lanes * ATTEMPTS,
        "{most} connections in two seconds"
    );
    spends(&history, "alice", bucket(), proxied.state("alice") - primed).unwrap();
    let worst = bound(&history, &Allowance::of(bucket())).unwrap();
    let speed = availability(&with_fallback_answers(&history), DEADLINE + SLACK).unwrap();
    let took = recovery(&with_fallback_answers(&history), healed, SOON).unwrap();
    let lost =
        (history.count(RecordedVerdict::Lost) + history.count(RecordedVerdict::Failed)) as u64;
    ScenarioOutcome::of("S-06 refused and reset")
        .worst(&worst)
        .lost(lost)
        .speed(speed)
        .recovered(took)
        .tell();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s_07_a_connection_that_loses_every_byte_is_replaced() {
    let _exclusive = exclusive().await;
    let proxied = ProxiedServer::start(&[], seed(7));
    let store = Arc::new(proxied.store(DEADLINE).await);
    let primed = proxied.prime(&store, "alice").await;
    let lanes = proxied.proxy.counters().connects;
    let keys = ["alice", "bob", "carol", "dave"];
    let load = LoadGenerator::start(&[store], &keys, limit(), Duration::from_millis(2));
    load.go_on(40).await;
    // Open connections lose every byte without an error; new ones do not.
    proxied
        .proxy
        .change(|toxics| toxics.back.silence = SwallowMode::Lost);
    wait_until("calls end at their deadline", || async {
        load.failures() >= 4
    })
    .await;
    proxied.proxy.heal();
    let swallowed = monotonic();
    load.until_answered(40).await;
    let history = load.end().await;
    let connects = proxied.proxy.counters().connects;
    assert!(connects > lanes, "it was replaced");
    assert!(connects <= lanes * 3, "and not more often than needed");
    spends(&history, "alice", bucket(), proxied.state("alice") - primed).unwrap();
    let worst = bound(&history, &Allowance::of(bucket())).unwrap();
    let speed = availability(&with_fallback_answers(&history), DEADLINE + SLACK).unwrap();
    let took = recovery(
        &with_fallback_answers(&history),
        swallowed,
        Duration::from_secs(3),
    )
    .unwrap();
    ScenarioOutcome::of("S-07 a black hole")
        .worst(&worst)
        .lost(history.count(RecordedVerdict::Lost) as u64)
        .speed(speed)
        .recovered(took)
        .tell();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s_21_fifty_instances_do_not_reconnect_at_the_same_moment() {
    const INSTANCES: u64 = 50;
    let _exclusive = exclusive().await;
    let mut proxied = ProxiedServer::start(&[], seed(21));
    let mut stores = Vec::new();
    for _ in 0..INSTANCES {
        let store = proxied.store_with(DEADLINE, |options| options.connections = 1);
        stores.push(Arc::new(store.await));
    }
    wait_until("all are connected", || async {
        stores.iter().all(|store| store.is_connected())
    })
    .await;
    let before = proxied.proxy.counters();
    let scripts = before.commands("SCRIPT LOAD") / INSTANCES;
    proxied.node.kill();
    proxied
        .proxy
        .change(|toxics| toxics.door = AcceptMode::Reset);
    // Long enough for the pauses to have grown, as the number of attempts shows.
    wait_until("the instances try to reconnect", || async {
        proxied.proxy.counters().connects >= before.connects + INSTANCES * 6
    })
    .await;
    proxied.node.restart();
    proxied.proxy.heal();
    let healed = monotonic();
    wait_until("all are connected again", || async {
        stores.iter().all(|store| store.is_connected())
    })
    .await;
    let took = tollgate_testkit::clock::since(healed);
    let counters = proxied.proxy.counters();
    let attempts = counters.connects - before.connects;
    assert!(
        attempts <= INSTANCES * ATTEMPTS,
        "{attempts} attempts of {INSTANCES}"
    );
    let spread = Duration::from_millis(100);
    let histogram = counters.connects_in_each(spread);
    // Since the server is back, and not the first attempts of the outage, which come together because all lost it together.
    let since = usize::try_from(took.as_millis() / spread.as_millis()).unwrap() + 2;
    let last: Vec<_> = histogram.iter().rev().take(since).collect();
    println!("connections in each {spread:?}, the last first: {last:?}");
    let recent = last.iter().copied().max().copied().unwrap_or(0);
    assert!(
        recent < INSTANCES / 2,
        "{recent} came at once: {histogram:?}"
    );
    // Each instance loads its scripts once it is connected, and none sends EVAL.
    let loads = counters.commands("SCRIPT LOAD") - before.commands("SCRIPT LOAD");
    assert_eq!(loads, INSTANCES * scripts);
    assert_eq!(counters.commands("EVAL"), 0);
    for store in &stores {
        assert!(
            decide_one(store, "alice", &limit(), Op::Spend(1))
                .await
                .is_ok()
        );
    }
    ScenarioOutcome::of("S-21 fifty come back")
        .recovered(took)
        .tell();
}
