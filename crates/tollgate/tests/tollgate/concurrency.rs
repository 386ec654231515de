//! Permits: as many as there are places, and given back whatever happens.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tollgate::{ConcurrencyLimiter, Error, InvalidLimiter, Nanos};

use crate::{clock, denied, secs};

#[test]
fn a_place_is_free_again_when_its_permit_is_dropped() {
    let gate = ConcurrencyLimiter::builder(3)
        .clock(clock())
        .build()
        .unwrap();
    let two = gate.acquire_n("a", 2).unwrap();
    let one = gate.acquire("a").unwrap();
    assert_eq!(
        (gate.available_permits("a"), gate.available_permits("b")),
        (Ok(0), Ok(3))
    );
    let full = denied(gate.acquire("a"));
    assert_eq!(
        (full.limit(), full.retry_after(), full.is_never()),
        ("concurrency", None, false)
    );
    assert_eq!(full.reset_after(), None);
    let text = "limit \"concurrency\" has no room for 1 now: retry when somebody has left";
    assert_eq!(full.to_string(), text);
    drop(two);
    assert_eq!(gate.available_permits("a"), Ok(2));
    drop(one);
    assert_eq!(gate.available_permits("a"), Ok(3));
    assert!(denied(gate.acquire_n("a", 4)).is_never());
}

#[test]
fn without_leases_a_permit_is_held_however_long_it_takes() {
    let clock = clock();
    let gate = ConcurrencyLimiter::builder(1)
        .clock(Arc::clone(&clock))
        .build()
        .unwrap();
    let permit = gate.acquire("a").unwrap();
    clock.advance(Nanos::YEAR);
    assert!(gate.acquire("a").is_err());
    assert_eq!(permit.renew(), Ok(true));
}

#[test]
fn a_lease_ends_by_itself_unless_it_is_renewed() {
    let clock = clock();
    let gate = ConcurrencyLimiter::builder(1)
        .lease(secs(30))
        .clock(Arc::clone(&clock))
        .build()
        .unwrap();
    let slow = gate.acquire("a").unwrap();
    clock.advance(Nanos::from_secs(20));
    assert_eq!(slow.renew(), Ok(true));
    assert_eq!(denied(gate.acquire("a")).retry_after(), Some(secs(30)));
    clock.advance(Nanos::from_secs(30));
    let next = gate.acquire("a").unwrap();
    assert_eq!(slow.renew(), Ok(false));
    drop(slow);
    assert!(
        gate.acquire("a").is_err(),
        "a late permit gives back nobody else's place"
    );
    drop(next);
    assert!(gate.acquire("a").is_ok());
}

#[test]
fn a_panic_gives_the_place_back() {
    let gate = ConcurrencyLimiter::builder(1)
        .clock(clock())
        .build()
        .unwrap();
    let work = || {
        let _permit = gate.acquire("a").unwrap();
        panic!("the work failed");
    };
    assert!(catch_unwind(AssertUnwindSafe(work)).is_err());
    assert_eq!(gate.available_permits("a"), Ok(1));
}

#[test]
fn never_more_inside_than_there_are_places() {
    let gate = ConcurrencyLimiter::builder(3)
        .clock(clock())
        .build()
        .unwrap();
    let (inside, most, entered) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                for _ in 0..2_000 {
                    let Ok(_permit) = gate.acquire("a") else {
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
    assert_eq!(gate.available_permits("a"), Ok(3));
}

#[test]
fn gates_that_make_no_sense_cannot_be_built() {
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
