//! Order, bounds and fairness of the queue.

use proptest::prelude::*;
use tollgate_core::{Nanos, Timestamp};

use super::{PriorityQueue, PushOutcome, STANDING};
use crate::priority_class::PriorityClass;

fn at(millis: u64) -> Timestamp {
    Timestamp::from_secs(10).after(Nanos::from_millis(millis))
}

fn class(index: usize) -> PriorityClass {
    PriorityClass::new(index).unwrap()
}

fn pop(queue: &mut PriorityQueue<u64>, millis: u64) -> (Option<u64>, Vec<u64>) {
    let mut expired = Vec::new();
    let item = queue.pop(at(millis), |item| expired.push(item));
    (item, expired)
}

#[test]
fn classes_come_in_order_and_a_fresh_class_in_order_of_arrival() {
    let mut queue = PriorityQueue::new();
    for item in 0..3 {
        queue.push(at(item), class(1), 7, item, 100);
        queue.push(at(item), class(0), 7, 10 + item, 100);
    }
    let order: Vec<_> = (0..6).map(|_| pop(&mut queue, 5).0.unwrap()).collect();
    // A tenant waits in several queues of its hand, so that its own order is that of turns.
    assert_eq!(order, [10, 11, 12, 0, 1, 2]);
    assert!(queue.is_empty());
}

#[test]
fn a_standing_queue_serves_the_newest_and_drops_what_waited_long() {
    let mut queue = PriorityQueue::new();
    // One item leaves for two that arrive, so that the queue is never empty.
    let mut expired = Vec::new();
    for millis in 0..200 {
        queue.push(at(millis), class(0), 7, 2 * millis, 10_000);
        queue.push(at(millis), class(0), 7, 2 * millis + 1, 10_000);
        let (item, dropped) = pop(&mut queue, millis);
        expired.extend(dropped);
        let age = millis - item.unwrap() / 2;
        if millis < STANDING.as_millis_ceil() {
            assert!(expired.is_empty());
        } else {
            assert!(age <= 5, "at {millis} ms an item of {age} ms was served");
        }
    }
    assert!(queue.is_overloaded(at(200), class(0)));
    assert!(expired.len() > 150, "{}", expired.len());
    // When the queue was emptied, the order of arrival is back.
    while pop(&mut queue, 200).0.is_some() {}
    assert!(!queue.is_overloaded(at(200), class(0)));
    queue.push(at(300), class(0), 7, 1, 100);
    assert_eq!(pop(&mut queue, 390), (Some(1), vec![]));
}

/// The limit grew, and all requests that waited started. If the class then collected items for 100 ms, it would refuse them in
/// one batch.
#[test]
fn a_burst_of_places_does_not_end_the_overload_of_a_class() {
    let mut queue = PriorityQueue::new();
    let mut arrive_and_leave = |from: u64, to: u64| {
        let mut expired = 0;
        for millis in from..to {
            queue.push(at(millis), class(0), 7, 2 * millis, 10_000);
            queue.push(at(millis), class(0), 7, 2 * millis + 1, 10_000);
            expired += pop(&mut queue, millis).1.len();
        }
        if to == 400 {
            while pop(&mut queue, 400).0.is_some() {}
        }
        expired
    };
    assert!(arrive_and_leave(0, 400) > 150);
    let next = arrive_and_leave(401, 421);
    assert!((10..=20).contains(&next), "{next} of 20 that are too many");
}

/// Without an excess a class that was emptied has no standing queue.
#[test]
fn a_class_that_rarely_expires_an_item_ends_its_overload_when_it_is_emptied() {
    let mut queue = PriorityQueue::new();
    for millis in 0..400 {
        queue.push(at(millis), class(0), 7, millis, 10_000);
        // One item is always left, until it expires, and a new one takes its place.
        if millis > 0 {
            pop(&mut queue, millis);
        }
        if millis % 40 == 0 {
            queue.push(at(millis), class(0), 7, 10_000 + millis, 10_000);
        }
    }
    while pop(&mut queue, 400).0.is_some() {}
    queue.push(at(401), class(0), 7, 1, 100);
    assert_eq!(pop(&mut queue, 450), (Some(1), vec![]));
}

#[test]
fn a_full_queue_evicts_the_lowest_class_and_refuses_its_equals() {
    let mut queue = PriorityQueue::new();
    assert_eq!(queue.push(at(0), class(2), 1, 20, 2), PushOutcome::Queued);
    assert_eq!(queue.push(at(0), class(1), 1, 10, 2), PushOutcome::Queued);
    assert_eq!(queue.push(at(0), class(2), 1, 21, 2), PushOutcome::Full(21));
    assert_eq!(
        queue.push(at(0), class(0), 1, 0, 2),
        PushOutcome::Evicted(20)
    );
    assert_eq!(
        queue.push(at(0), class(0), 1, 1, 2),
        PushOutcome::Evicted(10)
    );
    assert_eq!(queue.push(at(0), class(0), 1, 2, 2), PushOutcome::Full(2));
    assert_eq!((queue.len(), queue.len_of(class(0))), (2, 2));
}

#[test]
fn one_tenant_with_very_many_requests_does_not_starve_others() {
    let mut queue = PriorityQueue::new();
    for item in 0..1_000 {
        queue.push(at(0), class(0), 1, item, 10_000);
    }
    for tenant in 2..12 {
        queue.push(at(0), class(0), tenant, 10_000 + tenant, 10_000);
    }
    let served: Vec<u64> = (0..40).filter_map(|_| pop(&mut queue, 1).0).collect();
    let others = served.iter().filter(|item| **item >= 10_000).count();
    assert!(others >= 9, "{others} of 10 others were among the first 40");
}

proptest! {
    #[test]
    fn every_item_leaves_exactly_once(
        events in prop::collection::vec((0_usize..4, any::<u64>(), 0_u64..40, any::<bool>()), 1..400),
    ) {
        let mut queue = PriorityQueue::new();
        let (mut now, mut left, mut pushed) = (0, Vec::new(), 0);
        for (class_index, tenant, wait, is_push) in events {
            now += wait;
            if is_push {
                match queue.push(at(now), class(class_index), tenant, pushed, 20) {
                    PushOutcome::Queued => {}
                    PushOutcome::Evicted(item) | PushOutcome::Full(item) => left.push(item),
                }
                pushed += 1;
            } else {
                let (item, expired) = pop(&mut queue, now);
                left.extend(expired);
                left.extend(item);
            }
            prop_assert!(queue.len() <= 20);
            prop_assert_eq!(left.len() as u64 + queue.len() as u64, pushed);
        }
        queue.drain(|item| left.push(item));
        left.sort_unstable();
        prop_assert_eq!(left, (0..pushed).collect::<Vec<_>>());
    }
}
