//! The table of permits under loom: threads that end requests, renew leases, let them expire and begin requests, in all
//! orders with up to three preemptions (I-14).
//!
//! The source of the table is compiled a second time, with loom's locks. A permit is a number in `Ledger`, which stands for the
//! store: it panics if a permit is released twice or if there are more than the cap.

#[path = "permit_table.rs"]
#[expect(clippy::duplicate_mod, reason = "the table is modelled as it is")]
#[expect(dead_code, reason = "the model does not ask for everything")]
mod permit_table;

/// What the table is built of here.
mod sync {
    pub(super) use std::sync::PoisonError;

    pub(super) use loom::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
    pub(super) use loom::sync::{Mutex, MutexGuard};
}

use loom::sync::{Arc, Mutex};
use loom::thread;
use tollgate_core::{Nanos, Timestamp};

use permit_table::PermitTable;

const START: Timestamp = Timestamp::from_secs(1_000);
const LEASE: Nanos = Nanos::from_secs(60);
/// Later than every lease is due.
const LATE: Timestamp = Timestamp::from_secs(1_050);
const CAP: usize = 2;

/// The store: which permits are held, and which had a lease that expired before they were released.
#[derive(Default)]
struct Leases {
    held: Vec<u32>,
    expired: Vec<u32>,
}

#[derive(Default)]
struct Ledger(Mutex<Leases>);

impl Ledger {
    /// Takes a permit if one is free.
    fn acquire(&self, permit: u32) -> bool {
        let mut leases = self.0.lock().unwrap();
        if leases.held.len() == CAP {
            return false;
        }
        leases.held.push(permit);
        true
    }

    /// The lease of a permit expires, unless it was released before.
    fn expire(&self, permit: u32) {
        let mut leases = self.0.lock().unwrap();
        if let Some(index) = leases.held.iter().position(|one| *one == permit) {
            leases.held.remove(index);
            leases.expired.push(permit);
        }
    }

    /// Whether a renewal finds the lease.
    fn renew(&self, permit: u32) -> bool {
        self.0.lock().unwrap().held.contains(&permit)
    }

    /// Releases a permit. If its lease has expired, that frees nobody else's.
    fn release(&self, permit: u32) {
        let mut leases = self.0.lock().unwrap();
        let Leases { held, expired } = &mut *leases;
        let before = held.len() + expired.len();
        held.retain(|one| *one != permit);
        expired.retain(|one| *one != permit);
        let after = held.len() + expired.len();
        assert_eq!(after + 1, before, "permit {permit} is released twice");
    }

    fn assert_empty(&self) {
        let leases = self.0.lock().unwrap();
        assert!(
            leases.held.is_empty() && leases.expired.is_empty(),
            "a permit is lost"
        );
    }
}

/// How the renewer of a model behaves.
#[derive(Clone, Copy, PartialEq)]
enum Renewer {
    Right,
    /// Forgets tickets whose requests ended meanwhile.
    Forgets,
    /// Settles every ticket that it renewed.
    SettlesAlways,
}

/// Two requests end while a renewer works and a third request begins and ends.
fn run(renewer: Renewer) {
    let mut model = loom::model::Builder::new();
    // All orders with up to three preemptions: bugs of this kind need one or two, and all orders would take minutes.
    model.preemption_bound = Some(3);
    model.check(move || {
        let table = Arc::new(PermitTable::<u32>::default());
        let ledger = Arc::new(Ledger::default());
        let first = [1, 2].map(|permit| {
            assert!(ledger.acquire(permit));
            table.insert(permit, START, LEASE)
        });
        let spawn = |work: fn(&PermitTable<u32>, &Ledger, u64), number: u64| {
            let (table, ledger) = (Arc::clone(&table), Arc::clone(&ledger));
            thread::spawn(move || work(&table, &ledger, number))
        };
        let ends = spawn(end, first[0]);
        let renews = spawn(
            match renewer {
                Renewer::Right => |table, ledger, _| renew(table, ledger, Renewer::Right),
                Renewer::Forgets => |table, ledger, _| renew(table, ledger, Renewer::Forgets),
                Renewer::SettlesAlways => {
                    |table, ledger, _| renew(table, ledger, Renewer::SettlesAlways)
                }
            },
            0,
        );
        // A request that finds a permit free holds it until its own end.
        if ledger.acquire(3) {
            let number = table.insert(3, START, LEASE);
            end(&table, &ledger, number);
        }
        end(&table, &ledger, first[1]);
        ends.join().unwrap();
        renews.join().unwrap();
        assert!(table.is_empty());
        ledger.assert_empty();
    });
}

/// A lease expires while its request ends and a renewer works. Another request takes the place that became free.
fn run_with_expiry() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let table = Arc::new(PermitTable::<u32>::default());
        let ledger = Arc::new(Ledger::default());
        let [first, second] = [1, 2].map(|permit| {
            assert!(ledger.acquire(permit));
            table.insert(permit, START, LEASE)
        });
        let spawn = |work: fn(&PermitTable<u32>, &Ledger)| {
            let (table, ledger) = (Arc::clone(&table), Arc::clone(&ledger));
            thread::spawn(move || work(&table, &ledger))
        };
        let expires = spawn(|table, ledger| {
            ledger.expire(1);
            if ledger.acquire(3) {
                let number = table.insert(3, START, LEASE);
                assert!(
                    ledger.renew(3),
                    "the end of an expired request releases another one"
                );
                end(table, ledger, number);
            }
        });
        let renews = spawn(|table, ledger| renew(table, ledger, Renewer::Right));
        end(&table, &ledger, first);
        expires.join().unwrap();
        renews.join().unwrap();
        end(&table, &ledger, second);
        assert!(table.is_empty());
        ledger.assert_empty();
    });
}

/// The end of a request: its body ended or was dropped, or the stream that it was handed to was closed.
fn end(table: &PermitTable<u32>, ledger: &Ledger, number: u64) {
    if let Some(permit) = table.remove(number) {
        ledger.release(permit);
    }
}

fn renew(table: &PermitTable<u32>, ledger: &Ledger, renewer: Renewer) {
    while let Some((number, permit)) = table.take_due(LATE) {
        let ended = table.put_back(number, permit, LATE, ledger.renew(permit));
        match renewer {
            Renewer::Forgets => {}
            Renewer::SettlesAlways => ledger.release(permit),
            Renewer::Right => ended.into_iter().for_each(|permit| ledger.release(permit)),
        }
    }
}

#[test]
fn i14_no_order_of_ends_and_renewals_loses_a_permit_or_releases_it_twice() {
    run(Renewer::Right);
}

#[test]
fn i14_a_lease_that_expires_is_settled_once_and_leaves_other_permits_alone() {
    run_with_expiry();
}

#[test]
#[should_panic = "a permit is lost"]
fn the_model_finds_a_renewer_that_forgets_permits() {
    run(Renewer::Forgets);
}

#[test]
#[should_panic = "is released twice"]
fn the_model_finds_a_renewer_that_releases_permits_of_running_requests() {
    run(Renewer::SettlesAlways);
}
