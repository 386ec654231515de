//! One at a time asks about a key that was denied a moment ago.
//!
//! When a denial is over, everybody who was told so comes back at once, and all but one would be denied again. So one asks
//! and the others see what came of it: most are then answered from what is remembered. Nobody waits for more than one
//! call, and nobody who waited for one that failed makes one too. Must not know: what is asked, what is remembered.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// Keys are divided among so many locks.
const SHARDS: usize = 16;
/// The most keys of each that can be under way; further ones are not waited for.
const MAX_FLIGHTS: usize = 1_024;

/// Calls under way, by key.
#[derive(Debug)]
pub(crate) struct Singleflight {
    shards: [Shard; SHARDS],
}

type Shard = Mutex<HashMap<u128, Arc<Flight>>>;

/// One call that others wait for.
#[derive(Debug, Default)]
struct Flight {
    state: AtomicU8,
    completed: Notify,
}

const PENDING: u8 = 0;
const ANSWERED: u8 = 1;
const FAILED: u8 = 2;

/// What somebody has to do who wants to ask about a key.
pub(crate) enum FlightOutcome<'a> {
    /// Ask, and say what came of it.
    Leader(FlightLeader<'a>),
    /// Somebody has asked meanwhile: look at what is known now, then go on.
    Answered,
    /// Somebody has asked meanwhile and was not answered.
    Failed,
    /// Ask; there is no room to wait in.
    NotShared,
}

/// Whoever asks first. If it is dropped without a word, because nobody wants the answer any more, the others ask for
/// themselves.
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
    /// Waits for whoever asks about this key already, or is the one who does.
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
            // Registered before looking, so that a landing in between is not missed.
            let landed = flight.completed.notified();
            match flight.state.load(Ordering::Acquire) {
                ANSWERED => return FlightOutcome::Answered,
                FAILED => return FlightOutcome::Failed,
                _ => landed.await,
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
        // Entries are put in and taken out whole.
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FlightLeader<'_> {
    /// Says whether the call was answered.
    pub(crate) fn complete(self, is_answered: bool) {
        let state = if is_answered { ANSWERED } else { FAILED };
        self.flight.state.store(state, Ordering::Release);
    }
}

impl Drop for FlightLeader<'_> {
    fn drop(&mut self) {
        self.singleflight.shard(self.key).remove(&self.key);
        let state = &self.flight.state;
        // It stays as it is if something was said.
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
    fn one_asks_and_the_others_hear_what_came_of_it() {
        let singleflight = Singleflight::default();
        let Some(FlightOutcome::Leader(leading)) = poll_once(singleflight.join(7)) else {
            panic!("nobody else asks");
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
        leading.complete(true);
        assert!(matches!(poll(other), Poll::Ready(FlightOutcome::Answered)));
        assert!(matches!(
            poll_once(singleflight.join(7)),
            Some(FlightOutcome::Leader(_))
        ));
    }

    #[test]
    fn whoever_gives_up_lets_nobody_wait_for_ever() {
        let singleflight = Singleflight::default();
        let leading = poll_once(singleflight.join(7));
        let mut other = pin!(singleflight.join(7));
        assert!(poll(other.as_mut()).is_pending());
        drop(leading);
        assert!(
            matches!(poll(other), Poll::Ready(FlightOutcome::Answered)),
            "it asks for itself"
        );
    }

    #[test]
    fn whoever_waited_for_a_call_that_failed_makes_none() {
        let singleflight = Singleflight::default();
        let Some(FlightOutcome::Leader(leading)) = poll_once(singleflight.join(7)) else {
            panic!("nobody else asks");
        };
        let mut other = pin!(singleflight.join(7));
        assert!(poll(other.as_mut()).is_pending());
        leading.complete(false);
        assert!(matches!(poll(other), Poll::Ready(FlightOutcome::Failed)));
    }

    #[test]
    fn keys_that_there_is_no_room_for_are_not_waited_for() {
        let singleflight = Singleflight::default();
        let first: Vec<_> = (0..=u128::from(1_024_u32))
            .map(|key| poll_once(singleflight.join(key)))
            .collect();
        let alone = first
            .iter()
            .filter(|turn| matches!(turn, Some(FlightOutcome::NotShared)))
            .count();
        assert_eq!(alone, 1);
        drop(first);
        assert!(matches!(
            poll_once(singleflight.join(5_000)),
            Some(FlightOutcome::Leader(_))
        ));
    }
}
