//! Properties of any input: an independent parser reads the fields back, and the numbers never promise too much.
//!
//! Each checker has a negative control, in a test whose name begins with `control_`. Must not know: how anything is written.

use proptest::prelude::*;
use sfv::{Dictionary, FieldType, Item, List, ListEntry, Parser};
use tollgate_core::{Nanos, Outcome, QuotaUnit, Timestamp};

use super::support::status;
use crate::{
    Dialect, Dialects, HeaderFields, Jitter, PartitionKey, ProblemType, QuotaPolicy, RateLimitItem,
    RateLimitStatus,
};

const MOST: u64 = 999_999_999_999_999;

#[derive(Clone, Debug)]
pub(super) struct LimitSample {
    pub(super) name: String,
    pub(super) quota: u64,
    pub(super) window: Nanos,
    pub(super) unit: Option<QuotaUnit>,
    pub(super) outcome: Outcome,
    pub(super) remaining: u64,
    pub(super) reset_after: Nanos,
    pub(super) more_after: Nanos,
    pub(super) cost: Option<u64>,
    pub(super) partition: Option<u64>,
}

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![
        Just(0),
        Just(1),
        Just(MOST),
        Just(MOST + 1),
        Just(u64::MAX),
        0..1_000_u64,
        any::<u64>(),
        0..10_000_000_000_000_u64,
    ]
}

fn span() -> impl Strategy<Value = Nanos> {
    number().prop_map(Nanos::from_nanos)
}

pub(super) fn outcome() -> impl Strategy<Value = Outcome> {
    prop_oneof![
        Just(Outcome::Allow),
        span().prop_map(Outcome::Wait),
        Just(Outcome::Never),
        span().prop_map(|retry_after| Outcome::Deny { retry_after }),
    ]
}

pub(super) fn limit_sample() -> impl Strategy<Value = LimitSample> {
    let unit = prop_oneof![
        Just(None),
        Just(Some(QuotaUnit::Requests)),
        Just(Some(QuotaUnit::Bytes)),
        Just(Some(QuotaUnit::Tokens))
    ];
    let limit = ("[ -~]{1,20}", number(), span(), unit);
    let stand = (outcome(), number(), span(), span());
    let extra = (prop::option::of(number()), prop::option::of(any::<u64>()));
    (limit, stand, extra).prop_map(|((name, quota, window, unit), stand, (cost, partition))| {
        LimitSample {
            name,
            quota,
            window: if unit.is_none() { Nanos::ZERO } else { window },
            unit,
            outcome: stand.0,
            remaining: stand.1,
            reset_after: stand.2,
            more_after: stand.3,
            cost,
            partition,
        }
    })
}

pub(super) fn policies(given: &[LimitSample]) -> Vec<QuotaPolicy> {
    let policy = |given: &LimitSample| match given.unit {
        Some(unit) => QuotaPolicy::new(&given.name, given.quota, given.window, unit).unwrap(),
        None => QuotaPolicy::concurrent(&given.name, given.quota).unwrap(),
    };
    given.iter().map(policy).collect()
}

pub(super) fn items<'a>(
    given: &[LimitSample],
    policies: &'a [QuotaPolicy],
) -> Vec<RateLimitItem<'a>> {
    let item = |(given, policy): (&LimitSample, &'a QuotaPolicy)| {
        let status = status(given.remaining, given.reset_after);
        let mut item = RateLimitItem::new(policy, given.outcome, &status);
        item.next_unit_after = given.more_after;
        item.cost = given.cost;
        let digest = |n: u64| PartitionKey::digest(&[9; 16], &n.to_be_bytes());
        item.partition = given.partition.map(digest);
        item
    };
    given.iter().zip(policies).map(item).collect()
}

/// Parses a list of names with parameters by an independent parser, and checks that it is in canonical form.
fn read(field: &[u8]) -> Result<Vec<(String, Item)>, String> {
    let list: List = Parser::new(field)
        .parse()
        .map_err(|error| error.to_string())?;
    if list.serialize().as_deref().map(str::as_bytes) != Some(field) {
        return Err("it is not in canonical form".to_owned());
    }
    let member = |entry: ListEntry| match entry {
        ListEntry::Item(item) => {
            let string = item
                .bare_item
                .as_string()
                .map(|name| name.as_str().to_owned());
            let token = || {
                item.bare_item
                    .as_token()
                    .map(|name| name.as_str().to_owned())
            };
            let name = string.or_else(token).ok_or("a member is not a name")?;
            Ok((name, item))
        }
        ListEntry::InnerList(_) => Err("a member is a list".to_owned()),
    };
    list.into_iter().map(member).collect()
}

fn integer(item: &Item, key: &str) -> Option<u64> {
    let value = item.params.get(key)?.as_integer()?;
    u64::try_from(i64::from(value)).ok()
}

