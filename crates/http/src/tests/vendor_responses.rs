//! Responses of other servers in the shapes that their vendors document, and fields that nobody should send.
//!
//! Must not know: how anything is written or read.

use base64::Engine as _;
use proptest::prelude::*;
use tollgate_core::Nanos;

use super::support::NOW;
use crate::{LimitUnit, RateLimitInfo, RefusalReason, ResponseReader, Scope};

fn read(fields: &[(&str, &str)]) -> RateLimitInfo {
    let mut reader = ResponseReader::new(NOW);
    for (name, value) in fields {
        reader.field(name, value.as_bytes());
    }
    reader.finish()
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

/// The remaining quota of the stricter of two items went together with the reset of the other one, so a client came back early.
#[test]
fn of_two_items_about_one_limit_the_later_reset_counts() {
    for fields in [
        [
            ("ratelimit", r#""a";r=0;t=60"#),
            ("ratelimit", r#""a";r=5;t=1"#),
        ],
        [
            ("ratelimit", r#""a";r=5;t=1"#),
            ("ratelimit", r#""a";r=0;t=60"#),
        ],
        [("ratelimit-reset", "60"), ("ratelimit-reset", "1")],
        [
            ("x-ratelimit-reset", "1700000060"),
            ("x-ratelimit-reset", "1700000001"),
        ],
        [
            ("x-ratelimit-reset-after", "60"),
            ("x-ratelimit-reset-after", "1.5"),
        ],
    ] {
        let limits = read(&fields).limits;
        let reset = limits[0].reset_after;
        assert!(reset > Some(Nanos::from_secs(59)), "{fields:?}: {reset:?}");
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

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

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

/// The first members of a malformed list counted: `1e400` was a quota of 1, and a list that was cut off had the limits before the cut.
#[test]
fn a_field_that_is_malformed_at_its_end_changes_nothing() {
    for (name, value) in [
        ("x-ratelimit-limit", "1e400"),
        ("x-ratelimit-limit", "100, 100;w=60, -"),
        ("ratelimit-limit", "100, soon"),
        ("ratelimit", r#""a";r=0;t=60, "b"#),
        ("ratelimit", r#""a";r=0;t=60,"#),
        ("ratelimit", r#""a";r=0;t=60, 7"#),
        ("ratelimit", "limit=100, remaining=0, reset=60, ="),
        ("ratelimit-policy", r#""a";q=10;w=60, ?2"#),
        ("ratelimit-policy", "10;w=60, 20;W=1"),
    ] {
        let empty = RateLimitInfo {
            malformed_fields: 1,
            ..RateLimitInfo::default()
        };
        assert_eq!(read(&[(name, value)]), empty, "{name}: {value}");
    }
}
