//! Permits over leases: released, dropped, renewed, lost.

use std::time::Duration;

use tollgate::ConcurrencyLimiter;
use tollgate::redis::Redis;

use super::{LONG, another, eventually, server};
use crate::{denied, secs};

fn gate(redis: &Redis, lease: Duration) -> tollgate::redis::ConcurrencyLimiter {
    let gate = ConcurrencyLimiter::builder(2)
        .lease(lease)
        .with_redis(redis);
    gate.build().unwrap()
}

#[tokio::test]
async fn places_are_shared_by_processes_and_come_back() {
    let (server, redis) = server().await;
    let elsewhere = another(&server).await;
    let (ours, theirs) = (gate(&redis, secs(3_600)), gate(&elsewhere, secs(3_600)));
    let first = ours.acquire("a").await.unwrap();
    let second = theirs.acquire("a").await.unwrap();
    let refused = denied(ours.acquire("a").await);
    assert_eq!((refused.limit(), refused.max_cost()), ("concurrency", 2));
    assert!(refused.retry_after().unwrap() > secs(3_500));
    assert!(denied(ours.acquire_n("a", 3).await).is_never());
    assert_eq!(ours.available_permits("a").await.unwrap(), 0);
    assert_eq!(ours.available_permits("b").await.unwrap(), 2);

    assert!(first.renew().await.unwrap());
    first.release().await.unwrap();
    assert_eq!(theirs.available_permits("a").await.unwrap(), 1);
    drop(second);
    eventually(async || ours.available_permits("a").await.unwrap() == 2).await;
    assert_eq!(
        (redis.failed_releases(), elsewhere.failed_releases()),
        (0, 0)
    );
}

#[tokio::test]
async fn a_lease_that_has_ended_is_not_renewed() {
    let (_server, redis) = server().await;
    let gate = gate(&redis, Duration::from_millis(50));
    let permit = gate.acquire("a").await.unwrap();
    eventually(async || gate.available_permits("a").await.unwrap() == 2).await;
    assert!(!permit.renew().await.unwrap());
    permit.release().await.unwrap();
    assert_eq!(gate.available_permits("a").await.unwrap(), 2);
}

#[tokio::test]
async fn a_cancelled_acquire_keeps_no_permit() {
    let (_server, redis) = server().await;
    let gate = gate(&redis, secs(3_600));
    for _caller in 0..20 {
        let mut entering = Box::pin(gate.acquire("a"));
        // Polled once, so that the call is on its way, and dropped.
        std::future::poll_fn(|context| {
            let _unfinished = entering.as_mut().poll(context).is_pending();
            std::task::Poll::Ready(())
        })
        .await;
    }
    eventually(async || gate.available_permits("a").await.unwrap() == 2).await;
}

#[tokio::test]
async fn a_permit_that_cannot_be_given_back_is_counted() {
    let (server, redis) = server().await;
    let gate = gate(&redis, secs(3_600));
    let permit = gate.acquire("a").await.unwrap();
    drop(server);
    drop(permit);
    tokio::time::timeout(LONG, async {
        while redis.failed_releases() == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await
    .unwrap();
}
