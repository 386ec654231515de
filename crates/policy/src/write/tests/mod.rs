//! Policies written and read back.

mod any;

use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use tollgate_core::{Nanos, Unit};

use super::yaml;
use crate::attributes::Attribute;
use crate::model::{
    Algorithm, Amount, Burst, Condition, Count, KeyPart, Match, Missing, Penalty, Percent, Period,
    Policy, QuotaSpec, RateSpec, StatusClass, Template, Test, Tiers,
};
use crate::source::Format;

const AS_WRITTEN: &str = r#"limits:
  - name: l
    match:
      route: "/v1/{id}"
      header.x-plan:
        not: [free, "absent"]
      query.debug: absent
    key:
      - attribute: ip
        v6: 56
        missing: skip
      - method
    rate: 100/min
    algorithm: sliding_window
    tiers:
      by: claim.plan
      pro:
        rate: 5000/min
        algorithm: token_bucket
        burst: auto
    count:
      responses: [401, 5xx]
    enforce: 25.5%
    penalty: block 10m
    message: "Slow down: \"now\""
"#;

#[test]
fn a_policy_is_written_as_a_person_would_write_it() {
    let rate = |units| {
        Amount::Rates(vec![
            RateSpec {
                units,
                period: Period::Span(Nanos::from_secs(60)),
            }
            .into(),
        ])
    };
    let quota = |units| QuotaSpec {
        algorithm: Algorithm::SlidingWindow,
        amount: rate(units),
        burst: None,
        unit: Unit::Requests,
        utc_offset_minutes: 0,
    };
    let key = KeyPart {
        v6_bits: 56,
        missing: Missing::Skip,
        ..KeyPart::plain(Attribute::Ip.into())
    };
    let mut limit = any::bare(
        vec![key, KeyPart::plain(Attribute::Method.into())],
        quota(100),
    );
    let condition = |attribute, test| Condition { attribute, test }.into();
    limit.matching = Match {
        conditions: vec![
            condition(
                Attribute::Route,
                Test::Route(vec![Template("/v1/{id}".into())]),
            ),
            condition(
                Attribute::Header("x-plan".into()),
                Test::Not(Box::new(Test::OneOf(vec!["free".into(), "absent".into()]))),
            ),
            condition(Attribute::Query("debug".into()), Test::Absent),
        ],
    };
    let more = QuotaSpec {
        burst: Some(Burst::Auto.into()),
        algorithm: Algorithm::TokenBucket,
        ..quota(5_000)
    };
    limit.tiers = Some(Tiers {
        by: Attribute::Claim("plan".into()).into(),
        tiers: vec![(Box::<str>::from("pro").into(), more.into())],
    });
    limit.count = Count::Responses(vec![StatusClass::Exactly(401), StatusClass::Hundreds(5)]);
    limit.penalty = Penalty::Block(Nanos::from_secs(600)).into();
    limit.enforce = Percent::from_hundredths(2_550);
    limit.message = Some("Slow down: \"now\"".into());
    let policy = Policy {
        limits: vec![limit],
        divergence_threshold: Percent::from_hundredths(200),
        ..Policy::default()
    };
    assert_eq!(yaml(&policy), AS_WRITTEN);
}

/// What a policy that was written reads back as; none if it is refused.
fn back(policy: &Policy) -> (String, Option<Policy>) {
    let text = yaml(policy);
    let read = crate::load(&text, "policy.yaml", Format::Yaml).ok();
    (text, read)
}

#[test]
fn most_random_policies_are_accepted_so_that_reading_them_back_proves_something() {
    let mut runner = TestRunner::deterministic();
    let mut refused = Vec::new();
    for _ in 0..300 {
        let policy = any::policy().new_tree(&mut runner).unwrap().current();
        if let Err(problems) = crate::load(&yaml(&policy), "policy.yaml", Format::Yaml) {
            refused.push(problems.to_string());
        }
    }
    assert!(
        refused.len() < 150,
        "{} of 300 refused:\n{}",
        refused.len(),
        refused.join("\n")
    );
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(128) })]

    #[test]
    fn a_policy_that_was_written_reads_back_equal(policy in any::policy()) {
        let (text, read) = back(&policy);
        if let Some(read) = read {
            prop_assert_eq!(&read, &policy, "{}", text);
            prop_assert_eq!(yaml(&read), text);
        }
    }

    #[test]
    fn whatever_is_written_is_valid_by_the_schema(policy in any::policy()) {
        let text = yaml(&policy);
        let wrong = crate::schema::tests::wrong(&text);
        prop_assert!(wrong.is_empty(), "{wrong:?}\n{text}");
    }

    #[test]
    fn different_policies_are_written_differently(one in any::policy(), other in any::policy()) {
        prop_assert_eq!(one == other, yaml(&one) == yaml(&other));
    }
}
