//! How many leases a node requests, and how large.

use super::*;

#[test]
fn a_hot_key_needs_few_calls_and_admits_exactly_the_limit() {
    let test = LeaseTest::new();
    let limit = bucket_limit(100, 10_000);
    let admitted = (0..30_000).filter(|_| {
        let is_admitted = test.is_admitted(&check(&limit, 1));
        test.maintain_on_demand();
        is_admitted
    });
    assert_eq!(
        admitted.count(),
        10_000,
        "no time passes, so nothing refills"
    );
    assert!(test.calls() * 20 <= 10_000, "{} calls", test.calls());
}

#[test]
fn a_small_limit_is_leased_unit_by_unit() {
    let test = LeaseTest::new();
    test.leases.set_nodes(3);
    let limit = bucket_limit(1, 5);
    for left in (0..5).rev() {
        assert!(test.is_admitted(&check(&limit, 1)));
        assert_eq!(
            test.broker.remaining(KEY, &limit),
            left,
            "no unit is leased ahead"
        );
    }
    assert!(!test.is_admitted(&check(&limit, 1)));
}

#[test]
fn no_lease_exceeds_a_fair_share_and_all_nodes_together_get_the_limit() {
    let test = LeaseTest::new();
    let limit = bucket_limit(1, 3_000);
    let nodes = [test.other_node(), test.other_node(), test.other_node()];
    let mut admitted = [0_u64; 3];
    for node in &nodes {
        node.set_nodes(3);
    }
    for _ in 0..2_000 {
        for (node, admitted) in nodes.iter().zip(&mut admitted) {
            let outcome = test.spend_on(node, &check(&limit, 1)).unwrap();
            *admitted += u64::from(matches!(outcome, SpendOutcome::Admitted(_)));
        }
    }
    assert_eq!(admitted.iter().sum::<u64>(), 3_000);
    assert!(admitted.iter().all(|one| *one > 900), "{admitted:?}");
    let calls = test.broker.calls();
    let largest = calls
        .iter()
        .filter_map(|call| call.lease)
        .map(|lease| lease.max_units);
    assert_eq!(largest.max(), Some(500));
}

#[test]
fn one_request_serves_all_waiting_checks_and_a_second_those_it_was_too_small_for() {
    let test = LeaseTest::new();
    test.broker.set_fate(Fate::InFlight);
    let limit = bucket_limit(1, 1_000);
    let checks = check(&limit, 1);
    let now = || test.clock.now();
    let mut borrowing: Vec<_> = (0..50)
        .map(|_| Box::pin(test.leases.borrow(&test.broker, None, &checks, now)))
        .collect();
    let mut context = Context::from_waker(Waker::noop());
    let mut admitted = 0;
    for round in 0..2 {
        borrowing.retain_mut(|one| one.as_mut().poll(&mut context).is_pending());
        assert_eq!(test.calls(), round + 1);
        test.broker.deliver(round);
        test.broker.deliver_reply(round, false);
        // The request that asked the broker is served first; the waiting ones look again.
        borrowing.retain_mut(|one| match one.as_mut().poll(&mut context) {
            Poll::Ready(Ok(SpendOutcome::Admitted(_))) => {
                admitted += 1;
                false
            }
            _ => true,
        });
    }
    borrowing.retain_mut(|one| match one.as_mut().poll(&mut context) {
        Poll::Ready(Ok(SpendOutcome::Admitted(_))) => {
            admitted += 1;
            false
        }
        _ => true,
    });
    assert_eq!((admitted, borrowing.len(), test.calls()), (50, 0, 2));
}

/// Traffic at a hundred times the limit makes hardly more calls than admitted requests.
#[test]
fn traffic_far_beyond_the_limit_makes_hardly_any_calls() {
    let test = LeaseTest::new();
    let limit = bucket_limit(10, 10);
    let mut admitted = 0;
    for _ in 0..10_000 {
        test.advance(1);
        admitted += usize::from(test.is_admitted(&check(&limit, 1)));
    }
    assert!((100..=110).contains(&admitted), "{admitted}");
    assert!(test.calls() <= admitted + 1, "{} calls", test.calls());

    let test = LeaseTest::new();
    let slow = bucket_limit(1, 1);
    let first = test.is_admitted(&check(&slow, 1));
    let again = (0..900)
        .filter(|_| test.is_admitted(&check(&slow, 1)))
        .count();
    assert_eq!((first, again, test.calls()), (true, 0, 1));
}

/// Four threads on two nodes: exactly the limit is admitted, and none waits forever.
#[test]
fn concurrent_threads_admit_exactly_the_limit() {
    let test = LeaseTest::new();
    let limit = bucket_limit(1, 20_000);
    let nodes = [test.other_node(), test.other_node()];
    let (test, limit) = (&test, &limit);
    let spending = |leases: &LocalLeases| {
        let one = check(limit, 1);
        let mut context = Context::from_waker(Waker::noop());
        let mut admitted = 0;
        for _ in 0..15_000 {
            let mut outcome = leases.spend(&one, test.clock.now());
            if outcome == SpendOutcome::Borrow {
                let now = || test.clock.now();
                let mut borrowing = pin!(leases.borrow(&test.broker, None, &one, now));
                outcome = loop {
                    if let Poll::Ready(outcome) = borrowing.as_mut().poll(&mut context) {
                        break outcome.unwrap();
                    }
                    std::thread::yield_now();
                };
            }
            admitted += u64::from(matches!(outcome, SpendOutcome::Admitted(_)));
        }
        admitted
    };
    let admitted: u64 = std::thread::scope(|scope| {
        let threads: Vec<_> = nodes
            .iter()
            .chain(&nodes)
            .map(|node| scope.spawn(|| spending(node)))
            .collect();
        threads.into_iter().map(|one| one.join().unwrap()).sum()
    });
    assert_eq!(admitted, 20_000);
}

#[test]
fn a_decision_from_a_lease_allocates_nothing() {
    let test = LeaseTest::new();
    let limit = bucket_limit(1_000_000, 1_000_000);
    let one = check(&limit, 1);
    for _ in 0..2_060 {
        assert!(test.is_admitted(&one));
    }
    let allocated = allocation::calls(|| {
        for _ in 0..500 {
            let outcome = test.leases.spend(&one, test.clock.now());
            assert!(matches!(outcome, SpendOutcome::Admitted(_)));
        }
    });
    assert_eq!(allocated, 0);
}
