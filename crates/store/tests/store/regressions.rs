//! Regressions, each with the story of the bug.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use tollgate_core::concurrency::LeaseId;
use tollgate_core::limit::State;
use tollgate_core::reservation::ReservationId;
use tollgate_core::{Concurrency, FixedWindow, Nanos, Outcome, SlidingLog, Timestamp, Window};
use tollgate_store::{Clock, ManualClock, MemoryStore, Op, QuotaCheck, ReplyNote, StoreKey};

use crate::support::{START, TestStore, bucket, id, numbered_limit, store};

/// A clock whose next reader is suspended after the read while something else happens.
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

/// `spend` reads the clock before it locks the slot. A thread that was suspended in between returned with an old
/// instant and found the state too far ahead. It took that for a clock that had gone back and lowered the state, which
/// refunded what others had spent.
#[test]
fn a_suspended_thread_refunds_nothing() {
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

/// An expired state counted as free, and newcomers tried their preferred slot first. So keys whose states expired between two
/// requests took the slots of each other although most slots were unused, and every third request had to insert its key again.
#[test]
fn expired_states_keep_their_slots_while_others_are_unused() {
    const KEYS: u64 = 5_000;
    let (store, clock) = store(10_000);
    let quota = bucket(10, Nanos::from_millis(1));
    store.add_limit(&numbered_limit(1, quota));
    for _ in 0..2 {
        for number in 0..KEYS {
            let bytes = number.to_le_bytes();
            let key = StoreKey::new(&bytes).unwrap();
            assert_eq!(store.spend(&key, id(1), &quota, 1), Outcome::Allow);
            clock.advance(Nanos::SECOND);
        }
        // In a few groups there are more keys than slots.
        let slots = store.limit_usage(id(1)).slots;
        assert!(
            slots > KEYS * 99 / 100,
            "{slots} of {KEYS} keys have a slot"
        );
    }
}

/// Logs and leases share a budget of bytes. Once it was used up, the overflow sketch decided for keys that had a state.
/// A release was denied, so leases were never released, and a denied key was admitted.
#[test]
fn existing_states_are_used_when_the_byte_budget_is_exhausted() {
    let (store, _clock) = store(100);
    let leases = numbered_limit(1, Concurrency::new(10, Nanos::HOUR).unwrap());
    let log = numbered_limit(2, SlidingLog::builder(2, Nanos::HOUR).build().unwrap());
    let ask = |limit, key: &str, op| {
        let key = StoreKey::new(key.as_bytes()).unwrap();
        let (_, [answer]) = store.decide_array([QuotaCheck { key, limit, op }]).unwrap();
        answer
    };
    assert_eq!(ask(&log, "denied", Op::Spend(2)).outcome, Outcome::Allow);
    let lease = |n: u32| LeaseId(u128::from(n));
    let mut leases_held = 0;
    loop {
        let (key, id) = (format!("host-{}", leases_held / 10), lease(leases_held));
        let answer = ask(&leases, &key, Op::Acquire { id, weight: 1 });
        if answer.note == ReplyNote::Overflow {
            assert!(
                !answer.outcome.is_admitted(),
                "nothing stands in for places"
            );
            break;
        }
        leases_held += 1;
    }
    assert!(leases_held > 10, "there was room for {leases_held}");

    let denied = ask(&log, "denied", Op::Spend(1));
    assert!(!denied.outcome.is_admitted(), "{denied:?}");
    for n in 0..leases_held {
        let key = format!("host-{}", n / 10);
        let renewed = ask(&leases, &key, Op::Renew(lease(n)));
        assert_eq!(renewed.note, ReplyNote::Plain, "{n} of {leases_held}");
        let released = ask(&leases, &key, Op::Release(lease(n)));
        assert_eq!(released.note, ReplyNote::Plain, "{n} of {leases_held}");
    }
    let again = Op::Acquire {
        id: lease(0),
        weight: 10,
    };
    assert_eq!(ask(&leases, "host-0", again).outcome, Outcome::Allow);
}

/// Fills a table for one key, two groups of seven slots, with keys that are denied for a second.
fn full_of_denied_keys() -> (TestStore, Arc<ManualClock>) {
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

/// A key that the overflow sketch had decided for got a fresh state as soon as there was room: it spent its limit
/// twice.
#[test]
fn debt_in_the_overflow_sketch_still_counts_when_there_is_room_again() {
    // With the most that each admits at once: the stricter bucket of a window has half of its limit.
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
        // Full of denied keys of the same limit: those of another limit would be evicted.
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

/// States of a limit that was never announced had no priority, so any new key could take their slots, uncounted.
#[test]
fn states_of_an_unannounced_limit_are_kept() {
    let (store, _clock) = full_of_denied_keys();
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
        assert!(!outcome.is_admitted(), "{key} was admitted again");
    }
}

/// A cancel that came too late left its reservation open in the store, but not in core: a later settle still charged.
#[test]
fn a_cancel_that_comes_too_late_still_closes_the_reservation() {
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

/// The largest quota that a limit had ever had measured its states. After the quota was lowered, a key that had used
/// more than all of it seemed to have used half. It was denied, and a flood under another limit evicted its state
/// (I-10).
#[test]
fn i10_a_key_that_a_lowered_quota_denies_is_not_evicted_for_others() {
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
        let spend = |limit, name: &str, cost| {
            let key = StoreKey::new(name.as_bytes()).unwrap();
            let op = Op::Spend(cost);
            store
                .decide_array([QuotaCheck { key, limit, op }])
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
        assert!(store.usage().evictions > 100, "others were evicted");
        assert!(!spend(&new, "alice", 1), "{new:?}");
    }
}
