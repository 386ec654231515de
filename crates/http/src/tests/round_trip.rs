//! What the writer of every dialect writes, the reader reads.
//!
//! Must not know: how anything is written or read.

use proptest::prelude::*;
use tollgate_core::{Nanos, Outcome, QuotaUnit};

use super::properties::{LimitSample, items, limit_sample, outcome, policies};
use super::support::NOW;
use crate::{
    Dialect, Dialects, HeaderFields, LimitInfo, LimitUnit, ProblemType, RateLimitItem,
    RateLimitStatus, RefusalReason, ResponseReader,
};

const MOST: u64 = 999_999_999_999_999;
/// A delay from here on is read as seconds since 1970.
const LONGEST: Nanos = Nanos::from_secs(999_999_999);

fn unit(given: &LimitSample) -> LimitUnit {
    match given.unit {
        None => LimitUnit::ConcurrentRequests,
        Some(QuotaUnit::Bytes) => LimitUnit::Bytes,
        Some(QuotaUnit::Tokens) => LimitUnit::Tokens,
        _ => LimitUnit::Requests,
    }
}

fn seconds(span: Nanos) -> Nanos {
    Nanos::from_secs(span.as_secs_ceil())
}

/// Checks one limit of a list against the input.
fn check_listed(
    dialect: Dialect,
    given: &LimitSample,
    status: &RateLimitStatus<'_>,
    item: &RateLimitItem<'_>,
    read: &LimitInfo,
) -> Result<(), String> {
    let wait = status.wait(item).filter(|_| given.unit.is_some());
    let expected = LimitInfo {
        name: Some(given.name.as_str().into()),
        unit: unit(given),
        quota: Some(given.quota.min(MOST)),
        window: (!given.window.is_zero()).then(|| seconds(given.window)),
        remaining: Some(given.remaining.min(given.quota).min(MOST)),
        reset_after: wait.map(seconds),
        cost: given
            .cost
            .filter(|_| dialect == Dialect::Next)
            .map(|c| c.min(MOST)),
        partition: read.partition.clone(),
    };
    let has_partition = read.partition.is_some() == given.partition.is_some();
    if *read == expected && has_partition {
        Ok(())
    } else {
        Err(format!("{read:?} instead of {expected:?}"))
    }
}

/// Checks the one limit of the other dialects. A time is rounded up by at most a second.
fn check_binding(
    status: &RateLimitStatus<'_>,
    item: &RateLimitItem<'_>,
    dialect: Dialect,
    read: &LimitInfo,
) -> Result<(), String> {
    let remaining = item.remaining().min(MOST);
    if (read.quota, read.remaining) != (Some(item.quota.min(MOST)), Some(remaining)) {
        return Err(format!("another quota: {read:?}"));
    }
    let wait = status.wait(item);
    let is_right = match (wait, read.reset_after) {
        (Some(wait), Some(reset)) => {
            wait <= reset && reset <= wait.saturating_add(Nanos::from_secs(1))
        }
        // Revision 07 requires a reset.
        (None, Some(reset)) => dialect == Dialect::Draft07 && reset.is_zero(),
        (None, None) => true,
        (Some(_), None) => false,
    };
    if is_right {
        Ok(())
    } else {
        Err(format!("reset {:?} for {wait:?}", read.reset_after))
    }
}

fn check(dialect: Dialect, given: &[LimitSample], outcome: Outcome) -> Result<(), String> {
    let policies = policies(given);
    let items = items(given, &policies);
    let status = RateLimitStatus::new(outcome, &items).with_now(NOW);
    let mut fields = HeaderFields::new();
    status.write(Dialects::from(dialect), &mut fields);
    let mut reader = ResponseReader::new(NOW);
    for (name, value) in fields.iter() {
        reader.field(name, value);
    }
    let info = reader.finish();
    if info.malformed_fields > 0 {
        return Err(format!("malformed: {info:?}"));
    }
    if info.retry_after != status.retry_after().map(Nanos::from_secs) {
        return Err(format!("Retry-After {:?}", info.retry_after));
    }
    if matches!(dialect, Dialect::Draft11 | Dialect::Next) {
        if info.limits.len() != given.len() {
            return Err(format!("{} limits", info.limits.len()));
        }
        for ((given, item), read) in given.iter().zip(&items).zip(&info.limits) {
            check_listed(dialect, given, &status, item, read)?;
        }
        return Ok(());
    }
    let binding = status.binding().ok_or("no limit")?;
    let first = info.limits.first().ok_or("no limit was read")?;
    check_binding(&status, binding, dialect, first)?;
    match dialect {
        Dialect::Discord => {
            let scope = status.is_refusal().then(|| binding.policy.scope());
            (info.bucket.as_deref() == Some(binding.policy.bucket_id()) && info.scope == scope)
                .then_some(())
                .ok_or("another bucket".to_owned())
        }
        Dialect::GitHub => (info.resource.as_deref() == Some(binding.policy.name()))
            .then_some(())
            .ok_or("another resource".to_owned()),
        _ => Ok(()),
    }
}

