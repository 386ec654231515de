//! The leased bucket: grants, reports, returns, expiries and the reset.

use super::super::lease_request::LeaseRequest;
use super::*;
use crate::rate::Rate;

const DURATION: Nanos = Nanos::from_secs(10);

fn quota() -> TokenBucket {
    TokenBucket::builder(Rate::per_second(1))
        .burst(10)
        .build()
        .unwrap()
}

fn at(second: u64) -> Timestamp {
    Timestamp::from_secs(second)
}

fn spec(id: u128, most: u64) -> LeaseSpec {
    LeaseSpec {
        id: QuotaLeaseId(id),
        min_units: 1,
        max_units: most,
        duration: DURATION,
    }
}

fn report(id: u128, spent: u64, age: u64) -> LeaseReport {
    LeaseReport {
        id: QuotaLeaseId(id),
        spent,
        last_spend_age: Nanos::from_secs(age),
        is_last: false,
    }
}

fn last_report(id: u128, spent: u64) -> LeaseReport {
    LeaseReport {
        is_last: true,
        ..report(id, spent, 0)
    }
}

#[test]
fn leased_units_are_not_admitted_by_the_bucket() {
    let mut bucket = LeasedBucket::default();
    assert_eq!(bucket.grant(&quota(), at(0), &spec(1, 7)), 7);
    assert_eq!(
        bucket.grant(&quota(), at(0), &spec(1, 7)),
        7,
        "a repeated request leases nothing more"
    );
    assert_eq!(bucket.decide(&quota(), at(0), 3), Outcome::Allow);
    assert_eq!(bucket.grant(&quota(), at(0), &spec(2, 5)), 0);
    assert_eq!(bucket.status(&quota(), at(0)).remaining, 0);
    assert_eq!(bucket.decide(&quota(), at(0), 11), Outcome::Never);
}

#[test]
fn nothing_is_granted_below_the_minimum() {
    let mut bucket = LeasedBucket::default();
    bucket.decide(&quota(), at(0), 6);
    let at_least_five = LeaseSpec {
        min_units: 5,
        ..spec(1, 10)
    };
    let request = LeaseRequest {
        lease: Some(at_least_five),
        ..LeaseRequest::default()
    };
    let rejected = bucket.handle(&quota(), at(0), &request);
    assert_eq!((rejected.units, rejected.retry_after), (0, Nanos::SECOND));
    assert_eq!(bucket.handle(&quota(), at(1), &request).units, 5);
}

#[test]
fn a_request_whose_direct_cost_is_denied_gets_no_lease() {
    let mut bucket = LeasedBucket::default();
    let request = LeaseRequest {
        direct_cost: 8,
        lease: Some(spec(1, 1)),
        ..LeaseRequest::default()
    };
    assert_eq!(bucket.handle(&quota(), at(0), &request).units, 1);
    let request = LeaseRequest {
        lease: Some(spec(2, 1)),
        ..request
    };
    let denied = bucket.handle(&quota(), at(0), &request);
    assert!(matches!(denied.direct_outcome, Outcome::Deny { .. }));
    assert_eq!((denied.units, denied.status.remaining), (0, 1));
}

#[test]
fn a_crashed_node_costs_its_lease_and_no_more() {
    let mut bucket = LeasedBucket::default();
    bucket.grant(&quota(), at(0), &spec(1, 10));
    let denied = bucket.decide(&quota(), at(0), 1);
    assert_eq!(
        denied,
        Outcome::Deny {
            retry_after: Nanos::from_secs(11)
        }
    );
    let early = Timestamp::from_nanos(10_999_999_999);
    assert!(!bucket.decide(&quota(), early, 1).is_admitted());
    assert_eq!(bucket.decide(&quota(), at(11), 1), Outcome::Allow);
}

#[test]
fn a_report_counts_from_when_the_units_were_spent() {
    let mut bucket = LeasedBucket::default();
    bucket.grant(&quota(), at(0), &spec(1, 10));
    assert!(bucket.apply_report(&quota(), at(6), &report(1, 10, 4)));
    assert_eq!(
        bucket.status(&quota(), at(6)).remaining,
        4,
        "four seconds have refilled four"
    );
    assert!(
        !bucket.apply_report(&quota(), at(6), &report(1, 10, 0)),
        "the lease is fully spent"
    );
}

