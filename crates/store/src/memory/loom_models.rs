//! Loom models of the slot protocol. Loom tries every order of events and every value that a relaxed load may return.
//!
//! `cargo xtask extra loom` runs them on the shipped code; only the atomics and the pages are loom's. The number of
//! preemptions is bounded. Models with three spinning threads get one preemption, because two take minutes.

use std::num::NonZeroU16;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64 as StdAtomicU64, Ordering as Order};

use loom::sync::Arc;
use loom::thread;
use tollgate_core::{Nanos, Rate, Timestamp, TokenBucket};

use super::MemoryStore;
use super::group::{Slot, SlotGroup};
use super::lock_bit::BitGuard;
use super::sync::AtomicU64;
use crate::clock::ManualClock;
use crate::contract::{IdentifiedLimit, LimitId, Op, QuotaCheck};
use crate::key::StoreKey;

const ID: LimitId = LimitId(NonZeroU16::MIN);
/// The tag that is in the slot before, and the one that is inserted.
const OLD: u64 = 1 << 48;
const NEW: u64 = 2 << 48;

/// Explores a model and prints the number of explored orders.
fn explore(switches: usize, model: impl Fn() + Send + Sync + 'static) {
    let orders = std::sync::Arc::new(StdAtomicU64::new(0));
    let counter = std::sync::Arc::clone(&orders);
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(switches);
    builder.max_branches = 20_000;
    builder.check(move || {
        counter.fetch_add(1, Order::Relaxed);
        model();
    });
    let orders = orders.load(Order::Relaxed);
    println!("{orders} orders of events");
    assert!(orders > 10, "only {orders} orders of events: nothing met");
}

fn quota(burst: u64) -> TokenBucket {
    let rate = Rate::new(1, Nanos::HOUR);
    TokenBucket::builder(rate).burst(burst).build().unwrap()
}

fn store() -> MemoryStore<ManualClock> {
    MemoryStore::with_clock(1, ManualClock::at(Timestamp::from_secs(1_000))).unwrap()
}

fn spend(store: &MemoryStore<ManualClock>, burst: u64) -> u64 {
    let key = StoreKey::new(b"alice").unwrap();
    u64::from(store.spend(&key, ID, &quota(burst), 1).is_admitted())
}

fn slot<const W: usize>(group: &SlotGroup) -> Slot<'_, W> {
    group.slot(0).unwrap()
}

#[test]
fn two_threads_that_spend_from_one_slot_are_admitted_exactly_to_the_limit() {
    explore(5, || {
        let store = Arc::new(store());
        // Spend one unit first, so that the key has a slot.
        assert_eq!(spend(&store, 4), 1);
        let other = Arc::clone(&store);
        let thread = thread::spawn(move || spend(&other, 4) + spend(&other, 4));
        let mine = spend(&store, 4) + spend(&store, 4);
        assert_eq!(mine + thread.join().unwrap(), 3);
    });
}

#[test]
fn three_threads_that_count_in_one_slot_lose_nothing() {
    explore(1, || {
        let group = Arc::new(SlotGroup::empty());
        slot::<2>(&group).lock().insert(OLD, [0, 0]);
        let count = |group: &SlotGroup| {
            let mut guard = slot::<2>(group).lock();
            let [first, second] = guard.state();
            assert_eq!(first, second, "both words belong together");
            guard.set([first + 1, second + 1]);
        };
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let group = Arc::clone(&group);
                thread::spawn(move || count(&group))
            })
            .collect();
        count(&group);
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(slot::<2>(&group).lock().state(), [3, 3]);
    });
}

