//! `wait`, with a sleeper that advances the clock.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tollgate::{LeakyBucket, Limiter, ManualClock, Rate};

use crate::{clock, denied, secs};

type RecordedSleeps = Arc<Mutex<Vec<Duration>>>;

/// A sleeper that advances the clock, and the durations that it was called with.
fn sleeper(clock: &Arc<ManualClock>) -> (impl Fn(Duration) + Send + Sync + use<>, RecordedSleeps) {
    let (clock, sleeps) = (Arc::clone(clock), RecordedSleeps::default());
    let taken = Arc::clone(&sleeps);
    let sleep = move |time: Duration| {
        taken.lock().unwrap().push(time);
        clock.advance(time.into());
    };
    (sleep, sleeps)
}

#[test]
fn wait_sleeps_exactly_as_long_as_needed() {
    let clock = clock();
    let (sleep, sleeps) = sleeper(&clock);
    let limiter = Limiter::per_second(10)
        .burst(2)
        .clock(clock)
        .sleeper(sleep)
        .build()
        .unwrap();
    for _ in 0..5 {
        limiter.wait("jobs", secs(1)).unwrap();
    }
    limiter.wait_n("jobs", 2, secs(1)).unwrap();
    let expected = [100, 100, 100, 200].map(Duration::from_millis);
    assert_eq!(*sleeps.lock().unwrap(), expected);
}

#[test]
fn a_wait_that_would_be_too_long_is_refused_at_once_and_charges_nothing() {
    let clock = clock();
    let (sleep, sleeps) = sleeper(&clock);
    let builder = Limiter::per_second(1).clock(Arc::clone(&clock));
    let limiter = builder.sleeper(sleep).build().unwrap();
    limiter.check("jobs").unwrap();
    let denied_at_once = denied(limiter.wait("jobs", Duration::from_nanos(999_999_999)));
    assert_eq!(denied_at_once.retry_after(), Some(secs(1)));
    assert!(denied(limiter.wait_n("jobs", 2, secs(1_000))).is_never());
    assert!(sleeps.lock().unwrap().is_empty());
    limiter.wait("jobs", secs(1)).unwrap();
}

#[test]
fn the_maximum_covers_all_sleeps_together() {
    let clock = clock();
    let sleeps = RecordedSleeps::default();
    // Another caller takes the unit during every sleep.
    let rival: Arc<Mutex<Option<Limiter<Arc<ManualClock>>>>> = Arc::default();
    let sleep = {
        let (clock, sleeps, rival) = (Arc::clone(&clock), Arc::clone(&sleeps), Arc::clone(&rival));
        move |time: Duration| {
            sleeps.lock().unwrap().push(time);
            clock.advance(time.into());
            rival
                .lock()
                .unwrap()
                .as_ref()
                .unwrap()
                .check("jobs")
                .unwrap();
        }
    };
    let limiter = Limiter::per_second(1)
        .clock(clock)
        .sleeper(sleep)
        .build()
        .unwrap();
    *rival.lock().unwrap() = Some(limiter.clone());
    limiter.check("jobs").unwrap();
    assert_eq!(
        denied(limiter.wait("jobs", Duration::from_millis(3_500))).retry_after(),
        Some(secs(1))
    );
    assert_eq!(*sleeps.lock().unwrap(), [secs(1); 3]);
    *rival.lock().unwrap() = None;
}

#[test]
fn jitter_lengthens_a_wait_but_not_beyond_the_maximum() {
    let clock = clock();
    let (sleep, sleeps) = sleeper(&clock);
    let limiter = Limiter::per_second(1)
        .jitter(secs(60))
        .clock(clock)
        .sleeper(sleep);
    let limiter = limiter.build().unwrap();
    for _ in 0..50 {
        while limiter.check("jobs").is_ok() {}
        limiter.wait("jobs", secs(2)).unwrap();
    }
    let sleeps = sleeps.lock().unwrap();
    assert!(
        sleeps.iter().all(|nap| (secs(1)..=secs(2)).contains(nap)),
        "{sleeps:?}"
    );
    assert!(sleeps.iter().any(|nap| *nap > secs(1)));
}

#[test]
fn a_slot_in_a_queue_is_waited_for_or_released() {
    let clock = clock();
    let (sleep, sleeps) = sleeper(&clock);
    let queue = LeakyBucket::queue(Rate::per_second(1)).burst(5);
    let limiter = Limiter::builder().limit("queue", queue);
    let limiter = limiter
        .clock(Arc::clone(&clock))
        .sleeper(sleep)
        .build()
        .unwrap();
    limiter.wait("jobs", secs(0)).unwrap();
    assert_eq!(
        denied(limiter.wait("jobs", Duration::from_millis(999))).limit(),
        "queue"
    );
    limiter.wait("jobs", secs(1)).unwrap();
    assert_eq!(*sleeps.lock().unwrap(), [secs(1)]);
}
