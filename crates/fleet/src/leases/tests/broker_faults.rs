//! Returned leases, an unavailable broker, dropped requests and a full table.

use super::*;

#[test]
fn idle_leases_are_returned_and_all_leases_at_shutdown() {
    let test = LeaseTest::new();
    let limit = bucket_limit(1, 1_000);
    for _ in 0..100 {
        assert!(test.is_admitted(&check(&limit, 1)));
    }
    assert!(
        test.broker.remaining(KEY, &limit) < 900,
        "some units are leased"
    );
    test.advance(1_200);
    test.maintain();
    assert_eq!(test.broker.remaining(KEY, &limit), 901, "one has refilled");
    assert_eq!(test.broker.lease_count(KEY), 0);
    test.advance(1_200);
    test.maintain();
    assert_eq!(test.leases.totals().keys, 0, "idle keys are dropped");

    assert!(test.is_admitted(&check(&limit, 1)));
    let returning = test.leases.return_all(&test.broker, || test.clock.now());
    assert_eq!(poll_once(returning).unwrap().failed, 0);
    assert_eq!(test.broker.lease_count(KEY), 0);
    assert!(test.is_admitted(&check(&limit, 1)), "the broker decides");
    assert_eq!(
        test.broker.lease_count(KEY),
        0,
        "no lease is granted any more"
    );
}

#[test]
fn an_unavailable_broker_is_an_error_for_all_waiting_checks_and_loses_nothing() {
    let test = LeaseTest::new();
    let limit = bucket_limit(1, 1_000);
    let one = check(&limit, 1);
    test.broker.set_fate(Fate::InFlight);
    let now = || test.clock.now();
    let mut context = Context::from_waker(Waker::noop());
    let mut first = pin!(test.leases.borrow(&test.broker, None, &one, now));
    let mut other = pin!(test.leases.borrow(&test.broker, None, &one, now));
    assert!(first.as_mut().poll(&mut context).is_pending());
    assert!(other.as_mut().poll(&mut context).is_pending());
    test.broker.deliver(0);
    test.broker.deliver_reply(0, true);
    for (waiting, kind) in [
        (first, StoreErrorKind::TimedOut),
        (other, StoreErrorKind::Busy),
    ] {
        let Poll::Ready(Err(error)) = waiting.poll(&mut context) else {
            panic!("both fail");
        };
        assert_eq!(error.kind(), kind);
    }
    assert_eq!(test.calls(), 1, "no retry");
    assert_eq!(
        test.broker.lease_count(KEY),
        1,
        "the node does not know of the lease"
    );
    test.broker.set_fate(Fate::Immediate);
    assert!(test.is_admitted(&one));
    assert_eq!(
        test.broker.lease_count(KEY),
        1,
        "it was returned with the next request"
    );
    test.broker.set_fate(Fate::Unreachable);
    let failed = (0..1_000).find_map(|_| test.spend(&one).err());
    assert_eq!(failed, Some(StoreErrorKind::Unreachable));
}

#[test]
fn when_a_request_is_dropped_the_waiting_checks_send_their_own() {
    let test = LeaseTest::new();
    let limit = bucket_limit(1, 1_000);
    let one = check(&limit, 1);
    test.broker.set_fate(Fate::InFlight);
    let now = || test.clock.now();
    let mut context = Context::from_waker(Waker::noop());
    let mut first = Box::pin(test.leases.borrow(&test.broker, None, &one, now));
    let mut other = pin!(test.leases.borrow(&test.broker, None, &one, now));
    assert!(first.as_mut().poll(&mut context).is_pending());
    assert!(other.as_mut().poll(&mut context).is_pending());
    test.broker.deliver(0);
    drop(first);
    test.broker.set_fate(Fate::Immediate);
    let outcome = other.poll(&mut context);
    assert!(matches!(
        outcome,
        Poll::Ready(Ok(SpendOutcome::Admitted(_)))
    ));
    let reports = &test.broker.calls()[1].reports;
    assert!(
        reports
            .iter()
            .any(|report| report.is_last && report.spent == 0)
    );
}

#[test]
fn keys_that_do_not_fit_are_decided_by_the_broker() {
    let test = LeaseTest::new();
    let leases = LocalLeases::new(LeaseOptions {
        max_keys: 1,
        ..LeaseOptions::default()
    });
    let limit = bucket_limit(1, 2);
    let mut admitted = 0;
    for key in 0..200_u32 {
        let key = key.to_be_bytes();
        let check = QuotaCheck {
            key: tollgate_store::StoreKey::new(&key).unwrap(),
            ..check(&limit, 1)
        };
        for _ in 0..5 {
            let outcome = test.spend_on(&leases, &check).unwrap();
            admitted += u64::from(matches!(outcome, SpendOutcome::Admitted(_)));
        }
    }
    assert_eq!(admitted, 400);
    let totals = leases.totals();
    assert!(totals.keys <= 64 && totals.table_full > 0, "{totals:?}");
}
