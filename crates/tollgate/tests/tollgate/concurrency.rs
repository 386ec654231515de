//! The concurrency limiter: permits are bounded and released in every case.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tollgate::{ConcurrencyLimiter, Error, InvalidLimiter, Nanos};

use crate::{clock, denied, secs};

#[test]
fn a_dropped_permit_is_released() {
    let limiter = ConcurrencyLimiter::builder(3)
        .clock(clock())
        .build()
        .unwrap();
    let two = limiter.acquire_n("a", 2).unwrap();
    let one = limiter.acquire("a").unwrap();
    assert_eq!(
        (
            limiter.available_permits("a"),
            limiter.available_permits("b")
        ),
        (Ok(0), Ok(3))
    );
    let full = denied(limiter.acquire("a"));
    assert_eq!(
        (full.limit(), full.retry_after(), full.is_never()),
        ("concurrency", None, false)
    );
    assert_eq!(full.reset_after(), None);
    let text = "limit \"concurrency\" has no room for 1 now: retry when a permit is released";
    assert_eq!(full.to_string(), text);
    drop(two);
    assert_eq!(limiter.available_permits("a"), Ok(2));
    drop(one);
    assert_eq!(limiter.available_permits("a"), Ok(3));
    assert!(denied(limiter.acquire_n("a", 4)).is_never());
}

#[test]
fn without_a_lease_a_permit_never_expires() {
    let clock = clock();
    let limiter = ConcurrencyLimiter::builder(1)
        .clock(Arc::clone(&clock))
        .build()
        .unwrap();
    let permit = limiter.acquire("a").unwrap();
    clock.advance(Nanos::YEAR);
    assert!(limiter.acquire("a").is_err());
    assert_eq!(permit.renew(), Ok(true));
}

#[test]
fn a_lease_expires_unless_it_is_renewed() {
    let clock = clock();
    let limiter = ConcurrencyLimiter::builder(1)
        .lease(secs(30))
        .clock(Arc::clone(&clock))
        .build()
        .unwrap();
    let slow = limiter.acquire("a").unwrap();
    clock.advance(Nanos::from_secs(20));
    assert_eq!(slow.renew(), Ok(true));
    assert_eq!(denied(limiter.acquire("a")).retry_after(), Some(secs(30)));
    clock.advance(Nanos::from_secs(30));
    let next = limiter.acquire("a").unwrap();
    assert_eq!(slow.renew(), Ok(false));
    drop(slow);
    assert!(
        limiter.acquire("a").is_err(),
        "an expired permit does not release the permit of another caller"
    );
    drop(next);
    assert!(limiter.acquire("a").is_ok());
}

#[test]
fn a_panic_releases_the_permit() {
    let limiter = ConcurrencyLimiter::builder(1)
        .clock(clock())
        .build()
        .unwrap();
    let work = || {
        let _permit = limiter.acquire("a").unwrap();
        panic!("the work failed");
    };
    assert!(catch_unwind(AssertUnwindSafe(work)).is_err());
    assert_eq!(limiter.available_permits("a"), Ok(1));
}

#[test]
fn concurrent_threads_never_hold_more_than_the_limit() {
    let limiter = ConcurrencyLimiter::builder(3)
        .clock(clock())
        .build()
        .unwrap();
    let (inside, most, entered) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                for _ in 0..2_000 {
                    let Ok(_permit) = limiter.acquire("a") else {
                        continue;
                    };
                    let now = inside.fetch_add(1, Ordering::SeqCst) + 1;
                    most.fetch_max(now, Ordering::SeqCst);
                    entered.fetch_add(1, Ordering::SeqCst);
                    inside.fetch_sub(1, Ordering::SeqCst);
                }
            });
        }
    });
    assert!(most.load(Ordering::SeqCst) <= 3);
    assert!(entered.load(Ordering::SeqCst) > 0);
    assert_eq!(limiter.available_permits("a"), Ok(3));
}

#[test]
fn invalid_settings_cannot_be_built() {
    let error =
        |result: Result<ConcurrencyLimiter, InvalidLimiter>| result.unwrap_err().to_string();
    let text = "limit \"concurrency\": concurrency: 65537 is not valid: it is too large; the nearest valid value is 65536";
    assert_eq!(error(ConcurrencyLimiter::builder(65_537).build()), text);
    assert!(
        error(ConcurrencyLimiter::builder(1).lease(secs(0)).build())
            .contains("lease: 0 is not valid")
    );
    assert!(error(ConcurrencyLimiter::builder(1).keys(0).build()).contains("keys: 0"));
    let shut = ConcurrencyLimiter::builder(0)
        .clock(clock())
        .build()
        .unwrap();
    assert!(denied(shut.acquire("a")).is_never());
    assert!(matches!(
        shut.acquire([0; 2_000]),
        Err(Error::KeyTooLong(_))
    ));
}