/// Names that differ in any case, and delays that cannot be taken for times.
fn distinct(mut given: Vec<LimitSample>) -> Vec<LimitSample> {
    let short = |span: Nanos| if span < LONGEST { span } else { LONGEST };
    for (index, sample) in given.iter_mut().enumerate() {
        sample.name = format!("{index}{}.", sample.name);
        sample.reset_after = short(sample.reset_after);
        sample.more_after = short(sample.more_after);
        sample.window = short(sample.window);
        if let Outcome::Deny { retry_after } = &mut sample.outcome {
            *retry_after = short(*retry_after);
        }
    }
    given
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn every_dialect_is_read_back(
        given in prop::collection::vec(limit_sample(), 1..6).prop_map(distinct),
        outcome in outcome(),
    ) {
        for dialect in Dialect::ALL {
            prop_assert_eq!(check(dialect, &given, outcome), Ok(()), "{}", dialect);
        }
    }

    #[test]
    fn every_problem_body_is_read_back(
        given in prop::collection::vec(limit_sample(), 1..3).prop_map(distinct),
        millis in 1..1_000_000_u64,
    ) {
        let policies = policies(&given);
        let items = items(&given, &policies);
        let denied = Outcome::Deny { retry_after: Nanos::from_millis(millis) };
        let status = RateLimitStatus::new(denied, &items);
        let reasons = [
            (ProblemType::QuotaExceeded, RefusalReason::Rate),
            (ProblemType::ReducedCapacity, RefusalReason::Overloaded),
            (ProblemType::AbnormalUsage, RefusalReason::Blocked),
        ];
        for (problem, reason) in reasons {
            let mut body = Vec::new();
            status.write_problem(problem, problem.status(), &mut body);
            let mut reader = ResponseReader::new(NOW);
            reader.body(b"application/problem+json", &body);
            let info = reader.finish();
            prop_assert_eq!(info.reason, Some(reason));
            prop_assert_eq!(info.retry_after, status.retry_after_ms().map(Nanos::from_millis));
        }
    }
}

#[test]
fn control_a_reader_that_confuses_numbers_is_detected() {
    let given = distinct(vec![super::properties::sample()]);
    let policies = policies(&given);
    let items = items(&given, &policies);
    let status = RateLimitStatus::new(given[0].outcome, &items);
    let right = LimitInfo {
        name: Some(given[0].name.as_str().into()),
        quota: Some(10),
        window: Some(Nanos::MINUTE),
        remaining: Some(3),
        reset_after: Some(Nanos::from_secs(3)),
        ..LimitInfo::default()
    };
    let check =
        |read: &LimitInfo| check_listed(Dialect::Draft11, &given[0], &status, &items[0], read);
    assert_eq!(check(&right), Ok(()));
    let early = Some(Nanos::from_secs(2));
    for wrong in [
        LimitInfo {
            quota: Some(3),
            ..right.clone()
        },
        LimitInfo {
            remaining: Some(10),
            ..right.clone()
        },
        LimitInfo {
            reset_after: early,
            ..right.clone()
        },
        LimitInfo {
            window: None,
            ..right.clone()
        },
        LimitInfo {
            unit: LimitUnit::Bytes,
            ..right.clone()
        },
    ] {
        assert!(check(&wrong).is_err(), "{wrong:?}");
    }
    let early = LimitInfo {
        reset_after: early,
        ..right
    };
    assert!(check_binding(&status, &items[0], Dialect::XRateLimit, &early).is_err());
}