#[test]
fn no_thread_charges_the_state_of_another_key() {
    explore(5, || {
        let group = Arc::new(SlotGroup::empty());
        slot::<2>(&group).lock().insert(OLD, [5, 5]);
        let theirs = Arc::clone(&group);
        let inserter = thread::spawn(move || {
            if let Some(mut guard) = slot::<2>(&theirs).try_lock() {
                guard.insert(NEW, [100, 100]);
                return true;
            }
            false
        });
        let mut charged = 5;
        for _ in 0..2 {
            let found = group.find::<2>(OLD, 0);
            let Some(mut guard) = found.map(Slot::lock).filter(|guard| guard.tag() == OLD) else {
                continue;
            };
            charged += 1;
            guard.set([charged, charged]);
        }
        let is_inserted = inserter.join().unwrap();
        let guard = slot::<2>(&group).lock();
        let expected = if is_inserted {
            (NEW, [100, 100])
        } else {
            (OLD, [charged, charged])
        };
        assert_eq!((guard.tag(), guard.state()), expected);
    });
}

#[test]
fn two_threads_that_insert_the_same_key_use_one_slot() {
    explore(4, || {
        let store = Arc::new(store());
        let other = Arc::clone(&store);
        let thread = thread::spawn(move || spend(&other, 1));
        let mine = spend(&store, 1);
        assert_eq!(mine + thread.join().unwrap(), 1);
        assert_eq!(store.word_table().occupied_slots().count(), 1);
    });
}

#[test]
fn two_threads_that_take_two_keys_in_different_orders_spend_on_both_or_none() {
    explore(4, || {
        let store = Arc::new(store());
        let limit = IdentifiedLimit {
            id: ID,
            limit: quota(2).into(),
        };
        let ask = move |store: &MemoryStore<ManualClock>, names: [&str; 2]| {
            let checks = names.map(|name| QuotaCheck {
                key: StoreKey::new(name.as_bytes()).unwrap(),
                limit: &limit,
                op: Op::Spend(1),
            });
            u64::from(store.decide_array(checks).unwrap().0.is_admitted())
        };
        // Both keys have a slot, and one unit left.
        assert_eq!(ask(&store, ["a", "b"]), 1);
        let other = Arc::clone(&store);
        let thread = thread::spawn(move || ask(&other, ["b", "a"]));
        let mine = ask(&store, ["a", "b"]);
        assert_eq!(mine + thread.join().unwrap(), 1);
        let states: Vec<_> = store
            .word_table()
            .occupied_slots()
            .map(Slot::peek_state)
            .collect();
        assert_eq!(states.len(), 2);
        assert_eq!(states.first(), states.get(1), "charged alike");
    });
}

#[test]
fn a_thread_that_panics_unlocks_its_bit() {
    explore(5, || {
        let word = Arc::new(AtomicU64::new(7));
        let theirs = Arc::clone(&word);
        let thread = thread::spawn(move || {
            let unwound = catch_unwind(AssertUnwindSafe(|| {
                let _guard = BitGuard::lock(&theirs);
                std::panic::resume_unwind(Box::new("in the middle"));
            }));
            assert!(unwound.is_err());
        });
        let mut guard = BitGuard::lock(&word);
        guard.set(guard.value() + 1);
        drop(guard);
        thread.join().unwrap();
        assert_eq!(BitGuard::lock(&word).value(), 8);
    });
}

/// A peek without the lock while another key is inserted: its result belongs to the tag that it asked for.
#[test]
fn a_peek_never_returns_the_state_of_another_key() {
    explore(5, || {
        let group = Arc::new(SlotGroup::empty());
        slot::<1>(&group).lock().insert(OLD, [5]);
        let other = Arc::clone(&group);
        let mover = thread::spawn(move || slot::<1>(&other).lock().insert(NEW, [9]));
        let old = slot::<1>(&group).peek(OLD);
        let new = slot::<1>(&group).peek(NEW);
        assert!(matches!(old, None | Some(5)), "{old:?}");
        assert!(matches!(new, None | Some(9)), "{new:?}");
        mover.join().unwrap();
        assert_eq!(slot::<1>(&group).peek(OLD), None);
        assert_eq!(slot::<1>(&group).peek(NEW), Some(9));
    });
}
