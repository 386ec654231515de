//! How long requests that are queued wait: never beyond their deadline or the longest wait, whatever the server says meanwhile.

use std::sync::Arc;
use std::task::Poll;

use tollgate_core::Nanos;
use tollgate_store::shared_quota::{QuotaExchange, QuotaExchangeReply};
use tollgate_store::{ManualClock, SharedQuotaStore, StoreFuture, StoreKey};

use super::support::{NOW, due, fast, granted, info, poll_once, queued, request, seconds};
use crate::shared_quota::StoreLink;
use crate::{PaceError, Pacer, PacerSettings, SharedPacer, WaiterId, WaiterState};

/// A pacer that sends one request per second and waits at most a minute.
fn one_per_second() -> Pacer {
    Pacer::new(PacerSettings::default().with_initial_rate(1.0).unwrap(), 7)
}

fn error(pacer: &mut Pacer, waiter: WaiterId) -> PaceError {
    match pacer.poll(waiter) {
        WaiterState::Failed(error) => error,
        other => panic!("{other:?}"),
    }
}

/// Only requests that came later failed. One that was queued when the server asked for five minutes waited for all of them.
#[test]
fn a_queued_request_fails_as_soon_as_a_block_is_longer_than_the_longest_wait() {
    let mut pacer = one_per_second();
    let grant = granted(&mut pacer, &request(), NOW);
    let waiters = [(); 3].map(|()| queued(&mut pacer, &request(), NOW));
    pacer.on_response(grant, 429, &info(&[("retry-after", "300")]), NOW);
    assert_eq!(due(&mut pacer, NOW), waiters);
    for waiter in waiters {
        let error = error(&mut pacer, waiter);
        let is_right = matches!(error, PaceError::WaitTooLong { wait, max }
            if wait >= Nanos::from_secs(300) && max == Nanos::MINUTE);
        assert!(is_right, "{error}");
    }
    assert_eq!(pacer.waiting(), 0);
}

/// The deadline of a queued request was compared with blocks only. A response without a refusal that moved the turn behind the deadline
/// left the request waiting until its turn, and then it failed.
#[test]
fn a_queued_request_fails_as_soon_as_a_report_passes_its_deadline() {
    let mut pacer = one_per_second();
    let grant = granted(&mut pacer, &request(), NOW);
    let hopeless = queued(&mut pacer, &request().with_deadline(seconds(10)), NOW);
    let other = queued(&mut pacer, &request(), NOW);
    let used_up = [
        ("x-ratelimit-limit", "60"),
        ("x-ratelimit-remaining", "0"),
        ("x-ratelimit-reset", "40"),
    ];
    pacer.on_response(grant, 200, &info(&used_up), NOW);
    assert_eq!(due(&mut pacer, NOW), [hopeless]);
    let error = error(&mut pacer, hopeless);
    let is_right =
        matches!(error, PaceError::DeadlineTooClose { wait } if wait >= Nanos::from_secs(40));
    assert!(is_right, "{error}");
    assert!(matches!(pacer.poll(other), WaiterState::Waiting));
}

/// The pacer looked at the deadline of a request only when its turn came. Behind others it waited beyond its deadline.
#[test]
fn a_queued_request_fails_at_its_deadline_wherever_it_is_in_the_queue() {
    let mut pacer = one_per_second();
    let grant = granted(&mut pacer, &request(), NOW);
    let first = queued(&mut pacer, &request(), NOW);
    let late = queued(&mut pacer, &request().with_deadline(seconds(10)), NOW);
    let last = queued(&mut pacer, &request(), NOW);
    // Nothing is known any more: one request has to succeed first.
    pacer.on_failure(grant, NOW);
    assert_eq!(due(&mut pacer, seconds(3)), [first]);
    let deadline = seconds(10);
    assert_eq!(
        pacer.next_wakeup(seconds(3)),
        Some(deadline.after(Nanos::from_nanos(1)))
    );
    assert!(due(&mut pacer, deadline).is_empty());
    assert_eq!(due(&mut pacer, seconds(11)), [late]);
    assert!(matches!(
        error(&mut pacer, late),
        PaceError::DeadlineTooClose { .. }
    ));
    // The others go on waiting, and not for ever.
    assert!(due(&mut pacer, seconds(60)).is_empty());
    assert_eq!(due(&mut pacer, seconds(61)), [last]);
    assert!(matches!(
        error(&mut pacer, last),
        PaceError::WaitTooLong { .. }
    ));
    assert_eq!(pacer.next_wakeup(seconds(61)), None);
}

