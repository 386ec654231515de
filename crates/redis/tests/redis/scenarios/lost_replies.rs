//! S-08: replies that are lost after the command was executed.

use std::sync::Arc;
use std::time::Duration;

use tollgate_store::{Op, StoreErrorKind};
use tollgate_testkit::chaos::{ScenarioOutcome, seed};
use tollgate_testkit::faults::{AfterRewrite, CloseMode};
use tollgate_testkit::history::{Allowance, RecordedVerdict, availability, bound, spends};

use super::load::LoadGenerator;
use super::{DEADLINE, ProxiedServer, SLACK, bucket, limit, with_fallback_answers};
use crate::server_time::{LONG_TIMEOUT, decide_one};
use crate::topology::{exclusive, wait_until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s_08_a_lost_reply_is_charged_exactly_once() {
    let _exclusive = exclusive().await;
    let proxied = ProxiedServer::start(&[], seed(8));
    let store = proxied.store(LONG_TIMEOUT).await;
    let primed = proxied.prime(&store, "alice").await;
    for (number, ending) in [(1, CloseMode::Reset), (2, CloseMode::Close)] {
        proxied
            .proxy
            .lose_replies("EVALSHA", 1, AfterRewrite::End(ending));
        let error = decide_one(&store, "alice", &limit(), Op::Spend(1))
            .await
            .unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::ConnectionLost, "{error}");
        assert!(error.may_have_charged());
        let charged = (proxied.state("alice") - primed) / bucket().interval;
        assert_eq!(charged, number, "{ending:?}");
        wait_until("the connection recovers", || async {
            decide_one(&store, "alice", &limit(), Op::Spend(0))
                .await
                .is_ok()
        })
        .await;
    }
    assert_eq!(proxied.proxy.counters().meddled, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s_08_under_load_a_lost_reply_is_charged_once_and_never_again() {
    let _exclusive = exclusive().await;
    let proxied = ProxiedServer::start(&[], seed(8));
    let store = Arc::new(proxied.store(DEADLINE).await);
    let primed = proxied.prime(&store, "alice").await;
    let keys = ["alice"; 6];
    let load = LoadGenerator::start(&[store], &keys, limit(), Duration::from_millis(2));
    for _ in 0..5 {
        load.go_on(30).await;
        proxied
            .proxy
            .lose_replies("EVALSHA", 1, AfterRewrite::End(CloseMode::Reset));
    }
    load.go_on(30).await;
    load.until_answered(60).await;
    let history = load.end().await;
    assert!(history.count(RecordedVerdict::Lost) >= 5);
    let moved = proxied.state("alice") - primed;
    let spent = spends(&history, "alice", bucket(), moved).unwrap();
    // Every command that the server got is one charge: none was sent a second time.
    assert!(spent.units >= spent.heard + 5, "{spent:?}");
    let calls = proxied.proxy.counters().commands("EVALSHA");
    let asked = history.records.len() as u64 + 1;
    assert!(calls <= asked, "{calls} calls for {asked} questions");
    let worst = bound(&history, &Allowance::of(bucket())).unwrap();
    let speed = availability(&with_fallback_answers(&history), DEADLINE + SLACK).unwrap();
    ScenarioOutcome::of("S-08 lost replies")
        .worst(&worst)
        .lost(
            (history.count(RecordedVerdict::Lost) + history.count(RecordedVerdict::Failed)) as u64,
        )
        .speed(speed)
        .tell();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s_08_a_connection_that_lost_a_reply_is_found_and_replaced() {
    let _exclusive = exclusive().await;
    let proxied = ProxiedServer::start(&[], seed(8));
    let store = proxied
        .store_with(LONG_TIMEOUT, |options| options.connections = 1)
        .await;
    proxied.prime(&store, "alice").await;
    let connects = proxied.proxy.counters().connects;
    // The reply to the next probe is lost, so every later reply would belong to another call.
    proxied.proxy.lose_replies("PING", 1, AfterRewrite::GoOn);
    wait_until("the connection is replaced", || async {
        proxied.proxy.counters().connects > connects && store.is_connected()
    })
    .await;
    let answer = decide_one(&store, "alice", &limit(), Op::Spend(0))
        .await
        .unwrap();
    assert_eq!(answer.status.remaining, super::BURST - 1);
}
