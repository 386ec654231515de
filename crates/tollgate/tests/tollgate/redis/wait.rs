//! `wait` and `until_ready` over Redis.

use std::time::Duration;

use tollgate::{LeakyBucket, Limiter, Rate};

use super::{LONG, eventually, server};
use crate::{denied, secs};

#[tokio::test]
async fn a_maximum_that_is_too_short_is_refused_at_once() {
    let (_server, redis) = server().await;
    let hour = Limiter::per_hour(1).with_redis(&redis).build().unwrap();
    hour.wait("a", secs(0)).await.unwrap();
    let refused = denied(hour.wait("a", secs(60)).await);
    assert!(refused.retry_after().unwrap() > secs(3_500));
    assert!(denied(hour.wait_n("a", 2, LONG).await).is_never());
    assert!(denied(hour.until_ready_n("a", 2).await).is_never());
}

#[tokio::test]
async fn a_waiter_is_admitted_when_a_unit_is_available() {
    let (_server, redis) = server().await;
    let limiter = Limiter::per_second(100).burst(1).with_redis(&redis);
    let limiter = limiter.build().unwrap();
    for _call in 0..3 {
        limiter.wait("a", LONG).await.unwrap();
        limiter.until_ready("a").await.unwrap();
    }
}

#[tokio::test]
async fn waiters_of_one_process_are_admitted_in_order() {
    let (_server, redis) = server().await;
    let limiter = Limiter::per_second(100).burst(1).with_redis(&redis);
    let limiter = limiter.build().unwrap();
    let order = std::sync::Mutex::new(Vec::new());
    let caller = async |n: u32| {
        limiter.until_ready("a").await.unwrap();
        order.lock().unwrap().push(n);
    };
    tokio::join!(caller(0), caller(1), caller(2), caller(3));
    assert_eq!(*order.lock().unwrap(), [0, 1, 2, 3]);
}

#[tokio::test]
async fn a_dropped_waiter_releases_its_slot_in_a_queue() {
    let (_server, redis) = server().await;
    let queue = LeakyBucket::queue(Rate::per_hour(60)).burst(3);
    let limiter = Limiter::builder().limit("queue", queue).with_redis(&redis);
    let limiter = limiter.build().unwrap();
    let left = async || limiter.peek("a").await.unwrap().tightest().remaining;
    limiter.spend("a", 1).await.unwrap();
    let before = left().await;

    assert!(denied(limiter.check("a").await).retry_after() > Some(secs(50)));
    assert_eq!(left().await, before, "now means now");
    denied(limiter.wait("a", secs(1)).await);
    assert_eq!(left().await, before, "a second is too short");

    let waiting = limiter.wait("a", secs(3_600));
    let is_taken = eventually(async || left().await < before);
    // The waiter is polled first, so it has received its reply before the status call returns. If it were dropped during its
    // call, it would keep the slot.
    tokio::select! {
        biased;
        answer = waiting => panic!("a minute has not passed: {answer:?}"),
        () = is_taken => {}
    }
    eventually(async || left().await == before).await;
}

#[tokio::test]
async fn jitter_and_max_waiting_are_kept() {
    let (_server, redis) = server().await;
    let limiter = Limiter::per_second(1_000)
        .jitter(Duration::from_millis(1))
        .max_waiting(0)
        .with_redis(&redis)
        .build()
        .unwrap();
    let answer = limiter.until_ready("a").await;
    assert!(
        matches!(answer, Err(tollgate::Error::TooManyWaiting { most: 0 })),
        "{answer:?}"
    );
    limiter.wait("a", LONG).await.unwrap();
}