#[test]
fn the_units_of_a_returned_lease_are_left_at_once() {
    let mut bucket = LeasedBucket::default();
    bucket.grant(&quota(), at(0), &spec(1, 10));
    bucket.apply_report(&quota(), at(1), &report(1, 2, 0));
    assert!(bucket.apply_report(&quota(), at(1), &last_report(1, 2)));
    assert_eq!(bucket.status(&quota(), at(1)).remaining, 8);
    assert!(!bucket.apply_report(&quota(), at(1), &last_report(1, 2)));
}

/// Regression, caught by the simulation: a node spends five of ten units, its report is lost, and it returns the lease. The return
/// took all ten units back, so the five were never charged.
#[test]
fn a_return_charges_what_a_lost_report_would_have_charged() {
    let mut bucket = LeasedBucket::default();
    bucket.grant(&quota(), at(0), &spec(1, 10));
    assert!(bucket.apply_report(&quota(), at(1), &last_report(1, 5)));
    assert_eq!(bucket.status(&quota(), at(1)).remaining, 5);
    assert!(
        !bucket.apply_report(&quota(), at(1), &report(1, 5, 1)),
        "the last report came first"
    );
    assert_eq!(bucket.status(&quota(), at(1)).remaining, 5);
}

/// Regression, found by modelling every order of messages: reports carried only the new units, and a report that arrived twice
/// charged units that were spent later, after refill had replaced them.
#[test]
fn a_report_that_arrives_twice_is_counted_once() {
    let mut bucket = LeasedBucket::default();
    bucket.grant(&quota(), at(0), &spec(1, 10));
    for _ in 0..2 {
        assert!(bucket.apply_report(&quota(), at(0), &report(1, 4, 0)));
    }
    assert_eq!(
        bucket.leases().first().map(QuotaLease::outstanding_blocks),
        Some(6)
    );
    assert!(
        bucket.apply_report(&quota(), at(0), &report(1, 3, 0)),
        "an older report"
    );
    assert_eq!(
        bucket.leases().first().map(QuotaLease::outstanding_blocks),
        Some(6)
    );
}

/// Regression, caught by the simulation: in blocks of ten, a report of one unit was charged as a whole block, which left the lease.
/// Its other nine units could still be spent, after refill had replaced them.
#[test]
fn a_partly_spent_block_stays_outstanding_until_it_is_spent_or_returned() {
    let quota = TokenBucket::builder(Rate::per_second(10))
        .burst(20)
        .block(10)
        .build()
        .unwrap();
    let mut bucket = LeasedBucket::default();
    assert_eq!(bucket.grant(&quota, at(0), &spec(1, 10)), 10);
    assert!(bucket.apply_report(&quota, at(0), &report(1, 1, 0)));
    assert_eq!(
        bucket.status(&quota, at(9)).remaining,
        10,
        "nine units may still be spent"
    );
    let mut returned = bucket.clone();
    assert!(returned.apply_report(&quota, at(9), &last_report(1, 1)));
    assert_eq!(returned.leases(), []);
    assert_eq!(
        returned.status(&quota, at(9)).remaining,
        10,
        "charged as a whole block"
    );
    assert!(bucket.apply_report(&quota, at(9), &report(1, 10, 0)));
    assert_eq!(bucket.leases(), []);
    assert_eq!(
        bucket.status(&quota, at(9)).remaining,
        10,
        "now the block is spent"
    );
}

#[test]
fn the_reset_comes_after_the_expiry_of_outstanding_leases() {
    let mut bucket = LeasedBucket::default();
    bucket.grant(&quota(), at(0), &spec(1, 4));
    assert_eq!(
        bucket.status(&quota(), at(0)).reset_after,
        Nanos::from_secs(14),
        "expired after ten seconds, refilled after four more"
    );
}

#[test]
fn the_reset_comes_after_every_expired_lease_has_refilled() {
    let mut bucket = LeasedBucket::default();
    bucket.grant(&quota(), at(0), &spec(1, 4));
    let longer = LeaseSpec {
        duration: Nanos::from_secs(12),
        ..spec(2, 4)
    };
    bucket.grant(&quota(), at(0), &longer);
    assert_eq!(bucket.reset_at(&quota()), 18_000_000_000);
}
