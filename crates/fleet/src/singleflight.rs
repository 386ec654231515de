//! One caller at a time asks about a key whose denial has just expired.
//!
//! When a denial expires, all clients that it denied retry at once, and all but one would be denied again. So one
//! caller asks the store and the others wait for its reply; most of them then hit the denial cache. A caller waits for
//! at most one call, and does not ask a store that has just failed. Must not know: what is asked, what is cached.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// The number of shards, each with its own lock.
const SHARDS: usize = 16;
/// The most keys in flight per shard. Callers of further keys do not wait for each other.
const MAX_FLIGHTS: usize = 1_024;

/// Calls in flight, by key.
#[derive(Debug)]
pub(crate) struct Singleflight {
    shards: [Shard; SHARDS],
}

type Shard = Mutex<HashMap<u128, Arc<Flight>>>;

/// One call that other callers wait for.
#[derive(Debug, Default)]
struct Flight {
    state: AtomicU8,
    completed: Notify,
}

const PENDING: u8 = 0;
const ANSWERED: u8 = 1;
const FAILED: u8 = 2;

/// What a caller has to do about a key.
pub(crate) enum FlightOutcome<'a> {
    /// Ask the store, and report the result.
    Leader(FlightLeader<'a>),
    /// Another caller got a reply: look into the cache, then ask.
    Answered,
    /// Another caller got no reply.
    Failed,
    /// Ask the store; the table is full.
    NotShared,
}

/// The caller that asks. If it is dropped before completion, the waiting callers ask themselves.
pub(crate) struct FlightLeader<'a> {
    singleflight: &'a Singleflight,
    key: u128,
    flight: Arc<Flight>,
}

impl Default for Singleflight {
    fn default() -> Self {
        Self {
            shards: std::array::from_fn(|_| Mutex::default()),
        }
    }
}

impl Singleflight {
    /// Waits for the call in flight, or becomes its leader.
    pub(crate) async fn join(&self, key: u128) -> FlightOutcome<'_> {
        let flight = {
            let mut shard = self.shard(key);
            match shard.get(&key) {
                Some(flight) => Arc::clone(flight),
                None if shard.len() >= MAX_FLIGHTS => return FlightOutcome::NotShared,
                None => {
                    let flight = Arc::new(Flight {
                        state: AtomicU8::new(PENDING),
                        ..Flight::default()
                    });
                    shard.insert(key, Arc::clone(&flight));
                    return FlightOutcome::Leader(FlightLeader {
                        singleflight: self,
                        key,
                        flight,
                    });
                }
            }
        };
        loop {
            // Registered before the check, so that a completion in between is not missed.
            let completed = flight.completed.notified();
            match flight.state.load(Ordering::Acquire) {
                ANSWERED => return FlightOutcome::Answered,
                FAILED => return FlightOutcome::Failed,
                _ => completed.await,
            }
        }
    }

    fn shard(&self, key: u128) -> MutexGuard<'_, HashMap<u128, Arc<Flight>>> {
        let [first, others @ ..] = &self.shards;
        let index = usize::try_from(key >> 124).unwrap_or(0);
        let shard = match index.checked_sub(1) {
            Some(other) => others.get(other).unwrap_or(first),
            None => first,
        };
        // Entries are inserted and removed whole, so a poisoned lock leaves the map consistent.
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FlightLeader<'_> {
    /// Reports whether the call got a reply.
    pub(crate) fn complete(self, is_answered: bool) {
        let state = if is_answered { ANSWERED } else { FAILED };
        self.flight.state.store(state, Ordering::Release);
    }
}

impl Drop for FlightLeader<'_> {
    fn drop(&mut self) {
        self.singleflight.shard(self.key).remove(&self.key);
        let state = &self.flight.state;
        // Unchanged if the result was reported.
        let _said = state.compare_exchange(PENDING, ANSWERED, Ordering::AcqRel, Ordering::Acquire);
        self.flight.completed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;
    use crate::testing::poll_once;

    fn poll<T>(future: std::pin::Pin<&mut impl Future<Output = T>>) -> Poll<T> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn one_caller_asks_and_the_others_get_its_result() {
        let singleflight = Singleflight::default();
        let Some(FlightOutcome::Leader(leader)) = poll_once(singleflight.join(7)) else {
            panic!("there is no other caller");
        };
        let mut other = pin!(singleflight.join(7));
        assert!(poll(other.as_mut()).is_pending());
        assert!(
            matches!(
                poll_once(singleflight.join(8)),
                Some(FlightOutcome::Leader(_))
            ),
            "another key"
        );
        leader.complete(true);
        assert!(matches!(poll(other), Poll::Ready(FlightOutcome::Answered)));
        assert!(matches!(
            poll_once(singleflight.join(7)),
            Some(FlightOutcome::Leader(_))
        ));
    }

    #[test]
    fn when_the_leader_is_dropped_the_others_stop_waiting() {
        let singleflight = Singleflight::default();
        let leader = poll_once(singleflight.join(7));
        let mut other = pin!(singleflight.join(7));
        assert!(poll(other.as_mut()).is_pending());
        drop(leader);
        assert!(
            matches!(poll(other), Poll::Ready(FlightOutcome::Answered)),
            "the other caller asks itself"
        );
    }

    #[test]
    fn callers_that_waited_for_a_failed_call_do_not_ask() {
        let singleflight = Singleflight::default();
        let Some(FlightOutcome::Leader(leader)) = poll_once(singleflight.join(7)) else {
            panic!("there is no other caller");
        };
        let mut other = pin!(singleflight.join(7));
        assert!(poll(other.as_mut()).is_pending());
        leader.complete(false);
        assert!(matches!(poll(other), Poll::Ready(FlightOutcome::Failed)));
    }

    #[test]
    fn keys_that_do_not_fit_are_not_waited_for() {
        let singleflight = Singleflight::default();
        let first: Vec<_> = (0..=u128::from(1_024_u32))
            .map(|key| poll_once(singleflight.join(key)))
            .collect();
        let alone = first
            .iter()
            .filter(|outcome| matches!(outcome, Some(FlightOutcome::NotShared)))
            .count();
        assert_eq!(alone, 1);
        drop(first);
        assert!(matches!(
            poll_once(singleflight.join(5_000)),
            Some(FlightOutcome::Leader(_))
        ));
    }
}