/// The backoff after a failed connection was compared with no deadline.
#[test]
fn a_queued_request_fails_as_soon_as_a_backoff_passes_its_deadline() {
    let mut pacer = Pacer::new(fast(), 7);
    let grant = granted(&mut pacer, &request(), NOW);
    pacer.on_failure(grant, NOW);
    // One request looks whether the server is back. Nobody knows how long the next one waits.
    let grant = granted(&mut pacer, &request(), seconds(1));
    let soon = seconds(1).after(Nanos::from_millis(1));
    let waiter = queued(&mut pacer, &request().with_deadline(soon), seconds(1));
    pacer.on_failure(grant, seconds(1));
    assert_eq!(due(&mut pacer, seconds(1)), [waiter]);
    let error = error(&mut pacer, waiter);
    assert!(
        matches!(error, PaceError::DeadlineTooClose { .. }),
        "{error}"
    );
}

/// A store in which other processes always take the quota first.
#[derive(Debug)]
struct CrowdedStore;

impl SharedQuotaStore for CrowdedStore {
    fn exchange<'a>(
        &'a self,
        _partition: StoreKey<'a>,
        _exchange: &'a QuotaExchange,
    ) -> StoreFuture<'a, QuotaExchangeReply> {
        let reply = QuotaExchangeReply {
            wait: Nanos::from_secs(25),
            may_retry: true,
            counts: Vec::new(),
        };
        Box::pin(std::future::ready(Ok(reply)))
    }

    fn digest(&self, _credentials: StoreKey<'_>) -> u64 {
        0
    }
}

/// Each turn that a request gave back began a new wait of at most a minute, so that it could wait for ever.
#[test]
fn a_request_that_gives_its_turn_back_again_and_again_fails_after_the_longest_wait() {
    let clock = Arc::new(ManualClock::at(NOW));
    let link = StoreLink::new(Arc::new(CrowdedStore));
    let pacer = SharedPacer::build(fast(), Arc::clone(&clock), Some(link));
    let request = request();
    let mut acquired = Box::pin(pacer.acquire_shared(&request));
    // A third wait would end after 75 s, so it is not begun.
    for _ in 0..2 {
        assert!(poll_once(&mut acquired).is_pending());
        clock.advance(Nanos::from_secs(25));
        pacer.tick();
    }
    let Poll::Ready(Err(error)) = poll_once(&mut acquired) else {
        panic!("it still waits")
    };
    assert!(matches!(error, PaceError::WaitTooLong { .. }), "{error}");
}

/// A cache may answer with a refusal that it has kept. It says nothing about the limits now, but the same is answered until it is fresh again.
#[test]
fn a_refusal_of_a_cache_is_waited_for_and_slows_nothing_down() {
    let rate = |pacer: &Pacer| pacer.status(NOW).next().unwrap().rate;
    for (status, fields) in [
        (503, &[("retry-after", "30"), ("age", "7")][..]),
        (
            429,
            &[
                ("retry-after", "30"),
                ("age", "7"),
                ("x-ratelimit-remaining", "0"),
            ],
        ),
    ] {
        let mut pacer = Pacer::new(fast(), 7);
        let grant = granted(&mut pacer, &request(), NOW);
        let before = rate(&pacer);
        let refusal = pacer.on_response(grant, status, &info(fields), NOW);
        assert!(refusal.is_some(), "{status}");
        let waiter = queued(&mut pacer, &request(), NOW);
        assert!(due(&mut pacer, seconds(29)).is_empty(), "{status}");
        assert_eq!(due(&mut pacer, seconds(31)), [waiter], "{status}");
        assert!((rate(&pacer) - before).abs() < 1e-9, "{status}");
    }
    // Without a wait, the client backs off.
    let mut pacer = Pacer::new(fast(), 7);
    let grant = granted(&mut pacer, &request(), NOW);
    pacer.on_response(grant, 503, &info(&[("age", "7")]), NOW);
    assert!(pacer.status(NOW).next().unwrap().blocked_until.is_some());
}
