//! What was wrong once, each told as the story of how it went wrong.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use tollgate_core::{Nanos, Outcome, Timestamp};
use tollgate_store::{Clock, Key, Memory};

use crate::support::{START, bucket, id, ruled};

/// A clock whose next reader stands still after reading it while something else happens.
#[derive(Default)]
struct Stalling {
    now: AtomicU64,
    meanwhile: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl Clock for Stalling {
    fn now(&self) -> Timestamp {
        let now = Timestamp::from_nanos(self.now.load(Ordering::SeqCst));
        let meanwhile = self.meanwhile.lock().unwrap().take();
        if let Some(meanwhile) = meanwhile {
            meanwhile();
        }
        now
    }
}

/// `spend` reads the clock before it takes the slot. A thread that was suspended in between came back with an old instant,
/// found the state too far ahead of it, took that for a clock that had gone back, and brought the state back: everybody
/// else's spending was forgiven.
#[test]
fn a_thread_that_stood_still_forgives_nobody() {
    let clock = Arc::new(Stalling::default());
    clock.now.store(START.as_nanos(), Ordering::SeqCst);
    let quota = bucket(10, Nanos::from_millis(100));
    let store = Arc::new(Memory::with_clock(100, Arc::clone(&clock)).unwrap());
    store.learn(&ruled(1, quota));
    let key = Key::of(b"alice").unwrap();
    assert_eq!(store.spend(&key, id(1), &quota, 1), Outcome::Allow);

    let later = START.after(Nanos::MINUTE);
    let (others, others_clock) = (Arc::clone(&store), Arc::clone(&clock));
    let seen = Arc::new(OnceLock::new());
    let seen_by_others = Arc::clone(&seen);
    *clock.meanwhile.lock().unwrap() = Some(Box::new(move || {
        others_clock.now.store(later.as_nanos(), Ordering::SeqCst);
        let key = Key::of(b"alice").unwrap();
        let spent = others.spend(&key, id(1), &bucket(10, Nanos::from_millis(100)), 10);
        seen_by_others.set(spent).unwrap();
    }));
    let stalled = store.spend(&key, id(1), &quota, 1);
    assert_eq!(seen.get(), Some(&Outcome::Allow), "the others spent all");
    assert!(!stalled.is_admitted(), "{stalled:?}");
    let after = store.spend(&key, id(1), &quota, 1);
    assert!(!after.is_admitted(), "the whole burst was minted again: {after:?}");
}
