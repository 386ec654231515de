//! What the writer of every dialect writes, the reader reads; and the shapes of other servers' responses.
//!
//! Must not know: how anything is written or read.

use base64::Engine as _;
use proptest::prelude::*;
use tollgate_core::{Nanos, Outcome, QuotaUnit};

use super::properties::{LimitSample, items, limit_sample, outcome, policies};
use super::support::NOW;
use crate::{
    Dialect, Dialects, HeaderFields, LimitInfo, LimitUnit, ProblemType, RateLimitInfo,
    RateLimitItem, RateLimitStatus, RefusalReason, ResponseReader, Scope,
};

const MOST: u64 = 999_999_999_999_999;
/// A delay from here on is read as seconds since 1970.
const LONGEST: Nanos = Nanos::from_secs(999_999_999);

fn read(fields: &[(&str, &str)]) -> RateLimitInfo {
    let mut reader = ResponseReader::new(NOW);
    for (name, value) in fields {
        reader.field(name, value.as_bytes());
    }
    reader.finish()
}

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

    #[test]
    fn malformed_fields_are_counted_and_change_nothing(value in "[^0-9]{0,40}") {
        let names = ["ratelimit-remaining", "x-ratelimit-reset", "x-ratelimit-limit", "retry-after", "date", "age"];
        for name in names {
            let info = read(&[(name, &value)]);
            let empty = RateLimitInfo { malformed_fields: 1, ..RateLimitInfo::default() };
            prop_assert_eq!(info, empty, "{}", name);
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

#[test]
fn shapes_of_well_known_servers_are_read() {
    // OpenAI: two units with Go durations.
    let info = read(&[
        ("x-ratelimit-limit-requests", "60"),
        ("x-ratelimit-remaining-requests", "59"),
        ("x-ratelimit-reset-requests", "1s"),
        ("x-ratelimit-limit-tokens", "150000"),
        ("x-ratelimit-remaining-tokens", "149984"),
        ("x-ratelimit-reset-tokens", "6m0s"),
        ("retry-after-ms", "1250"),
    ]);
    let units: Vec<_> = info
        .limits
        .iter()
        .map(|limit| (limit.unit, limit.remaining))
        .collect();
    assert_eq!(
        units,
        [
            (LimitUnit::Requests, Some(59)),
            (LimitUnit::Tokens, Some(149_984))
        ]
    );
    assert_eq!(info.retry_after, Some(Nanos::from_millis(1_250)));

    // Anthropic: times, and tokens of prompt and answer apart.
    let info = read(&[
        ("anthropic-ratelimit-input-tokens-limit", "50000"),
        ("anthropic-ratelimit-input-tokens-remaining", "0"),
        (
            "anthropic-ratelimit-input-tokens-reset",
            "2023-11-14T22:13:30.25Z",
        ),
        ("retry-after", "10"),
    ]);
    assert_eq!(info.limits[0].unit, LimitUnit::InputTokens);
    assert_eq!(info.limits[0].reset_after, Some(Nanos::from_secs(10)));
}

#[test]
fn shapes_of_other_well_known_servers_are_read() {
    // GitHub: its own clock is 100 s ahead of ours; `Date` shows that.
    let info = read(&[
        ("x-ratelimit-limit", "5000"),
        ("x-ratelimit-remaining", "0"),
        ("x-ratelimit-used", "5000"),
        ("x-ratelimit-reset", "1700000160"),
        ("x-ratelimit-resource", "search"),
        ("date", "Tue, 14 Nov 2023 22:15:00 GMT"),
    ]);
    assert_eq!(info.resource.as_deref(), Some("search"));
    assert_eq!(info.limits[0].reset_after, Some(Nanos::from_secs(60)));
    let info = read(&[
        ("retry-after", "Tue, 14 Nov 2023 22:16:00 GMT"),
        ("date", "Tue, 14 Nov 2023 22:15:00 GMT"),
    ]);
    assert_eq!(info.retry_after, Some(Nanos::MINUTE));

    // Discord: a global denial.
    let info = read(&[
        ("x-ratelimit-bucket", "abcd1234"),
        ("x-ratelimit-reset", "1700000001.250"),
        ("x-ratelimit-reset-after", "1.000"),
        ("x-ratelimit-global", "true"),
        ("x-ratelimit-scope", "global"),
    ]);
    assert_eq!(
        (info.bucket.as_deref(), info.scope),
        (Some("abcd1234"), Some(Scope::Global))
    );
    assert_eq!(info.limits[0].reset_after, Some(Nanos::from_secs(1)));

    // Shopify: a level, and fractions in `Retry-After`. Kong: windows as suffixes. Stripe: a reason.
    let info = read(&[
        ("x-shopify-shop-api-call-limit", "39/40"),
        ("retry-after", "2.0"),
    ]);
    assert_eq!(
        (info.limits[0].remaining, info.retry_after),
        (Some(1), Some(Nanos::from_secs(2)))
    );
    let info = read(&[
        ("x-ratelimit-limit-minute", "5"),
        ("x-ratelimit-remaining-minute", "4"),
    ]);
    assert_eq!(
        (info.limits[0].quota, info.limits[0].window),
        (Some(5), Some(Nanos::MINUTE))
    );
    let info = read(&[
        ("stripe-rate-limited-reason", "global-rate"),
        ("stripe-should-retry", "false"),
    ]);
    assert_eq!(
        (info.reason, info.may_retry),
        (Some(RefusalReason::Rate), Some(false))
    );
}

/// A proxy may add a `Retry-After` of its own. The last one counted, also if it was the shortest.
#[test]
fn the_longest_of_several_waits_counts() {
    let later = "Tue, 14 Nov 2023 22:15:20 GMT";
    for fields in [
        [("retry-after", "120"), ("retry-after", "1")],
        [("retry-after", "1"), ("retry-after", "120")],
        [("retry-after", later), ("retry-after", "1")],
        [("retry-after", "1"), ("retry-after", later)],
        [("retry-after-ms", "120000"), ("retry-after", "1")],
    ] {
        let wait = read(&fields).retry_after;
        assert!(wait >= Some(Nanos::from_secs(119)), "{fields:?}: {wait:?}");
    }
}

#[test]
fn bodies_tell_a_used_up_quota_from_a_rate() {
    let read = |body: &str| {
        let mut reader = ResponseReader::new(NOW);
        reader.field("retry-after", b"65");
        reader.body(b"application/json; charset=utf-8", body.as_bytes());
        reader.finish()
    };
    let exhausted = read(
        r#"{"error":{"message":"…","type":"insufficient_quota","code":"insufficient_quota"}}"#,
    );
    assert_eq!(exhausted.reason, Some(RefusalReason::QuotaExhausted));
    let rate = read(r#"{"type":"error","error":{"type":"rate_limit_error"}}"#);
    assert_eq!(rate.reason, Some(RefusalReason::Rate));
    let discord =
        read(r#"{"message":"You are being rate limited.","retry_after":64.57,"global":false}"#);
    assert_eq!(discord.retry_after, Some(Nanos::from_millis(64_570)));
    let much_earlier = read(r#"{"retry_after":1}"#);
    assert_eq!(
        much_earlier.retry_after,
        Some(Nanos::from_secs(65)),
        "the field is kept"
    );
    assert_eq!(read("[").malformed_fields, 1);
}

#[test]
fn grpc_details_have_the_delay() {
    // google.rpc.Status { code: 8, message: "m", details: [Any(RetryInfo { retry_delay: 1.5 s })] }
    let duration = [8_u8, 1, 16, 0x80, 0xca, 0xb5, 0xee, 0x01];
    let mut retry_info = vec![0x0a, u8::try_from(duration.len()).unwrap()];
    retry_info.extend(duration);
    let url = b"type.googleapis.com/google.rpc.RetryInfo";
    let mut any = vec![0x0a, u8::try_from(url.len()).unwrap()];
    any.extend(url);
    any.extend([0x12, u8::try_from(retry_info.len()).unwrap()]);
    any.extend(retry_info);
    let mut status = vec![8, 8, 0x12, 1, b'm', 0x1a, u8::try_from(any.len()).unwrap()];
    status.extend(any);
    let text = base64::engine::general_purpose::STANDARD_NO_PAD.encode(&status);
    let info = read(&[("grpc-status", "8"), ("grpc-status-details-bin", &text)]);
    assert_eq!(info.retry_after, Some(Nanos::from_millis(1_500)));
    assert_eq!(info.reason, Some(RefusalReason::Rate));
    let info = read(&[
        ("grpc-retry-pushback-ms", "-1"),
        ("grpc-status-details-bin", "%%"),
    ]);
    assert_eq!((info.may_retry, info.malformed_fields), (Some(false), 1));
}

#[test]
fn cached_responses_say_nothing_and_everything_is_bounded() {
    let cached = read(&[("x-ratelimit-remaining", "0"), ("age", "3")]);
    assert!(cached.is_cached && cached.limits.is_empty());
    assert_eq!(
        read(&[("x-ratelimit-remaining", "0"), ("age", "0")])
            .limits
            .len(),
        1
    );

    let names: Vec<String> = (0..60)
        .map(|n| format!("x-ratelimit-remaining-{n}"))
        .collect();
    let many: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "1")).collect();
    let info = read(&many);
    assert_eq!(info.limits.len(), 32);
    assert!(info.malformed_fields > 0);
    let long = "1".repeat(5_000);
    assert_eq!(read(&[("retry-after", &long)]).malformed_fields, 1);
    let name = format!("\"{}\";r=1", "n".repeat(161));
    assert!(read(&[("ratelimit", &name)]).limits.is_empty());
    assert_eq!(read(&[("x-ratelimit-remaining", "-1")]).malformed_fields, 1);
}
