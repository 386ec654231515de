//! The exact header fields of each dialect.
//!
//! Must not know: how they are written.

use tollgate_core::{Nanos, Outcome, QuotaUnit};

use super::support::{NOW, Sample, denied, lines, status};
use crate::{Dialect, HeaderFields, Merge, QuotaPolicy, RateLimitItem, RateLimitStatus};

/// An admission in every dialect.
const ADMITTED: [(&str, &[&str]); 11] = [
    (
        "draft-11",
        &[
            r#"ratelimit-policy: "per-minute";q=100;w=60, "per day";q=1000;w=86400"#,
            r#"ratelimit: "per-minute";r=5;t=58, "per day";r=700;t=3600"#,
        ],
    ),
    (
        "next",
        &[
            r#"ratelimit-policy: per-minute;q=100;w=60, "per day";q=1000;w=86400"#,
            r#"ratelimit: per-minute;a=5;w=58;c=1, "per day";a=700;w=3600;c=1"#,
            "ratelimit-partition: per-minute;user_id;method",
        ],
    ),
    (
        "draft-07",
        &[
            "ratelimit: limit=100, remaining=5, reset=58",
            "ratelimit-policy: 100;w=60, 1000;w=86400",
        ],
    ),
    (
        "draft-06",
        &[
            "ratelimit-limit: 100",
            "ratelimit-remaining: 5",
            "ratelimit-reset: 58",
            "ratelimit-policy: 100;w=60, 1000;w=86400",
        ],
    ),
    (
        "draft-03",
        &[
            "ratelimit-limit: 100, 100;w=60, 1000;w=86400",
            "ratelimit-remaining: 5",
            "ratelimit-reset: 58",
        ],
    ),
    (
        "envoy",
        &[
            r#"x-ratelimit-limit: 100, 100;w=60;name="per-minute", 1000;w=86400;name="per day""#,
            "x-ratelimit-remaining: 5",
            "x-ratelimit-reset: 58",
        ],
    ),
    (
        "x-ratelimit",
        &[
            "x-ratelimit-limit: 100",
            "x-ratelimit-remaining: 5",
            "x-ratelimit-reset: 58",
        ],
    ),
    (
        "x-ratelimit-epoch",
        &[
            "x-ratelimit-limit: 100",
            "x-ratelimit-remaining: 5",
            "x-ratelimit-reset: 1700000058",
        ],
    ),
    (
        "x-ratelimit-epoch-ms",
        &[
            "x-ratelimit-limit: 100",
            "x-ratelimit-remaining: 5",
            "x-ratelimit-reset: 1700000057251",
        ],
    ),
    (
        "discord",
        &[
            "x-ratelimit-limit: 100",
            "x-ratelimit-remaining: 5",
            "x-ratelimit-reset: 1700000057.251",
            "x-ratelimit-reset-after: 57.001",
            "x-ratelimit-bucket: 7e0f1b9ddcbb7633",
        ],
    ),
    (
        "github",
        &[
            "x-ratelimit-limit: 100",
            "x-ratelimit-remaining: 5",
            "x-ratelimit-used: 95",
            "x-ratelimit-reset: 1700000058",
            "x-ratelimit-resource: per-minute",
        ],
    ),
];

#[test]
fn an_admission_in_every_dialect() {
    let sample = Sample::new();
    let items = sample.admitted();
    let rate_limit = RateLimitStatus::new(Outcome::Allow, &items).with_now(NOW);
    assert!(
        ADMITTED
            .iter()
            .map(|(name, _)| *name)
            .eq(Dialect::ALL.map(Dialect::name))
    );
    for (dialect, expected) in ADMITTED {
        assert_eq!(lines(&rate_limit, dialect), expected, "{dialect}");
    }
}

