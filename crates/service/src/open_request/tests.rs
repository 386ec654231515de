//! Every order in which requests end and leases are renewed. Each operation of the table is one critical section, so all
//! interleavings of threads are the orders of these operations, and the test runs every one of them.

use tollgate_core::{Nanos, Timestamp};

use super::PermitTable;

const START: Timestamp = Timestamp::from_secs(1_000);
const LEASE: Nanos = Nanos::from_secs(60);
/// Later than every lease is due.
const LATE: Timestamp = Timestamp::from_secs(1_050);

/// What a thread does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Begin(u32),
    End(u32),
    TakeDue,
    PutBack,
}

/// Two requests, and a renewer that looks twice.
const THREADS: [&[Step]; 3] = [
    &[Step::Begin(1), Step::End(1)],
    &[Step::Begin(2), Step::End(2)],
    &[Step::TakeDue, Step::PutBack, Step::TakeDue, Step::PutBack],
];

/// Every order of the threads' steps.
fn orders() -> Vec<Vec<Step>> {
    fn extend(done: [usize; 3], order: &mut Vec<Step>, all: &mut Vec<Vec<Step>>) {
        let mut is_over = true;
        for (thread, steps) in THREADS.iter().enumerate() {
            if let Some(step) = steps.get(done[thread]) {
                is_over = false;
                let mut next = done;
                next[thread] += 1;
                order.push(*step);
                extend(next, order, all);
                order.pop();
            }
        }
        if is_over {
            all.push(order.clone());
        }
    }
    let mut all = Vec::new();
    extend([0; 3], &mut Vec::new(), &mut all);
    all
}

/// The tickets that were settled in this order of steps. A renewer that is wrong forgets tickets whose requests ended.
fn run(order: &[Step], is_renewer_right: bool) -> (Vec<u32>, usize) {
    let table = PermitTable::<u32>::default();
    let mut numbers = [0; 3];
    let (mut settled, mut taken) = (Vec::new(), None);
    for step in order {
        match step {
            Step::Begin(ticket) => {
                numbers[usize::try_from(*ticket).unwrap()] = table.insert(*ticket, START, LEASE);
            }
            Step::End(ticket) => {
                settled.extend(table.remove(numbers[usize::try_from(*ticket).unwrap()]));
            }
            Step::TakeDue => taken = table.take_due(LATE),
            Step::PutBack => {
                if let Some((number, ticket)) = taken.take() {
                    let ended = table.put_back(number, ticket, START, true);
                    settled.extend(ended.filter(|_| is_renewer_right));
                }
            }
        }
    }
    settled.sort_unstable();
    (settled, table.usage().0)
}

#[test]
fn i14_every_permit_is_released_once_in_every_order_of_ends_and_renewals() {
    let orders = orders();
    assert_eq!(orders.len(), 420);
    for order in &orders {
        assert_eq!(run(order, true), (vec![1, 2], 0), "{order:?}");
    }
    let is_lost = |order: &&Vec<Step>| run(order, false).0 != [1, 2];
    assert!(orders.iter().any(|order| is_lost(&order)), "the control");
}

#[test]
fn leases_are_renewed_after_a_third_of_them() {
    let table = PermitTable::<u32>::default();
    assert!(table.is_empty());
    let number = table.insert(1, START, LEASE);
    let renewals = std::cell::Cell::new(0);
    let renew_at = |seconds: u64| {
        let now = Timestamp::from_secs(1_000 + seconds);
        table.renew_due(now, |_| {
            renewals.set(renewals.get() + 1);
            renewals.get() < 3
        });
        renewals.get()
    };
    let counts = [19, 20, 39, 40, 1_000].map(renew_at);
    assert_eq!(counts, [0, 1, 1, 2, 3]);
    assert_eq!(table.usage(), (1, 1), "the last renewal came too late");
    assert_eq!(table.remove(number), Some(1));
    assert_eq!(table.remove(number), None);
    assert!(table.is_empty());
}
