//! A warm decision does not allocate: this binary's allocator counts per thread.

use tollgate_core::{FixedWindow, Nanos, SlidingCounter, Window};
use tollgate_store::{IdentifiedLimit, Op, QuotaCheck, StoreKey};
use tollgate_testkit::allocation::{CountingAllocator, calls};

use crate::support::{bucket, id, numbered_limit, store};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

#[test]
fn the_allocator_counts() {
    assert!(calls(|| drop(std::hint::black_box(vec![1]))) >= 2);
}

#[test]
fn spending_from_a_warm_bucket_allocates_nothing_admitted_or_denied() {
    let (store, _clock) = store(1_000);
    let quota = bucket(50, Nanos::HOUR);
    let key = StoreKey::new(b"alice").unwrap();
    assert!(store.spend(&key, id(1), &quota, 1).is_admitted());
    let mut admitted = 0;
    let counted = calls(|| {
        for _ in 0..100 {
            admitted += u64::from(store.spend(&key, id(1), &quota, 1).is_admitted());
        }
    });
    assert_eq!((counted, admitted), (0, 49));
}

/// N limits of buckets and windows in one batch.
fn batch<const N: usize>() {
    let (store, _clock) = store(1_000);
    let limits: [IdentifiedLimit; N] = std::array::from_fn(|n| {
        let number = u16::try_from(n + 1).unwrap();
        let hour = Nanos::HOUR;
        match n % 3 {
            0 => numbered_limit(number, bucket(50, hour)),
            1 => numbered_limit(
                number,
                FixedWindow::builder(60, Window::FirstHit(hour))
                    .build()
                    .unwrap(),
            ),
            _ => numbered_limit(number, SlidingCounter::builder(70, hour).build().unwrap()),
        }
    });
    let parts: [&[u8]; 2] = [b"tenant", b"user"];
    let checks: [QuotaCheck<'_>; N] = std::array::from_fn(|n| QuotaCheck {
        key: StoreKey::from_parts(&parts).unwrap(),
        limit: &limits[n],
        op: Op::Spend(1),
    });
    assert!(store.decide_array(checks).unwrap().0.is_admitted());
    let mut admitted = 0;
    let counted = calls(|| {
        for _ in 0..100 {
            admitted += u64::from(store.decide_array(checks).unwrap().0.is_admitted());
        }
    });
    assert_eq!((counted, admitted), (0, 49), "{N} limits");
}

#[test]
fn a_warm_batch_of_words_and_pairs_allocates_nothing_admitted_or_denied() {
    batch::<1>();
    batch::<3>();
    batch::<8>();
}

#[test]
fn i06_inserting_a_key_allocates_nothing_either() {
    let (store, _clock) = store(1_000);
    let quota = bucket(50, Nanos::HOUR);
    let keys: Vec<String> = (0..500).map(|n| n.to_string()).collect();
    let counted = calls(|| {
        for key in &keys {
            store.spend(&StoreKey::new(key.as_bytes()).unwrap(), id(1), &quota, 1);
        }
    });
    assert_eq!(counted, 0);
}