/// A denial in each dialect, before the two fields that all dialects have.
const REFUSED: [(&str, &[&str]); 9] = [
    (
        "draft-11",
        &[
            r#"ratelimit-policy: "per-minute";q=100;w=60, "per day";q=1000;w=86400"#,
            r#"ratelimit: "per-minute";r=40;t=36, "per day";r=0;t=86400"#,
        ],
    ),
    (
        "next",
        &[
            r#"ratelimit-policy: per-minute;q=100;w=60, "per day";q=1000;w=86400"#,
            r#"ratelimit: per-minute;a=40;w=36;c=1, "per day";a=0;w=86400;c=1"#,
            "ratelimit-partition: per-minute;user_id;method",
        ],
    ),
    (
        "draft-07",
        &[
            "ratelimit: limit=1000, remaining=0, reset=86400",
            "ratelimit-policy: 100;w=60, 1000;w=86400",
        ],
    ),
    (
        "draft-03",
        &[
            "ratelimit-limit: 1000, 100;w=60, 1000;w=86400",
            "ratelimit-remaining: 0",
            "ratelimit-reset: 86400",
        ],
    ),
    (
        "x-ratelimit",
        &[
            "x-ratelimit-limit: 1000",
            "x-ratelimit-remaining: 0",
            "x-ratelimit-reset: 86400",
        ],
    ),
    (
        "x-ratelimit-epoch",
        &[
            "x-ratelimit-limit: 1000",
            "x-ratelimit-remaining: 0",
            "x-ratelimit-reset: 1700086400",
        ],
    ),
    (
        "discord",
        &[
            "x-ratelimit-limit: 1000",
            "x-ratelimit-remaining: 0",
            "x-ratelimit-reset: 1700086399.350",
            "x-ratelimit-reset-after: 86399.100",
            "x-ratelimit-bucket: e7ce72f75d85a6a6",
            "x-ratelimit-global: true",
            "x-ratelimit-scope: global",
        ],
    ),
    (
        "github",
        &[
            "x-ratelimit-limit: 1000",
            "x-ratelimit-remaining: 0",
            "x-ratelimit-used: 1000",
            "x-ratelimit-reset: 1700086400",
            "x-ratelimit-resource: per day",
        ],
    ),
    ("off", &[]),
];

#[test]
fn a_denial_in_every_dialect_reports_the_limit_that_denies() {
    let sample = Sample::new();
    let items = sample.refused();
    let rate_limit = RateLimitStatus::new(denied(86_399_100), &items).with_now(NOW);
    for (dialect, fields) in REFUSED {
        let mut expected = fields.to_vec();
        expected.extend(["retry-after: 86400", "cache-control: no-store"]);
        assert_eq!(lines(&rate_limit, dialect), expected, "{dialect}");
    }
}

#[test]
fn dialects_of_different_families_are_written_together() {
    let sample = Sample::new();
    let items = sample.admitted();
    let rate_limit = RateLimitStatus::new(Outcome::Allow, &items).with_now(NOW);
    let expected = ["draft-11", "draft-03", "github"].map(|dialect| lines(&rate_limit, dialect));
    assert_eq!(
        lines(&rate_limit, "github,draft-11,draft-03"),
        expected.concat()
    );
}

#[test]
fn byte_limits_concurrency_limits_and_partitions_have_their_parameters() {
    let sample = Sample::new();
    let concurrency = RateLimitItem::new(&sample.in_flight, denied(500), &status(0, Nanos::SECOND));
    let items = [sample.upload(), concurrency];
    let rate_limit = RateLimitStatus::new(denied(500), &items);
    assert_eq!(
        lines(&rate_limit, "draft-11"),
        [
            "ratelimit-policy: \"upload\";q=65536;qu=\"content-bytes\";w=10;pk=:y6ZGoaupAMmbvgRS:, \
             \"in-flight\";q=20;qu=\"concurrent-requests\"",
            "ratelimit: \"upload\";r=1024;t=3;pk=:y6ZGoaupAMmbvgRS:, \"in-flight\";r=0",
            "retry-after: 1",
            "cache-control: no-store",
        ]
    );
    // Drafts that require a window have no policy for concurrency limits, and one that requires a reset has the wait.
    assert_eq!(
        lines(&rate_limit, "draft-07")[..2],
        [
            "ratelimit: limit=20, remaining=0, reset=1",
            "ratelimit-policy: 65536;w=10"
        ]
    );
    let alone = [concurrency];
    let rate_limit = RateLimitStatus::new(denied(500), &alone);
    assert_eq!(lines(&rate_limit, "draft-03")[0], "ratelimit-limit: 20");
    assert_eq!(
        lines(&rate_limit, "draft-07")[..2],
        [
            "ratelimit: limit=20, remaining=0, reset=1",
            "retry-after: 1"
        ]
    );
}