/// Checks the two fields of draft 11 and `Retry-After` against the input.
fn check_draft_11(
    given: &[LimitSample],
    policy: &[u8],
    limit: &[u8],
    retry: Option<u64>,
) -> Result<(), String> {
    let (policy, limit) = (read(policy)?, read(limit)?);
    if policy.len() != given.len() || limit.len() != given.len() {
        return Err("a limit is missing".to_owned());
    }
    for ((given, (named, policy)), (name, limit)) in given.iter().zip(policy).zip(limit) {
        let fail = |what: &str| Err(format!("{what}: {given:?}"));
        if named != given.name || name != given.name {
            return fail("another name");
        }
        if integer(&policy, "q") != Some(given.quota.min(MOST)) {
            return fail("another quota");
        }
        let window = integer(&policy, "w");
        if window.is_some() == given.window.is_zero() || window == Some(0) {
            return fail("an invalid window");
        }
        let r = integer(&limit, "r");
        if r.is_none_or(|r| r > given.remaining || r > given.quota) {
            return fail("more than there is");
        }
        let t = integer(&limit, "t");
        if given.unit.is_none() && (t.is_some() || window.is_some()) {
            return fail("a time for a concurrency limit");
        }
        if let (Outcome::Deny { retry_after }, Some(t)) = (given.outcome, t) {
            if t == 0 || Nanos::from_secs(t) < retry_after {
                return fail("t is too early");
            }
            if retry.is_some_and(|retry| retry < t) {
                return fail("Retry-After is earlier than t");
            }
        }
        let keys = [policy.params.get("pk"), limit.params.get("pk")];
        let is_key = |value: Option<&sfv::BareItem>| {
            value.and_then(|v| v.as_byte_sequence()).map(<[u8]>::len)
        };
        if keys.map(is_key) != [given.partition.map(|_| 12); 2] {
            return fail("another partition");
        }
    }
    Ok(())
}

fn check_refusal(outcome: Outcome, retry: Option<u64>) -> Result<(), String> {
    match (outcome, retry) {
        (Outcome::Deny { .. }, Some(0)) => Err("a wait of nothing".to_owned()),
        (Outcome::Deny { retry_after }, Some(retry)) if Nanos::from_secs(retry) < retry_after => {
            Err("it is early".to_owned())
        }
        (Outcome::Deny { .. }, Some(_))
        | (Outcome::Allow | Outcome::Wait(_) | Outcome::Never, None) => Ok(()),
        (_, retry) => Err(format!("{outcome:?} with {retry:?}")),
    }
}

