//! A pacer at a fixed time, responses, and futures that are polled by hand.
//!
//! Must not know: what a test expects.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use tollgate_core::{Nanos, Timestamp};
use tollgate_http::{RateLimitInfo, ResponseReader};

use crate::{Acquired, Grant, PaceRequest, Pacer, PacerSettings, WaiterId};

pub(super) const NOW: Timestamp = Timestamp::from_secs(1_700_000_000);

pub(super) fn pacer() -> Pacer {
    Pacer::new(fast(), 7)
}

/// Settings with which the first requests do not wait.
pub(super) fn fast() -> PacerSettings {
    PacerSettings::default()
        .with_initial_rate(1_000_000.0)
        .unwrap()
}

pub(super) const fn seconds(count: u64) -> Timestamp {
    NOW.after(Nanos::from_secs(count))
}

pub(super) fn info(fields: &[(&str, &str)]) -> RateLimitInfo {
    let mut reader = ResponseReader::new(NOW);
    for (name, value) in fields {
        reader.field(name, value.as_bytes());
    }
    reader.finish()
}

pub(super) fn request() -> PaceRequest<'static> {
    PaceRequest::new("api.example.com")
}

pub(super) fn granted(pacer: &mut Pacer, request: &PaceRequest<'_>, now: Timestamp) -> Grant {
    match pacer.acquire(request, now) {
        Ok(Acquired::Now(grant)) => grant,
        other => panic!("{other:?}"),
    }
}

pub(super) fn queued(pacer: &mut Pacer, request: &PaceRequest<'_>, now: Timestamp) -> WaiterId {
    match pacer.acquire(request, now) {
        Ok(Acquired::Queued(waiter)) => waiter,
        other => panic!("{other:?}"),
    }
}

/// A pacer whose partition is blocked for so many seconds.
pub(super) fn blocked(wait: &str) -> Pacer {
    let mut pacer = pacer();
    let grant = granted(&mut pacer, &request(), NOW);
    pacer.on_response(grant, 429, &info(&[("retry-after", wait)]), NOW);
    pacer
}

/// The waiters that are granted at `now`, in order.
pub(super) fn due(pacer: &mut Pacer, now: Timestamp) -> Vec<WaiterId> {
    let mut due = Vec::new();
    pacer.grant_due(now, |waiter| due.push(waiter));
    due
}

pub(super) fn poll_once<F: Future + ?Sized>(future: &mut Pin<Box<F>>) -> Poll<F::Output> {
    future
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()))
}
