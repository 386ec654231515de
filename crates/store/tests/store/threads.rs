//! Many threads at once: exactly the limit is admitted, batches are all or nothing, there is no deadlock, and denied
//! keys stay denied while others come and go. Each test asserts that threads met; otherwise it would prove nothing.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Barrier};
use std::time::Duration;

use tollgate_core::Nanos;
use tollgate_store::memory::waits_of_this_thread;
use tollgate_store::{IdentifiedLimit, Op, QuotaCheck, StoreKey};

use crate::support::{Random, TestStore, bucket, id, numbered_limit, store};

/// Long enough for any machine that is not stuck.
const DEADLINE: Duration = Duration::from_secs(120);

/// Runs on `count` threads that start together, and fails if one does not return. Returns how often they waited for
/// each other, if that is counted.
fn run_threads(count: usize, work: impl Fn(usize) + Send + Sync + 'static) -> Option<u64> {
    let (done, ended) = sync_channel(count);
    let shared = Arc::new((Barrier::new(count), work));
    for n in 0..count {
        let (done, shared) = (done.clone(), Arc::clone(&shared));
        std::thread::spawn(move || {
            shared.0.wait();
            (shared.1)(n);
            done.send(waits_of_this_thread()).unwrap();
        });
    }
    drop(done);
    let mut waits = None;
    for n in 0..count {
        let result = ended.recv_timeout(DEADLINE);
        assert!(
            result.is_ok(),
            "{n} of {count} threads came back: {result:?}"
        );
        if let Ok(Some(waited)) = result {
            waits = Some(waits.unwrap_or(0) + waited);
        }
    }
    waits
}

#[test]
fn i01_sixty_four_threads_on_one_key_are_admitted_exactly_to_the_limit() {
    const LIMIT: u64 = 20_000;
    // A single core may run a thread to its end without interruption, but not a hundred times.
    for _ in 0..100 {
        let (store, _clock) = store(1_000);
        let quota = bucket(LIMIT, Nanos::SECOND);
        let shared = Arc::new((store, AtomicU64::new(0)));
        let inside = Arc::clone(&shared);
        let waits = run_threads(64, move |_| {
            let key = StoreKey::new(b"everyone").unwrap();
            let mut admitted = 0;
            for _ in 0..LIMIT / 32 {
                admitted += u64::from(inside.0.spend(&key, id(1), &quota, 1).is_admitted());
            }
            inside.1.fetch_add(admitted, Ordering::Relaxed);
        });
        assert_eq!(shared.1.load(Ordering::Relaxed), LIMIT);
        if waits != Some(0) {
            return;
        }
    }
    panic!("no thread ever had to wait for another");
}

#[test]
fn i11_keys_locked_in_different_orders_are_charged_alike_without_deadlock() {
    const KEYS: usize = 6;
    const LIMIT: u64 = 3_000;
    let (store, _clock) = store(1_000);
    let limits: Vec<IdentifiedLimit> = (1..=6)
        .map(|n| match n % 2 {
            0 => numbered_limit(n, bucket(LIMIT, Nanos::HOUR)),
            _ => {
                let window = tollgate_core::Window::FirstHit(Nanos::HOUR);
                let quota = tollgate_core::FixedWindow::builder(LIMIT, window);
                numbered_limit(n, quota.build().unwrap())
            }
        })
        .collect();
    let shared = Arc::new((store, limits, AtomicU64::new(0)));
    let inside = Arc::clone(&shared);
    let waits = run_threads(8, move |n| {
        let (store, limits, admitted) = &*inside;
        let mut random = Random(n as u64);
        for _ in 0..2_000 {
            // The same six limits in random order.
            let mut order: [usize; KEYS] = std::array::from_fn(|i| i);
            for i in (1..KEYS).rev() {
                order.swap(i, usize::try_from(random.below(i as u64 + 1)).unwrap());
            }
            let checks = order.map(|i| QuotaCheck {
                key: StoreKey::new(b"shared").unwrap(),
                limit: &limits[i],
                op: Op::Spend(1),
            });
            let (outcome, _) = store.decide_array(checks).unwrap();
            admitted.fetch_add(u64::from(outcome.is_admitted()), Ordering::Relaxed);
        }
    });
    let (store, limits, admitted) = &*shared;
    assert_eq!(admitted.load(Ordering::Relaxed), LIMIT);
    for limit in limits {
        let check = QuotaCheck {
            key: StoreKey::new(b"shared").unwrap(),
            limit,
            op: Op::Peek(1),
        };
        let (_, [answer]) = store.decide_array([check]).unwrap();
        assert_eq!(answer.status.remaining, 0, "limit {:?}", limit.id);
    }
    assert_ne!(waits, Some(0), "no thread ever had to wait for another");
}

#[test]
fn i10_a_denied_key_stays_denied_in_a_storm_of_keys_that_come_and_go() {
    let (store, clock) = store(50);
    let guarded = numbered_limit(1, bucket(5, Nanos::HOUR));
    let passing = numbered_limit(2, bucket(10, Nanos::MINUTE));
    store.add_limit(&guarded);
    store.add_limit(&passing);
    let spend = |store: &TestStore, limit: &IdentifiedLimit, name: &str| {
        let key = StoreKey::new(name.as_bytes()).unwrap();
        let check = QuotaCheck {
            key,
            limit,
            op: Op::Spend(1),
        };
        store.decide_array([check]).unwrap().0.is_admitted()
    };
    for key in ["a", "b", "c"] {
        let admitted = (0..10).filter(|_| spend(&store, &guarded, key)).count();
        assert_eq!(admitted, 5);
    }
    let shared = Arc::new((store, clock, AtomicBool::new(false)));
    let inside = Arc::clone(&shared);
    run_threads(4, move |n| {
        let (store, clock, let_in) = &*inside;
        for round in 0..30_000 {
            spend(store, &passing, &format!("{n}-{round}"));
            let key = ["a", "b", "c"][round % 3];
            if spend(store, &guarded, key) {
                let_in.store(true, Ordering::Relaxed);
            }
            if n == 0 && round % 100 == 0 {
                // Far less than the hour after which one more unit is refilled.
                clock.advance(Nanos::SECOND);
            }
        }
    });
    let (store, _, let_in) = &*shared;
    assert!(!let_in.load(Ordering::Relaxed), "a denied key was admitted");
    let usage = store.usage();
    assert!(
        usage.evictions > 1_000,
        "the table was never full: {usage:?}"
    );
}
