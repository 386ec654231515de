//! Which keys are leased: those that are used often.

use super::*;

impl LeaseTest {
    /// One request, as a node of a fleet makes it: a lease is requested only if it pays.
    fn spend_if_worthwhile(&self, check: &QuotaCheck<'_>) -> SpendOutcome {
        let now = || self.clock.now();
        match self.leases.spend(check, now()) {
            SpendOutcome::Borrow if self.leases.is_lease_worthwhile(check, now()) => {
                let borrow = self.leases.borrow(&self.broker, None, check, now);
                poll_once(borrow).unwrap().unwrap()
            }
            SpendOutcome::Borrow => {
                let spend = self.leases.spend_at_broker(&self.broker, None, check);
                poll_once(spend).unwrap().unwrap()
            }
            outcome => outcome,
        }
    }
}

fn check_of<'a>(limit: &'a IdentifiedLimit, key: &'a [u8]) -> QuotaCheck<'a> {
    QuotaCheck {
        key: StoreKey::new(key).unwrap(),
        ..check(limit, 1)
    }
}

/// Every request of a cold key borrowed one unit, and the background returned it later: two calls for each request.
#[test]
fn a_key_that_is_used_rarely_costs_one_call_for_each_request_and_no_memory() {
    let test = LeaseTest::new();
    let limit = bucket_limit(100, 100);
    for round in 0..5 {
        for key in 0..1_000_u32 {
            let key = key.to_be_bytes();
            let outcome = test.spend_if_worthwhile(&check_of(&limit, &key));
            assert!(matches!(outcome, SpendOutcome::Admitted(_)));
        }
        test.advance(2_000);
        test.maintain();
        assert_eq!(test.calls(), (round + 1) * 1_000);
    }
    assert_eq!(test.leases.totals().keys, 0);
}

#[test]
fn a_key_that_is_used_often_is_leased_until_it_rests() {
    let test = LeaseTest::new();
    let limit = bucket_limit(1_000, 10_000);
    let one = check(&limit, 1);
    let spend = |millis| {
        test.advance(millis);
        let before = test.calls();
        assert!(matches!(
            test.spend_if_worthwhile(&one),
            SpendOutcome::Admitted(_)
        ));
        test.maintain_on_demand();
        test.calls() - before
    };
    let calls: usize = (0..1_000).map(|_| spend(10)).sum();
    assert!(calls < 60, "{calls} calls for 1,000 requests");
    assert_eq!(test.leases.totals().keys, 1);
    // Once in a while between the two rates it stays as it is.
    spend(400);
    assert_eq!(test.leases.totals().keys, 1);
    test.advance(3_000);
    test.maintain();
    test.advance(3_000);
    test.maintain();
    assert_eq!(test.leases.totals().keys, 0, "it was not used");
    assert_eq!(
        (0..3).map(|_| spend(1_500)).sum::<usize>(),
        3,
        "decided by single calls"
    );
    assert_eq!(test.leases.totals().keys, 0);
}

/// An attacker who lets a key rest as soon as it is leased costs one call more for each lease: its return.
#[test]
fn a_key_that_is_hot_and_cold_in_turn_costs_at_most_a_quarter_more_calls_than_requests() {
    let test = LeaseTest::new();
    let limit = bucket_limit(1_000, 10_000);
    let one = check(&limit, 1);
    let mut requests = 0;
    for _ in 0..50 {
        for _ in 0..LeaseOptions::default().lease_from {
            assert!(matches!(
                test.spend_if_worthwhile(&one),
                SpendOutcome::Admitted(_)
            ));
            requests += 1;
        }
        for _ in 0..20 {
            test.advance(100);
            test.maintain();
        }
    }
    let calls = test.calls();
    assert!(
        calls <= requests + requests / 4,
        "{calls} calls for {requests}"
    );
}

/// A flood of a small limit: the broker is asked about once for each unit, and not for each request.
#[test]
fn a_flood_of_a_small_limit_is_denied_on_this_node() {
    let test = LeaseTest::new();
    let limit = bucket_limit(5, 5);
    let mut admitted = 0;
    for _ in 0..10_000 {
        test.advance(1);
        let outcome = test.spend_if_worthwhile(&check(&limit, 1));
        admitted += usize::from(matches!(outcome, SpendOutcome::Admitted(_)));
    }
    assert!((50..=55).contains(&admitted), "{admitted}");
    assert!(test.calls() <= admitted + 8, "{} calls", test.calls());
}

/// A response that cost more than was charged found no lease to charge it to, and was free.
#[test]
fn a_charge_without_a_lease_that_turns_out_higher_is_paid_by_the_next_lease() {
    let test = LeaseTest::new();
    let limit = bucket_limit(1, 100);
    let one = check(&limit, 1);
    let spent = reply(test.spend_if_worthwhile(&one)).receipt;
    assert_eq!((spent.cost, spent.mark), (1, 0));
    let settle = |actual| {
        test.leases
            .settle(None, &one, &spent, actual, test.clock.now())
    };
    assert_eq!(settle(0), 0, "nothing to refund it to");
    assert_eq!(test.leases.totals().keys, 0);
    settle(40);
    let admitted = (0..200)
        .filter(|_| matches!(test.spend_if_worthwhile(&one), SpendOutcome::Admitted(_)))
        .count();
    assert_eq!(admitted, 100 - 40);
}
