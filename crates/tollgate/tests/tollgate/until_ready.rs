//! `until_ready`, with tokio's paused time.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use tollgate::{Clock, Error, LeakyBucket, Limiter, Rate, Timestamp};

use crate::{denied, secs};

/// Tokio's clock as the clock of a limiter, so that both are paused and advance together.
struct TokioClock(Instant);

impl TokioClock {
    fn start() -> Self {
        Self(Instant::now())
    }
}

impl Clock for TokioClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_secs(1_700_000_000).after(self.0.elapsed().into())
    }
}

fn a_second_each() -> Limiter<TokioClock> {
    Limiter::per_second(1)
        .clock(TokioClock::start())
        .build()
        .unwrap()
}

/// The duration of a future in milliseconds of paused time.
async fn took<T>(work: impl Future<Output = T>) -> (T, u128) {
    let began = Instant::now();
    let done = work.await;
    (done, began.elapsed().as_millis())
}

#[tokio::test(start_paused = true)]
async fn it_waits_until_the_units_are_available() {
    let limiter = Limiter::per_second(10)
        .burst(4)
        .clock(TokioClock::start())
        .build()
        .unwrap();
    assert_eq!(took(limiter.until_ready_n("a", 4)).await.1, 0);
    assert_eq!(took(limiter.until_ready("a")).await.1, 100);
    assert_eq!(took(limiter.until_ready_n("a", 3)).await.1, 300);
    assert!(denied(limiter.until_ready_n("a", 5).await).is_never());
}

#[tokio::test(start_paused = true)]
async fn waiters_of_one_key_are_admitted_in_order() {
    let limiter = a_second_each();
    limiter.check("a").unwrap();
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = JoinSet::new();
    for number in 0..20 {
        let (limiter, order) = (limiter.clone(), Arc::clone(&order));
        tasks.spawn(async move {
            limiter.until_ready("a").await.unwrap();
            order
                .lock()
                .unwrap()
                .push((number, limiter.peek("a").unwrap().tightest().remaining));
        });
        tokio::task::yield_now().await;
    }
    let ((), time) = took(async { while tasks.join_next().await.is_some() {} }).await;
    assert_eq!(time, 20_000);
    let expected: Vec<_> = (0..20).map(|number| (number, 0)).collect();
    assert_eq!(*order.lock().unwrap(), expected);
}

#[tokio::test(start_paused = true)]
async fn a_large_cost_is_not_overtaken_by_small_ones() {
    let limiter = Limiter::per_second(1)
        .burst(5)
        .clock(TokioClock::start())
        .build()
        .unwrap();
    limiter.check_n("a", 5).unwrap();
    let mut large = Box::pin(limiter.until_ready_n("a", 5));
    assert!(timeout(secs(2), &mut large).await.is_err());
    let mut small = Box::pin(limiter.until_ready("a"));
    assert!(
        timeout(secs(2), &mut small).await.is_err(),
        "two units are available, but the first waiter needs more"
    );
    assert_eq!(took(large).await.1, 1_000);
    assert_eq!(took(small).await.1, 1_000);
}

#[tokio::test(start_paused = true)]
async fn waiters_of_other_keys_are_not_delayed() {
    let limiter = a_second_each();
    limiter.check("a").unwrap();
    let mut slow = Box::pin(limiter.until_ready("a"));
    assert!(timeout(Duration::ZERO, &mut slow).await.is_err());
    assert_eq!(took(limiter.until_ready("b")).await.1, 0);
}

#[tokio::test(start_paused = true)]
async fn dropping_a_wait_charges_nothing_and_lets_the_next_waiter_proceed() {
    for timeout_ms in [0, 1, 500, 999, 1_000, 1_500] {
        let limiter = a_second_each();
        limiter.check("a").unwrap();
        let mut first = Some(Box::pin(limiter.until_ready("a")));
        let mut second = Some(Box::pin(limiter.until_ready("a")));
        assert!(
            timeout(Duration::ZERO, first.as_mut().unwrap())
                .await
                .is_err()
        );
        assert!(
            timeout(Duration::ZERO, second.as_mut().unwrap())
                .await
                .is_err()
        );
        tokio::time::advance(Duration::from_millis(timeout_ms)).await;
        // The first and the second waiter are dropped before they are admitted.
        drop(if timeout_ms % 2 == 0 {
            first.take()
        } else {
            second.take()
        });
        let next = first.or(second).unwrap();
        let began = Instant::now();
        next.await.unwrap();
        let rest = u128::from(1_000_u64.saturating_sub(timeout_ms));
        assert!(
            began.elapsed().as_millis() <= rest + 1,
            "after {timeout_ms} ms"
        );
        let left = denied(limiter.check("a")).retry_after().unwrap();
        assert!(
            left > Duration::from_millis(997),
            "exactly one unit was charged: {left:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_slot_in_a_queue_is_released() {
    let queue = LeakyBucket::queue(Rate::per_second(1)).burst(5);
    let builder = Limiter::builder().limit("queue", queue);
    let limiter = builder.clock(TokioClock::start()).build().unwrap();
    assert_eq!(took(limiter.until_ready("a")).await.1, 0);
    for _ in 0..10 {
        assert!(
            timeout(Duration::from_millis(1), limiter.until_ready("a"))
                .await
                .is_err()
        );
    }
    let (admission, time) = took(limiter.until_ready("a")).await;
    assert!(
        admission.is_ok() && time <= 1_000,
        "{time} ms: the queue is empty"
    );
}

#[tokio::test(start_paused = true)]
async fn too_many_waiters_get_an_error_and_leaving_makes_room() {
    let builder = Limiter::per_second(1).max_waiting(2);
    let limiter = builder.clock(TokioClock::start()).build().unwrap();
    limiter.check("a").unwrap();
    let mut first = Box::pin(limiter.until_ready("a"));
    let mut second = Box::pin(limiter.until_ready("a"));
    assert!(timeout(Duration::ZERO, &mut first).await.is_err());
    assert!(timeout(Duration::ZERO, &mut second).await.is_err());
    let third = limiter.until_ready("b").await.unwrap_err();
    assert_eq!(third, Error::TooManyWaiting { most: 2 });
    assert_eq!(
        third.to_string(),
        "too many callers are waiting: at most 2 may"
    );
    drop(first);
    assert!(limiter.until_ready("b").await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn jitter_delays_waiters() {
    let builder = Limiter::per_second(1).jitter(secs(10));
    let limiter = builder.clock(TokioClock::start()).build().unwrap();
    limiter.check("a").unwrap();
    let (admission, time) = took(limiter.until_ready("a")).await;
    assert!(
        admission.is_ok() && (1_000..=11_001).contains(&time),
        "{time} ms"
    );
}