fn retry_of(fields: &HeaderFields) -> Option<u64> {
    let value = str::from_utf8(fields.get("retry-after")?).unwrap();
    Some(value.parse().unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn every_field_parses_and_no_time_is_too_early(
        given in prop::collection::vec(limit_sample(), 1..6),
        outcome in outcome(),
        now in number(),
        (most, seed) in (span(), any::<u64>()),
    ) {
        let policies = policies(&given);
        let items = items(&given, &policies);
        let rate_limit = RateLimitStatus::new(outcome, &items).with_now(Timestamp::from_nanos(now));
        for jitter in [Jitter::NONE, Jitter::new(most, seed)] {
            let rate_limit = rate_limit.with_jitter(jitter);
            let mut fields = HeaderFields::new();
            for dialect in Dialect::ALL {
                rate_limit.write(Dialects::from(dialect), &mut fields);
                let retry = retry_of(&fields);
                prop_assert_eq!(check_refusal(outcome, retry), Ok(()));
                prop_assert_eq!(fields.get("cache-control").is_some(), !outcome.is_admitted());
                for (name, value) in fields.iter() {
                    prop_assert!(value.iter().all(|byte| (b' '..=b'~').contains(byte)), "{name}");
                    prop_assert!(!value.is_empty() && name.bytes().all(|b| !b.is_ascii_uppercase()));
                }
                let get = |name| fields.get(name).unwrap_or_default();
                let (policy, limit) = (get("ratelimit-policy"), get("ratelimit"));
                match dialect {
                    Dialect::Draft11 => {
                        prop_assert_eq!(check_draft_11(&given, policy, limit, retry), Ok(()));
                    }
                    Dialect::Next => {
                        prop_assert!(read(policy).is_ok());
                        for ((name, item), given) in read(limit).unwrap().iter().zip(&given) {
                            prop_assert_eq!(name, &given.name);
                            prop_assert!(integer(item, "a").unwrap() <= given.quota);
                            prop_assert_eq!(integer(item, "c"), given.cost.map(|cost| cost.min(MOST)));
                        }
                    }
                    Dialect::Draft07 => {
                        let fields: Dictionary = Parser::new(limit).parse().unwrap();
                        prop_assert_eq!(fields.len(), 3);
                        if !policy.is_empty() {
                            let list: List = Parser::new(policy).parse().unwrap();
                            prop_assert!(list.len() <= given.len());
                        }
                    }
                    Dialect::Draft06 | Dialect::Draft03 | Dialect::Envoy => {
                        let name = if dialect == Dialect::Envoy { "x-ratelimit-limit" } else { "ratelimit-limit" };
                        let list = Parser::new(get(name)).parse::<List>();
                        prop_assert!(list.is_ok_and(|list| !list.is_empty()));
                    }
                    _ => {
                        let reset = str::from_utf8(get("x-ratelimit-reset")).unwrap();
                        prop_assert!(reset.is_empty() || reset.parse::<f64>().is_ok());
                    }
                }
            }
        }
    }

    #[test]
    fn every_problem_is_json_that_names_the_limits_that_deny(
        given in prop::collection::vec(limit_sample(), 0..6),
        outcome in outcome(),
        message in prop::option::of(any::<String>()),
    ) {
        let mut policies = policies(&given);
        if let Some(message) = &message {
            policies = policies.into_iter().map(|policy| policy.with_message(message)).collect();
        }
        let items = items(&given, &policies);
        let mut out = Vec::new();
        RateLimitStatus::new(outcome, &items).write_problem(ProblemType::AbnormalUsage, 429, &mut out);
        let body: serde_json::Value = serde_json::from_slice(&out).unwrap();
        let refusing = given.iter().filter(|given| !given.outcome.is_admitted());
        let names: Vec<&str> = refusing.map(|given| given.name.as_str()).collect();
        let violated = body.get("violated-policies").cloned().unwrap_or_else(|| serde_json::json!([]));
        prop_assert_eq!(violated, serde_json::json!(names));
        prop_assert_eq!(body.get("retry-after-ms").is_some(), matches!(outcome, Outcome::Deny { .. }));
        if let (Some(message), false) = (&message, given.is_empty()) {
            prop_assert_eq!(&body["detail"], message);
        }
    }
}

pub(super) fn sample() -> LimitSample {
    LimitSample {
        name: "p".to_owned(),
        quota: 10,
        window: Nanos::MINUTE,
        unit: Some(QuotaUnit::Requests),
        outcome: Outcome::Deny {
            retry_after: Nanos::from_millis(2_500),
        },
        remaining: 3,
        reset_after: Nanos::MINUTE,
        more_after: Nanos::ZERO,
        cost: None,
        partition: None,
    }
}

#[test]
fn control_wrong_fields_are_detected() {
    let given = [sample()];
    let check = |policy: &str, limit: &str, retry| {
        check_draft_11(&given, policy.as_bytes(), limit.as_bytes(), retry)
    };
    let policy = r#""p";q=10;w=60"#;
    assert_eq!(check(policy, r#""p";r=3;t=3"#, Some(3)), Ok(()));
    let lies = [
        (policy, r#""p";r=3;t=2"#, Some(3), "t is too early"),
        (
            policy,
            r#""p";r=3;t=4"#,
            Some(3),
            "Retry-After is earlier than t",
        ),
        (policy, r#""p";r=4;t=3"#, Some(3), "more than there is"),
        (policy, r#""q";r=3;t=3"#, Some(3), "another name"),
        (
            policy,
            r#""p"; r=3;t=3"#,
            Some(3),
            "it is not in canonical form",
        ),
        (
            policy,
            r#"p;r=3;t=3, "p";r=3"#,
            Some(3),
            "a limit is missing",
        ),
        (policy, r#""p;r=3"#, Some(3), ""),
        (
            policy,
            r#""p";r=3;t=3;pk=:AAAA:"#,
            Some(3),
            "another partition",
        ),
        (
            r#""p";q=10;w=0"#,
            r#""p";r=3;t=3"#,
            Some(3),
            "an invalid window",
        ),
        (
            r#""p";q=10"#,
            r#""p";r=3;t=3"#,
            Some(3),
            "an invalid window",
        ),
        (
            r#""p";q=11;w=60"#,
            r#""p";r=3;t=3"#,
            Some(3),
            "another quota",
        ),
        (
            r#""p";q=1000000000000000;w=60"#,
            r#""p";r=3;t=3"#,
            Some(3),
            "",
        ),
    ];
    for (policy, limit, retry, complaint) in lies {
        let error = check(policy, limit, retry).unwrap_err();
        assert!(error.starts_with(complaint), "{error}");
    }
}

#[test]
fn control_wrong_retry_times_are_detected() {
    let denied = sample().outcome;
    assert_eq!(check_refusal(denied, Some(3)), Ok(()));
    for (outcome, retry) in [
        (denied, Some(2)),
        (denied, Some(0)),
        (denied, None),
        (Outcome::Never, Some(1)),
        (Outcome::Allow, Some(1)),
    ] {
        assert!(
            check_refusal(outcome, retry).is_err(),
            "{outcome:?} {retry:?}"
        );
    }
}
