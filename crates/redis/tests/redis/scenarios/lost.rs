//! S-08: replies that are lost after the command was carried out.

use std::sync::Arc;
use std::time::Duration;

use tollgate_store::{ErrorKind, Op};
use tollgate_testkit::chaos::{Outcome, seed};
use tollgate_testkit::faults::{Ending, Then};
use tollgate_testkit::history::{Allowance, Verdict, availability, bound, spends};

use super::load::Load;
use super::{DEADLINE, Rig, SLACK, bucket, limit, stood_in};
use crate::server_time::{PATIENT, one};
use crate::topology::{alone, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s_08_a_lost_reply_is_charged_exactly_once() {
    let _alone = alone().await;
    let rig = Rig::start(&[], seed(8));
    let store = rig.store(PATIENT).await;
    let primed = rig.prime(&store, "alice").await;
    for (number, ending) in [(1, Ending::Reset), (2, Ending::Close)] {
        rig.proxy.lose_replies("EVALSHA", 1, Then::End(ending));
        let error = one(&store, "alice", &limit(), Op::Spend(1))
            .await
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
        assert!(error.may_have_charged());
        let charged = (rig.state("alice") - primed) / bucket().interval;
        assert_eq!(charged, number, "{ending:?}");
        until("the link recovers", || async {
            one(&store, "alice", &limit(), Op::Spend(0)).await.is_ok()
        })
        .await;
    }
    assert_eq!(rig.proxy.counters().meddled, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s_08_under_load_what_was_lost_is_counted_once_and_never_again() {
    let _alone = alone().await;
    let rig = Rig::start(&[], seed(8));
    let store = Arc::new(rig.store(DEADLINE).await);
    let primed = rig.prime(&store, "alice").await;
    let keys = ["alice"; 6];
    let load = Load::start(&[store], &keys, limit(), Duration::from_millis(2));
    for _ in 0..5 {
        load.go_on(30).await;
        rig.proxy
            .lose_replies("EVALSHA", 1, Then::End(Ending::Reset));
    }
    load.go_on(30).await;
    load.until_answered(60).await;
    let history = load.end().await;
    assert!(history.count(Verdict::Lost) >= 5);
    let moved = rig.state("alice") - primed;
    let spent = spends(&history, "alice", bucket(), moved).unwrap();
    // Every command that the server got is one charge: none was sent a second time.
    assert!(spent.units >= spent.heard + 5, "{spent:?}");
    let calls = rig.proxy.counters().commands("EVALSHA");
    let asked = history.records.len() as u64 + 1;
    assert!(calls <= asked, "{calls} calls for {asked} questions");
    let worst = bound(&history, &Allowance::of(bucket())).unwrap();
    let speed = availability(&stood_in(&history), DEADLINE + SLACK).unwrap();
    Outcome::of("S-08 lost replies")
        .worst(&worst)
        .lost((history.count(Verdict::Lost) + history.count(Verdict::Failed)) as u64)
        .speed(speed)
        .tell();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s_08_a_connection_that_lost_a_reply_in_the_middle_is_found_and_left() {
    let _alone = alone().await;
    let rig = Rig::start(&[], seed(8));
    let store = rig
        .store_with(PATIENT, |options| options.connections = 1)
        .await;
    rig.prime(&store, "alice").await;
    let connects = rig.proxy.counters().connects;
    // The word of the next probe is lost, and every later reply would answer another question.
    rig.proxy.lose_replies("PING", 1, Then::GoOn);
    until("it is made anew", || async {
        rig.proxy.counters().connects > connects && store.is_connected()
    })
    .await;
    let answer = one(&store, "alice", &limit(), Op::Spend(0)).await.unwrap();
    assert_eq!(answer.status.remaining, super::BURST - 1);
}
