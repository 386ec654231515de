//! Charges and refunds of a key's units.

use std::num::NonZeroU64;

use super::*;
use crate::control::{AdjustedKey, UnitAdjustment};
use tollgate_policy::attributes::{Attribute, Attributes};

fn units(units: u64) -> NonZeroU64 {
    NonZeroU64::new(units).unwrap()
}

fn key_of<'a>(limit: &'a str, values: &'a [&'a str]) -> AdjustedKey<'a> {
    AdjustedKey {
        limit,
        values,
        attributes: None,
    }
}

fn adjust(engine: &TestEngine, user: &str, adjustment: UnitAdjustment) -> u64 {
    let values = [user];
    let control = engine.control();
    let prepared = control
        .prepare_adjustment(key_of("api", &values), adjustment, OPERATOR)
        .unwrap();
    control.adjust(&prepared, OPERATOR).unwrap()
}

/// rate-limiter-flexible's `penalty` and `reward`, on every algorithm that counts units.
#[test]
fn charges_and_refunds_change_the_units_of_one_key() {
    for algorithm in [
        Algorithm::TokenBucket,
        Algorithm::FixedWindow,
        Algorithm::SlidingWindow,
        Algorithm::SlidingLog,
    ] {
        let (engine, _clock) = engine(vec![limit("api", quota(algorithm, &[(10, Nanos::HOUR)]))]);
        let charged = adjust(&engine, "alice", UnitAdjustment::Charge(units(7)));
        assert_eq!(charged, 3, "{algorithm:?}");
        assert_eq!(remaining(&engine, "alice"), 3, "{algorithm:?}");
        assert_eq!(remaining(&engine, "bob"), 10, "{algorithm:?}");
        let refunded = adjust(&engine, "alice", UnitAdjustment::Refund(units(2)));
        assert_eq!(refunded, 5, "{algorithm:?}");
        assert_eq!(admitted(&engine, "alice", 20), 5, "{algorithm:?}");
    }
}

/// A reward cannot mint: a full bucket stays full, however often it is rewarded. A penalty cannot lock a key out for longer
/// than its whole bucket takes to refill, however large it is.
#[test]
fn a_refund_stops_at_a_full_bucket_and_a_charge_at_an_empty_one() {
    let (engine, clock) = engine(vec![limit("api", per_second(10))]);
    for _ in 0..3 {
        assert_eq!(
            adjust(&engine, "alice", UnitAdjustment::Refund(units(u64::MAX))),
            10
        );
    }
    assert_eq!(admitted(&engine, "alice", 50), 10);
    for _ in 0..3 {
        assert_eq!(
            adjust(&engine, "alice", UnitAdjustment::Charge(units(u64::MAX))),
            0
        );
    }
    assert_eq!(admitted(&engine, "alice", 50), 0);
    clock.advance(Nanos::SECOND);
    assert_eq!(
        admitted(&engine, "alice", 50),
        10,
        "it is full after a second"
    );
}

/// With several windows, each of them is changed, and the fewest units are reported.
#[test]
fn every_window_of_a_limit_is_changed() {
    let windows = [(5, Nanos::SECOND), (8, Nanos::HOUR)];
    let (engine, clock) = engine(vec![limit("api", quota(Algorithm::FixedWindow, &windows))]);
    assert_eq!(
        adjust(&engine, "alice", UnitAdjustment::Charge(units(4))),
        1
    );
    clock.advance(Nanos::SECOND);
    assert_eq!(admitted(&engine, "alice", 20), 4, "8 an hour less 4");
}

#[test]
fn adjustments_are_in_the_audit_log_and_invalidate_cached_denials() {
    let (engine, _clock) = engine(vec![limit("api", per_second(10))]);
    let version = || engine.generation().version();
    let before = version();
    adjust(&engine, "alice", UnitAdjustment::Charge(units(3)));
    assert_eq!(version(), before, "a charge makes no cached denial wrong");
    adjust(&engine, "alice", UnitAdjustment::Refund(units(2)));
    assert!(version() > before);
    let events: Vec<String> = engine
        .control()
        .events()
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(
        events,
        [
            "ada: 3 units charged to key `alice` of limit `api` (a test)",
            "ada: 2 units refunded to key `alice` of limit `api` (a test)",
        ]
    );
}

/// A store that is away changes nothing, and nothing is logged as done.
#[test]
fn a_store_that_fails_leaves_no_audit_event() {
    let engine = flaky_engine(vec![limit("api", per_second(10))]);
    let control = engine.control();
    let charge = UnitAdjustment::Charge(units(3));
    let prepared = control
        .prepare_adjustment(key_of("api", &["alice"]), charge, OPERATOR)
        .unwrap();
    engine.store().is_down.store(true, Ordering::Relaxed);
    let error = control.adjust(&prepared, OPERATOR).unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unreachable);
    assert!(control.events().is_empty());
}

struct Plan(&'static [u8]);

impl Attributes for Plan {
    fn get(&self, attribute: &Attribute) -> Option<&[u8]> {
        (*attribute == Attribute::Claim("plan".into())).then_some(self.0)
    }
}

/// A unit of a tier is another share of the bucket, so the tier has to be known.
#[test]
fn a_limit_with_tiers_needs_the_attributes_that_select_one() {
    let text = "limits: [{ name: api, key: header.x-api-key, rate: 10/h, tiers: { by: claim.plan, pro: 100/h } }]";
    let policy = tollgate_policy::load(
        text,
        "policy.yaml",
        tollgate_policy::source::SourceFormat::Yaml,
    )
    .unwrap();
    let rules = Rules::compile(&policy, [7; 16]).unwrap();
    let engine = Engine::new(rules, MemoryStore::for_keys(100).unwrap()).unwrap();
    let control = engine.control();
    let charge = UnitAdjustment::Charge(units(5));
    let error = control
        .prepare_adjustment(key_of("api", &["alice"]), charge, OPERATOR)
        .unwrap_err();
    assert!(error.to_string().starts_with("attributes: "), "{error}");
    for (plan, left) in [(&b"pro"[..], 95), (b"free", 5)] {
        let plan = Plan(plan);
        let values = [if left == 95 { "alice" } else { "bob" }];
        let key = AdjustedKey {
            attributes: Some(&plan),
            ..key_of("api", &values)
        };
        let prepared = control.prepare_adjustment(key, charge, OPERATOR).unwrap();
        assert_eq!(control.adjust(&prepared, OPERATOR), Ok(left));
    }
}

#[test]
fn what_has_no_units_is_refused_by_name() {
    let (engine, _clock) = engine(vec![limit("api", per_second(10)), limit("jobs", places(2))]);
    let control = engine.control();
    let charge = UnitAdjustment::Charge(units(1));
    for (limit, values, expected) in [
        (
            "jobs",
            &["alice"][..],
            "limit: units of `jobs` cannot be charged or refunded: it counts requests in progress, not units",
        ),
        (
            "apj",
            &["alice"],
            "there is no limit `apj`; did you mean `api`?",
        ),
        ("api", &[], "key: 0 values name no key of `api`"),
    ] {
        let error = control
            .prepare_adjustment(key_of(limit, values), charge, OPERATOR)
            .unwrap_err();
        assert!(error.to_string().starts_with(expected), "{error}");
    }
    let unsigned = Attribution { who: "", why: "x" };
    let error = control
        .prepare_adjustment(key_of("api", &["alice"]), charge, unsigned)
        .unwrap_err();
    assert!(error.to_string().starts_with("who: "), "{error}");
    assert!(control.events().is_empty());
}
