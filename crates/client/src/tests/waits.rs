//! How long requests that are queued wait: never beyond their deadline or the longest wait, whatever the server says meanwhile.

use tollgate_core::Nanos;

use super::support::{NOW, due, granted, info, queued, request, seconds};
use crate::{PaceError, Pacer, PacerSettings, WaiterId, WaiterState};

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
