//! S-05 and S-22: a slow server, and more calls than may be in flight.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tollgate_store::{Op, StoreErrorKind};
use tollgate_testkit::chaos::{ScenarioOutcome, seed};
use tollgate_testkit::clock::{monotonic, since};
use tollgate_testkit::history::{
    Allowance, RecordedVerdict, availability, bound, coherence, denials, recovery, spends,
    spends_exactly,
};

use super::load::LoadGenerator;
use super::{DEADLINE, ProxiedServer, SLACK, SOON, bucket, limit, resident, with_fallback_answers};
use crate::server_time::{LONG_TIMEOUT, decide_one};
use crate::topology::exclusive;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s_05_a_slow_server_is_exact_below_the_deadline_and_calls_end_at_it() {
    let _exclusive = exclusive().await;
    let proxied = ProxiedServer::start(&[], seed(5));
    // Slow, but within the deadline: nothing is lost and every unit is counted.
    let patient = Arc::new(proxied.store(LONG_TIMEOUT).await);
    let primed = proxied.prime(&patient, "alice").await;
    proxied.proxy.change(|toxics| {
        toxics.back.latency = Duration::from_millis(5);
        toxics.back.jitter = Duration::from_millis(5);
    });
    let load = LoadGenerator::start(&[patient], &["alice"], limit(), Duration::from_millis(1));
    load.go_on(40).await;
    let history = load.end().await;
    let moved = proxied.state("alice") - primed;
    spends_exactly(&history, "alice", bucket(), moved).unwrap();
    coherence(&history, bucket(), 0).unwrap();
    denials(&history, bucket(), 0).unwrap();

    // Slower than the deadline: every call ends there and may have charged, and no connection is replaced because of
    // it.
    proxied.proxy.heal();
    let store = Arc::new(proxied.store(DEADLINE).await);
    let primed = proxied.prime(&store, "bob").await;
    let connects = proxied.proxy.counters().connects;
    proxied
        .proxy
        .change(|toxics| toxics.back.latency = DEADLINE * 3);
    let load = LoadGenerator::start(&[store], &["bob"; 4], limit(), Duration::from_millis(1));
    load.go_on(20).await;
    assert_eq!(proxied.proxy.counters().connects, connects);
    proxied.proxy.heal();
    let healed = monotonic();
    load.until_answered(40).await;
    let history = load.end().await;
    assert!(history.count(RecordedVerdict::Lost) >= 20);
    let spent = spends(&history, "bob", bucket(), proxied.state("bob") - primed).unwrap();
    assert!(
        spent.units > spent.heard,
        "calls whose answers came too late were charged: {spent:?}"
    );
    let worst = bound(&history, &Allowance::of(bucket())).unwrap();
    let speed = availability(&with_fallback_answers(&history), DEADLINE + SLACK).unwrap();
    let took = recovery(&with_fallback_answers(&history), healed, SOON).unwrap();
    let lost = history.count(RecordedVerdict::Lost) as u64;
    ScenarioOutcome::of("S-05 a slow server")
        .worst(&worst)
        .lost(lost)
        .speed(speed)
        .recovered(took)
        .tell();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s_05_a_server_that_sleeps_now_and_then_keeps_its_connections() {
    let _exclusive = exclusive().await;
    let proxied = ProxiedServer::start(&[], seed(5));
    let store = Arc::new(proxied.store(DEADLINE / 2).await);
    let primed = proxied.prime(&store, "alice").await;
    let connects = proxied.proxy.counters().connects;
    let load = LoadGenerator::start(&[store], &["alice"; 2], limit(), Duration::from_millis(2));
    for _ in 0..4 {
        proxied.node.tell(&["DEBUG", "SLEEP", "0.2"]);
        load.go_on(10).await;
    }
    load.until_answered(10).await;
    let history = load.end().await;
    assert!(history.count(RecordedVerdict::Lost) > 0, "it was noticed");
    assert_eq!(proxied.proxy.counters().connects, connects);
    let moved = proxied.state("alice") - primed;
    let spent = spends(&history, "alice", bucket(), moved).unwrap();
    assert_eq!(spent.units, spent.heard + spent.unheard, "it only slept");
    availability(&with_fallback_answers(&history), DEADLINE / 2 + SLACK).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s_22_calls_beyond_the_maximum_in_flight_fail_at_once() {
    const CALLS: u64 = 20_000;
    // The window of sent calls starts with 32 and does not grow while replies are late.
    const MAX_SENT: u64 = 32;
    let _exclusive = exclusive().await;
    let proxied = ProxiedServer::start(&[], seed(22));
    let store = Arc::new(proxied.store(DEADLINE).await);
    let primed = proxied.prime(&store, "alice").await;
    let connects = proxied.proxy.counters().connects;
    proxied
        .proxy
        .change(|toxics| toxics.back.latency = DEADLINE * 3);
    let memory = resident();
    let began = monotonic();
    let mut calls = JoinSet::new();
    for _ in 0..CALLS {
        let store = Arc::clone(&store);
        calls.spawn(async move {
            let asked = decide_one(&store, "alice", &limit(), Op::Spend(1)).await;
            asked.err().map(|error| error.kind())
        });
    }
    let (mut busy, mut late) = (0_u64, 0_u64);
    while let Some(kind) = calls.join_next().await {
        match kind.unwrap() {
            Some(StoreErrorKind::Busy) => busy += 1,
            // On a machine that is slower than the server, a reply may be there when the deadline is noticed.
            Some(StoreErrorKind::TimedOut) | None => late += 1,
            kind => panic!("{kind:?}"),
        }
    }
    let slowest = since(began);
    assert!(late >= 1 && busy + late == CALLS, "{busy} {late}");
    // The other calls were not sent, so that they cannot have charged.
    let turns = u64::try_from(slowest.as_millis() / DEADLINE.as_millis()).unwrap() + 1;
    assert!(late <= MAX_SENT * turns, "{late} in {turns} turns");
    // On such a machine a late probe may cost a pooled connection once; calls never do.
    let now = proxied.proxy.counters().connects;
    assert!(
        now <= connects * 3,
        "{now} connections where {connects} were"
    );
    let grown = resident().saturating_sub(memory) >> 20;
    assert!(grown < 128, "{grown} MiB for {CALLS} calls");
    proxied.proxy.heal();
    crate::topology::wait_until("the server is used again", || async {
        decide_one(&store, "alice", &limit(), Op::Spend(0))
            .await
            .is_ok()
    })
    .await;
    let charged = (proxied.state("alice") - primed) / bucket().interval;
    assert!(
        charged <= late,
        "{charged} of {late} were charged, none twice"
    );
    ScenarioOutcome::of("S-22 more calls than in flight")
        .lost(busy + late)
        .tell();
    println!(
        "all {CALLS} calls were answered after {slowest:?}, with {grown} MiB and {now} connections"
    );
}
