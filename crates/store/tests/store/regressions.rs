//! What was wrong once, each told as the story of how it went wrong.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use tollgate_core::concurrency::LeaseId;
use tollgate_core::limit::State;
use tollgate_core::reservation::ReservationId;
use tollgate_core::{Concurrency, FixedWindow, Nanos, Outcome, SlidingLog, Timestamp, Window};
use tollgate_store::{Clock, ManualClock, MemoryStore, Op, QuotaCheck, ReplyNote, StoreKey};

use crate::support::{START, TestStore, bucket, id, numbered_limit, store};

/// A clock whose next reader stands still after reading it while something else happens.
#[derive(Default)]
struct StallingClock {
    now: AtomicU64,
    meanwhile: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl Clock for StallingClock {
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
    let clock = Arc::new(StallingClock::default());
    clock.now.store(START.as_nanos(), Ordering::SeqCst);
    let quota = bucket(10, Nanos::from_millis(100));
    let store = Arc::new(MemoryStore::with_clock(100, Arc::clone(&clock)).unwrap());
    store.add_limit(&numbered_limit(1, quota));
    let key = StoreKey::new(b"alice").unwrap();
    assert_eq!(store.spend(&key, id(1), &quota, 1), Outcome::Allow);

    let later = START.after(Nanos::MINUTE);
    let (others, others_clock) = (Arc::clone(&store), Arc::clone(&clock));
    let seen = Arc::new(OnceLock::new());
    let seen_by_others = Arc::clone(&seen);
    *clock.meanwhile.lock().unwrap() = Some(Box::new(move || {
        others_clock.now.store(later.as_nanos(), Ordering::SeqCst);
        let key = StoreKey::new(b"alice").unwrap();
        let spent = others.spend(&key, id(1), &bucket(10, Nanos::from_millis(100)), 10);
        seen_by_others.set(spent).unwrap();
    }));
    let stalled = store.spend(&key, id(1), &quota, 1);
    assert_eq!(seen.get(), Some(&Outcome::Allow), "the others spent all");
    assert!(!stalled.is_admitted(), "{stalled:?}");
    let after = store.spend(&key, id(1), &quota, 1);
    assert!(
        !after.is_admitted(),
        "the whole burst was minted again: {after:?}"
    );
}

/// Logs and leases share a budget of bytes. Once it was spent, everything asked of a key that had a place was answered by
/// the overflow: a release was denied, so places were never given back, and a denied key found itself admitted.
#[test]
fn what_has_a_place_keeps_it_when_the_bytes_are_spent() {
    let (store, _clock) = store(100);
    let places = numbered_limit(1, Concurrency::new(10, Nanos::HOUR).unwrap());
    let log = numbered_limit(2, SlidingLog::builder(2, Nanos::HOUR).build().unwrap());
    let ask = |ruled, key: &str, op| {
        let key = StoreKey::new(key.as_bytes()).unwrap();
        let (_, [answer]) = store
            .decide_array([QuotaCheck {
                key,
                limit: ruled,
                op,
            }])
            .unwrap();
        answer
    };
    assert_eq!(ask(&log, "denied", Op::Spend(2)).outcome, Outcome::Allow);
    let lease = |n: u32| LeaseId(u128::from(n));
    let mut held = 0;
    loop {
        let (key, id) = (format!("host-{}", held / 10), lease(held));
        let answer = ask(&places, &key, Op::Acquire { id, weight: 1 });
        if answer.note == ReplyNote::Overflow {
            assert!(
                !answer.outcome.is_admitted(),
                "nothing stands in for places"
            );
            break;
        }
        held += 1;
    }
    assert!(held > 10, "there was room for {held}");

    let denied = ask(&log, "denied", Op::Spend(1));
    assert!(!denied.outcome.is_admitted(), "{denied:?}");
    for n in 0..held {
        let key = format!("host-{}", n / 10);
        let renewed = ask(&places, &key, Op::Renew(lease(n)));
        assert_eq!(renewed.note, ReplyNote::Plain, "{n} of {held}");
        let released = ask(&places, &key, Op::Release(lease(n)));
        assert_eq!(released.note, ReplyNote::Plain, "{n} of {held}");
    }
    let again = Op::Acquire {
        id: lease(0),
        weight: 10,
    };
    assert_eq!(ask(&places, "host-0", again).outcome, Outcome::Allow);
}

/// Fills a table for one key, two groups of seven slots, with keys that are being denied for a second.
fn crowded() -> (TestStore, Arc<ManualClock>) {
    let (store, clock) = store(1);
    let crowd = numbered_limit(1, bucket(1, Nanos::SECOND));
    for n in 0..1_000 {
        let key = format!("crowd-{n}");
        let key = StoreKey::new(key.as_bytes()).unwrap();
        let op = Op::Spend(1);
        let check = QuotaCheck {
            key,
            limit: &crowd,
            op,
        };
        assert!(store.decide_array([check]).is_ok());
    }
    (store, clock)
}

/// A key that the overflow had decided for got a fresh state as soon as there was room again: it spent its limit twice.
#[test]
fn what_was_spent_in_the_overflow_is_still_spent_when_there_is_room_again() {
    // With the most that each admits at once: what stands in for a window has half of its limit.
    let limits = [
        (numbered_limit(2, bucket(5, Nanos::MINUTE)), 5),
        (
            numbered_limit(
                3,
                FixedWindow::builder(10, Window::FirstHit(Nanos::HOUR))
                    .build()
                    .unwrap(),
            ),
            5,
        ),
    ];
    for (limit, most) in limits {
        // Crowded by its own kind: another limit's keys would have to go.
        let (store, clock) = store(1);
        let crowd: Vec<String> = (0..1_000).map(|n| format!("crowd-{n}")).collect();
        for key in &crowd {
            let key = StoreKey::new(key.as_bytes()).unwrap();
            let op = Op::Spend(limit.limit.status(&State::default(), START).limit);
            let check = QuotaCheck {
                key,
                limit: &limit,
                op,
            };
            assert!(store.decide_array([check]).is_ok());
        }
        let ask = |cost| {
            let key = StoreKey::new(b"late").unwrap();
            let op = Op::Spend(cost);
            store
                .decide_array([QuotaCheck {
                    key,
                    limit: &limit,
                    op,
                }])
                .unwrap()
                .1[0]
        };
        let first = ask(most);
        assert_eq!(
            (first.outcome, first.note),
            (Outcome::Allow, ReplyNote::Overflow)
        );
        for key in &crowd {
            store.erase(&StoreKey::new(key.as_bytes()).unwrap(), &limit);
        }
        let second = ask(most);
        assert!(!second.outcome.is_admitted(), "{second:?}");
        clock.advance(Nanos::HOUR);
        let third = ask(most);
        assert_eq!(
            (third.outcome, third.note),
            (Outcome::Allow, ReplyNote::Plain)
        );
    }
}

/// States of a limit that nobody had announced counted as nothing, so any newcomer could take their slots, unseen.
#[test]
fn a_limit_that_nobody_announced_is_kept_all_the_same() {
    let (store, _clock) = crowded();
    let before = store.usage();
    assert_eq!(before.evictions, 0);
    assert!(
        before.overflow_decisions > 0,
        "the crowd itself found no room: {before:?}"
    );
    for n in 0..1_000 {
        let key = format!("crowd-{n}");
        let quota = bucket(1, Nanos::SECOND);
        let outcome = store.spend(&StoreKey::new(key.as_bytes()).unwrap(), id(1), &quota, 1);
        assert!(!outcome.is_admitted(), "{key} was let in again");
    }
}

/// A cancel that came too late left its reservation open in the store, though not in core: a settle after it still charged.
#[test]
fn a_cancel_that_came_too_late_is_still_the_end_of_it() {
    let (store, clock) = store(100);
    let tokens = numbered_limit(1, bucket(100, Nanos::HOUR));
    let ask = |op| {
        let key = StoreKey::new(b"alice").unwrap();
        store
            .decide_array([QuotaCheck {
                key,
                limit: &tokens,
                op,
            }])
            .unwrap()
            .1[0]
    };
    let (id, hold) = (ReservationId(7), Nanos::SECOND);
    assert_eq!(
        ask(Op::Reserve { id, cost: 10, hold }).outcome,
        Outcome::Allow
    );
    clock.advance(hold);
    assert_eq!(
        ask(Op::CancelReserved(id)).note,
        ReplyNote::ReservationExpired
    );
    let late = ask(Op::SettleReserved { id, actual: 50 });
    assert_eq!(late.note, ReplyNote::AlreadyClosed);
    assert_eq!(late.status.remaining, 90);
}

/// The largest quota that a limit had ever had was what its states were measured by. After it was lowered, a key that had
/// used more than all of the new quota seemed to have used half, and went before others that had used more of theirs: it
/// was denied, and a flood under another limit forgave it (I-10).
#[test]
fn whom_a_lowered_quota_denies_is_not_forgiven_for_others() {
    let window = |units| FixedWindow::builder(units, Window::Epoch(Nanos::HOUR)).build();
    let [first, other] = [1, 2];
    let buckets = [100, 10].map(|units| numbered_limit(first, bucket(units, Nanos::HOUR)));
    let windows = [100, 10].map(|units| numbered_limit(first, window(units).unwrap()));
    let floods = [
        numbered_limit(other, bucket(100, Nanos::HOUR)),
        numbered_limit(other, window(100).unwrap()),
    ];
    for ([old, new], flood) in [buckets, windows].into_iter().zip(floods) {
        let (store, _clock) = store(40);
        let spend = |ruled, name: &str, cost| {
            let key = StoreKey::new(name.as_bytes()).unwrap();
            let op = Op::Spend(cost);
            store
                .decide_array([QuotaCheck {
                    key,
                    limit: ruled,
                    op,
                }])
                .unwrap()
                .0
                .is_admitted()
        };
        store.add_limit(&old);
        assert!(spend(&old, "alice", 50));
        assert!(spend(&old, "alice", 1), "half is left");
        store.replace_limit(&old, &new);
        assert!(!spend(&new, "alice", 1));
        let _ = (0..2_000)
            .filter(|n| spend(&flood, &n.to_string(), 90))
            .count();
        assert!(store.usage().evictions > 100, "others had to go");
        assert!(!spend(&new, "alice", 1), "{new:?}");
    }
}