#[test]
fn a_callers_own_quota_replaces_the_policys() {
    let policy = QuotaPolicy::new("plan", 100, Nanos::MINUTE, QuotaUnit::Tokens).unwrap();
    let item = RateLimitItem::new(&policy, Outcome::Allow, &status(4_000, Nanos::SECOND));
    let items = [item.with_quota(5_000, Nanos::HOUR).with_used(7)];
    let rate_limit = RateLimitStatus::new(Outcome::Allow, &items);
    let draft = lines(&rate_limit, "draft-11");
    assert_eq!(
        draft[0],
        r#"ratelimit-policy: "plan";q=5000;qu="tokens";w=3600"#
    );
    assert_eq!(draft[1], r#"ratelimit: "plan";r=4000;t=1"#);
    assert_eq!(
        lines(&rate_limit, "next")[0],
        r#"ratelimit-policy: plan;q=5000;qu="tokens";w=3600"#
    );
    assert_eq!(lines(&rate_limit, "github")[2], "x-ratelimit-used: 7");
}

#[test]
fn the_remaining_quota_is_at_most_a_lowered_quota() {
    let policy = QuotaPolicy::new("p", 10, Nanos::MINUTE, QuotaUnit::Requests).unwrap();
    let items = [RateLimitItem::new(
        &policy,
        Outcome::Allow,
        &status(90, Nanos::SECOND),
    )];
    let rate_limit = RateLimitStatus::new(Outcome::Allow, &items);
    assert_eq!(
        lines(&rate_limit, "draft-11")[1],
        r#"ratelimit: "p";r=10;t=1"#
    );
}

#[test]
fn a_redirection_has_no_rate_limit_fields() {
    let sample = Sample::new();
    let items = sample.admitted();
    let rate_limit = RateLimitStatus::new(Outcome::Allow, &items).with_now(NOW);
    for status in [300, 301, 308, 399] {
        let lines = lines(
            &rate_limit.with_response_status(status),
            "draft-11,draft-03,github",
        );
        assert!(lines.is_empty(), "{status}: {lines:?}");
    }
    for status in [0, 200, 299, 400, 503] {
        assert_eq!(
            lines(&rate_limit.with_response_status(status), "draft-11").len(),
            2,
            "{status}"
        );
    }
}

#[test]
fn a_status_without_limits_has_only_the_fields_of_a_refusal() {
    for dialect in Dialect::ALL {
        let allowed = lines(&RateLimitStatus::new(Outcome::Allow, &[]), dialect.name());
        assert!(allowed.is_empty(), "{dialect}");
        let refused = lines(&RateLimitStatus::new(denied(1), &[]), dialect.name());
        assert_eq!(refused, ["retry-after: 1", "cache-control: no-store"]);
        let never = lines(&RateLimitStatus::new(Outcome::Never, &[]), dialect.name());
        assert_eq!(never, ["cache-control: no-store"]);
    }
}

#[test]
fn at_most_sixteen_limits_are_listed_and_the_binding_one_is_among_them() {
    let names: Vec<String> = (0..40).map(|n| format!("p{n}")).collect();
    let policies: Vec<QuotaPolicy> = names
        .iter()
        .map(|name| QuotaPolicy::new(name, 9, Nanos::SECOND, QuotaUnit::Requests).unwrap())
        .collect();
    let items: Vec<RateLimitItem<'_>> = policies
        .iter()
        .map(|policy| RateLimitItem::new(policy, Outcome::Allow, &status(9, Nanos::ZERO)))
        .collect();
    for binding in [0, 14, 15, 16, 39] {
        let rate_limit = RateLimitStatus::new(Outcome::Allow, &items).with_binding(binding);
        for line in lines(&rate_limit, "draft-11") {
            assert_eq!(line.split(", ").count(), 16, "{binding}");
            assert!(
                line.contains(&format!("\"p{binding}\"")),
                "{binding}: {line}"
            );
        }
    }
}

#[test]
fn only_list_fields_are_appended_to_existing_ones() {
    let sample = Sample::new();
    let items = sample.refused();
    let rate_limit = RateLimitStatus::new(denied(1), &items);
    let mut fields = HeaderFields::with_capacity(1_024);
    let mut appended = |dialects: &str| {
        rate_limit.write(dialects.parse().unwrap(), &mut fields);
        let fields = fields.fields().filter(|field| field.merge == Merge::Append);
        fields.map(|field| field.name).collect::<Vec<_>>()
    };
    let lists = ["ratelimit-policy", "ratelimit", "cache-control"];
    assert_eq!(appended("draft-11,draft-03,discord"), lists);
    // A second dictionary would override the first.
    assert_eq!(appended("draft-07"), ["ratelimit-policy", "cache-control"]);
    assert_eq!(fields.get("retry-after"), Some(&b"86400"[..]));
    assert_eq!(
        (
            fields.get("x-ratelimit-limit"),
            fields.is_empty(),
            fields.len()
        ),
        (None, false, 4)
    );
}
