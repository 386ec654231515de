//! Refunds and settlements of charges to a lease.

use super::*;

#[test]
fn a_charge_that_another_limit_denied_is_refunded_to_the_lease() {
    let test = LeaseTest::new();
    let limit = bucket_limit(1, 10);
    let one = check(&limit, 1);
    for _ in 0..200 {
        let spent = reply(test.spend(&one).unwrap());
        assert!(spent.outcome.is_admitted(), "denied requests cost nothing");
        let back = test.leases.refund(&one, &spent.receipt, test.clock.now());
        assert_eq!(back, 1);
    }
    assert!(test.calls() <= 2);
    let spent = reply(test.spend(&one).unwrap());
    test.advance(1_500);
    test.maintain();
    let back = test.leases.refund(&one, &spent.receipt, test.clock.now());
    assert_eq!(
        (back, test.leases.totals().not_refunded),
        (0, 1),
        "the charge was reported"
    );
    let again = test
        .leases
        .refund(&one, &Receipt::default(), test.clock.now());
    assert_eq!(again, 0, "an unknown charge is not refunded");
}

#[test]
fn a_higher_actual_cost_is_taken_from_the_next_lease() {
    let test = LeaseTest::new();
    let limit = bucket_limit(1, 10);
    let one = check(&limit, 1);
    let spent = reply(test.spend(&one).unwrap());
    test.leases
        .settle(None, &one, &spent.receipt, 5, test.clock.now());
    let more = (0..20).filter(|_| test.is_admitted(&one)).count();
    assert_eq!(more, 5, "of ten, one and four more were spent");
}

/// Refunding a reported charge would allow a unit to be spent again after the refill has replaced it.
#[test]
fn reported_charges_are_not_refunded_even_if_more_was_spent_since() {
    let test = LeaseTest::new();
    let limit = bucket_limit(1, 100);
    let one = check(&limit, 1);
    let spend = || reply(test.spend(&one).unwrap()).receipt;
    for _ in 0..18 {
        spend();
    }
    let first = spend();
    test.advance(900);
    spend();
    test.advance(200);
    test.maintain();
    let second = spend();
    let refund = |receipt| test.leases.refund(&one, &receipt, test.clock.now());
    assert_eq!((refund(first), refund(second)), (0, 1));
}

#[test]
fn charges_of_one_lease_are_not_refunded_to_another() {
    let test = LeaseTest::new();
    let limit = bucket_limit(1, 1_000);
    let one = check(&limit, 1);
    let spend = || test.leases.spend(&one, test.clock.now());
    for _ in 0..60 {
        assert!(test.is_admitted(&one));
        test.maintain_on_demand();
    }
    while poll_once(test.leases.wait_for_demand()).is_none() {
        assert!(test.is_admitted(&one));
    }
    test.broker.set_fate(Fate::InFlight);
    let mut maintenance = pin!(test.leases.maintain(&test.broker, || test.clock.now()));
    let mut context = Context::from_waker(Waker::noop());
    assert!(maintenance.as_mut().poll(&mut context).is_pending());
    let mut last = None;
    while let SpendOutcome::Admitted(reply) = spend() {
        last = Some(reply.receipt);
    }
    let in_flight = test.calls() - 1;
    test.broker.deliver(in_flight);
    test.broker.deliver_reply(in_flight, false);
    assert!(maintenance.poll(&mut context).is_ready());
    let next = reply(spend()).receipt;
    let refund = |receipt| test.leases.refund(&one, &receipt, test.clock.now());
    assert_eq!((refund(last.unwrap()), refund(next)), (0, 1));
}
