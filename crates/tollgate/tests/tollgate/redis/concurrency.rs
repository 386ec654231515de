//! The concurrency limiter over Redis: release, drop, renew, expire.

use std::time::Duration;

use tollgate::ConcurrencyLimiter;
use tollgate::redis::Redis;

use super::{LONG, another, eventually, server};
use crate::{denied, secs};

fn limiter(redis: &Redis, lease: Duration) -> tollgate::redis::ConcurrencyLimiter {
    let limiter = ConcurrencyLimiter::builder(2)
        .lease(lease)
        .with_redis(redis);
    limiter.build().unwrap()
}

#[tokio::test]
async fn permits_are_shared_by_processes_and_released() {
    let (server, redis) = server().await;
    let elsewhere = another(&server).await;
    let (ours, theirs) = (
        limiter(&redis, secs(3_600)),
        limiter(&elsewhere, secs(3_600)),
    );
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
async fn an_expired_lease_is_not_renewed() {
    let (_server, redis) = server().await;
    let limiter = limiter(&redis, Duration::from_millis(50));
    let permit = limiter.acquire("a").await.unwrap();
    eventually(async || limiter.available_permits("a").await.unwrap() == 2).await;
    assert!(!permit.renew().await.unwrap());
    permit.release().await.unwrap();
    assert_eq!(limiter.available_permits("a").await.unwrap(), 2);
}

#[tokio::test]
async fn a_cancelled_acquire_holds_no_permit() {
    let (_server, redis) = server().await;
    let limiter = limiter(&redis, secs(3_600));
    for _caller in 0..20 {
        let mut entering = Box::pin(limiter.acquire("a"));
        // Polled once, so that the call is sent, and then dropped.
        std::future::poll_fn(|context| {
            let _unfinished = entering.as_mut().poll(context).is_pending();
            std::task::Poll::Ready(())
        })
        .await;
    }
    eventually(async || limiter.available_permits("a").await.unwrap() == 2).await;
}

#[tokio::test]
async fn a_failed_release_is_counted() {
    let (server, redis) = server().await;
    let limiter = limiter(&redis, secs(3_600));
    let permit = limiter.acquire("a").await.unwrap();
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
