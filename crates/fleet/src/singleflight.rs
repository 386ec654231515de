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
const MOST: usize = 1_024;

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
    landed: Notify,
}

const UNDER_WAY: u8 = 0;
const ANSWERED: u8 = 1;
const FAILED: u8 = 2;

/// What somebody has to do who wants to ask about a key.
pub(crate) enum Turn<'a> {
    /// Ask, and say what came of it.
    First(Leading<'a>),
    /// Somebody has asked meanwhile: look at what is known now, then go on.
    Answered,
    /// Somebody has asked meanwhile and was not answered.
    Failed,
    /// Ask; there is no room to wait in.
    Alone,
}

/// Whoever asks first. If it is dropped without a word, because nobody wants the answer any more, the others ask for
/// themselves.
pub(crate) struct Leading<'a> {
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
    pub(crate) async fn turn(&self, key: u128) -> Turn<'_> {
        let flight = {
            let mut shard = self.shard(key);
            match shard.get(&key) {
                Some(flight) => Arc::clone(flight),
                None if shard.len() >= MOST => return Turn::Alone,
                None => {
                    let flight = Arc::new(Flight {
                        state: AtomicU8::new(UNDER_WAY),
                        ..Flight::default()
                    });
                    shard.insert(key, Arc::clone(&flight));
                    return Turn::First(Leading {
                        singleflight: self,
                        key,
                        flight,
                    });
                }
            }
        };
        loop {
            // Registered before looking, so that a landing in between is not missed.
            let landed = flight.landed.notified();
            match flight.state.load(Ordering::Acquire) {
                ANSWERED => return Turn::Answered,
                FAILED => return Turn::Failed,
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

impl Leading<'_> {
    /// Says whether the call was answered.
    pub(crate) fn landed(self, is_answered: bool) {
        let state = if is_answered { ANSWERED } else { FAILED };
        self.flight.state.store(state, Ordering::Release);
    }
}

impl Drop for Leading<'_> {
    fn drop(&mut self) {
        self.singleflight.shard(self.key).remove(&self.key);
        let state = &self.flight.state;
        // It stays as it is if something was said.
        let _said =
            state.compare_exchange(UNDER_WAY, ANSWERED, Ordering::AcqRel, Ordering::Acquire);
        self.flight.landed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;
    use crate::testing::at_once;

    fn poll<T>(future: std::pin::Pin<&mut impl Future<Output = T>>) -> Poll<T> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn one_asks_and_the_others_hear_what_came_of_it() {
        let singleflight = Singleflight::default();
        let Some(Turn::First(leading)) = at_once(singleflight.turn(7)) else {
            panic!("nobody else asks");
        };
        let mut other = pin!(singleflight.turn(7));
        assert!(poll(other.as_mut()).is_pending());
        assert!(
            matches!(at_once(singleflight.turn(8)), Some(Turn::First(_))),
            "another key"
        );
        leading.landed(true);
        assert!(matches!(poll(other), Poll::Ready(Turn::Answered)));
        assert!(matches!(
            at_once(singleflight.turn(7)),
            Some(Turn::First(_))
        ));
    }

    #[test]
    fn whoever_gives_up_lets_nobody_wait_for_ever() {
        let singleflight = Singleflight::default();
        let leading = at_once(singleflight.turn(7));
        let mut other = pin!(singleflight.turn(7));
        assert!(poll(other.as_mut()).is_pending());
        drop(leading);
        assert!(
            matches!(poll(other), Poll::Ready(Turn::Answered)),
            "it asks for itself"
        );
    }

    #[test]
    fn whoever_waited_for_a_call_that_failed_makes_none() {
        let singleflight = Singleflight::default();
        let Some(Turn::First(leading)) = at_once(singleflight.turn(7)) else {
            panic!("nobody else asks");
        };
        let mut other = pin!(singleflight.turn(7));
        assert!(poll(other.as_mut()).is_pending());
        leading.landed(false);
        assert!(matches!(poll(other), Poll::Ready(Turn::Failed)));
    }

    #[test]
    fn keys_that_there_is_no_room_for_are_not_waited_for() {
        let singleflight = Singleflight::default();
        let first: Vec<_> = (0..=u128::from(1_024_u32))
            .map(|key| at_once(singleflight.turn(key)))
            .collect();
        let alone = first
            .iter()
            .filter(|turn| matches!(turn, Some(Turn::Alone)))
            .count();
        assert_eq!(alone, 1);
        drop(first);
        assert!(matches!(
            at_once(singleflight.turn(5_000)),
            Some(Turn::First(_))
        ));
    }
}
