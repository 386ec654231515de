//! Refusals in the shapes that GitHub, Stripe, Discord, Shopify, OpenAI and Anthropic document: why, how long, and whether to retry.
//!
//! Must not know: how fields and bodies are read.

use tollgate_core::Nanos;
use tollgate_http::{RefusalReason, ResponseReader};

use super::support::{NOW, granted, pacer, request};
use crate::RetryDecision::{self, GiveUp, Retry};

/// A response, and what it means.
struct RecordedRefusal {
    name: &'static str,
    status: u16,
    fields: &'static [(&'static str, &'static str)],
    body: &'static str,
    expected: (RefusalReason, Option<Nanos>, RetryDecision),
}

const fn refusal(name: &'static str, status: u16) -> RecordedRefusal {
    RecordedRefusal {
        name,
        status,
        fields: &[],
        body: "",
        expected: (RefusalReason::Rate, None, Retry),
    }
}

const fn wait(millis: u64) -> Option<Nanos> {
    Some(Nanos::from_millis(millis))
}

const GITHUB_AND_STRIPE: [RecordedRefusal; 4] = [
    RecordedRefusal {
        fields: &[
            ("x-ratelimit-limit", "60"),
            ("x-ratelimit-remaining", "0"),
            ("x-ratelimit-used", "60"),
            ("x-ratelimit-reset", "1700000030"),
            ("x-ratelimit-resource", "core"),
            ("date", "Tue, 14 Nov 2023 22:13:20 GMT"),
        ],
        body: r#"{"message":"API rate limit exceeded for 192.0.2.7."}"#,
        expected: (RefusalReason::Rate, wait(30_000), Retry),
        ..refusal("GitHub, primary", 403)
    },
    RecordedRefusal {
        fields: &[("x-ratelimit-remaining", "4990")],
        body: r#"{"message":"You have exceeded a secondary rate limit. Please wait a few minutes before you try again."}"#,
        expected: (RefusalReason::Rate, wait(60_000), Retry),
        ..refusal("GitHub, secondary", 403)
    },
    RecordedRefusal {
        fields: &[
            ("stripe-rate-limited-reason", "global-rate"),
            ("stripe-should-retry", "true"),
        ],
        body: r#"{"error":{"message":"Testmode request rate limit exceeded","type":"invalid_request_error","code":"rate_limit"}}"#,
        ..refusal("Stripe", 429)
    },
    RecordedRefusal {
        body: r#"{"error":{"message":"This object cannot be accessed right now","type":"invalid_request_error","code":"lock_timeout"}}"#,
        expected: (RefusalReason::Overloaded, None, Retry),
        ..refusal("Stripe, lock", 429)
    },
];

const DISCORD_AND_SHOPIFY: [RecordedRefusal; 2] = [
    RecordedRefusal {
        fields: &[
            ("retry-after", "2"),
            ("x-ratelimit-limit", "10"),
            ("x-ratelimit-remaining", "0"),
            ("x-ratelimit-reset", "1700000001.336"),
            ("x-ratelimit-reset-after", "1.336"),
            ("x-ratelimit-bucket", "abcd1234"),
            ("x-ratelimit-scope", "user"),
        ],
        body: r#"{"message":"You are being rate limited.","retry_after":1.336,"global":false}"#,
        expected: (RefusalReason::Rate, wait(1_336), Retry),
        ..refusal("Discord", 429)
    },
    RecordedRefusal {
        fields: &[
            ("retry-after", "2.0"),
            ("x-shopify-shop-api-call-limit", "40/40"),
        ],
        body: r#"{"errors":"Exceeded 2 calls per second for api client. Reduce request rates to resume uninterrupted service."}"#,
        expected: (RefusalReason::Rate, wait(2_000), Retry),
        ..refusal("Shopify", 429)
    },
];

const OPENAI_AND_ANTHROPIC: [RecordedRefusal; 4] = [
    RecordedRefusal {
        fields: &[
            ("retry-after-ms", "1250"),
            ("retry-after", "2"),
            ("x-ratelimit-limit-requests", "60"),
            ("x-ratelimit-remaining-requests", "0"),
            ("x-ratelimit-reset-requests", "1s"),
        ],
        body: r#"{"error":{"message":"Rate limit reached for requests","type":"requests","param":null,"code":"rate_limit_exceeded"}}"#,
        expected: (RefusalReason::Rate, wait(2_000), Retry),
        ..refusal("OpenAI", 429)
    },
    RecordedRefusal {
        body: r#"{"error":{"message":"You exceeded your current quota","type":"insufficient_quota","param":null,"code":"insufficient_quota"}}"#,
        expected: (RefusalReason::QuotaExhausted, None, GiveUp),
        ..refusal("OpenAI, budget", 429)
    },
    RecordedRefusal {
        fields: &[
            ("retry-after", "12"),
            ("anthropic-ratelimit-requests-limit", "50"),
            ("anthropic-ratelimit-requests-remaining", "0"),
            ("anthropic-ratelimit-requests-reset", "2023-11-14T22:13:32Z"),
        ],
        body: r#"{"type":"error","error":{"type":"rate_limit_error","message":"This request would exceed your rate limit"}}"#,
        expected: (RefusalReason::Rate, wait(12_000), Retry),
        ..refusal("Anthropic", 429)
    },
    RecordedRefusal {
        body: r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#,
        expected: (RefusalReason::Overloaded, None, Retry),
        ..refusal("Anthropic, overloaded", 529)
    },
];

#[test]
fn documented_refusals_are_understood() {
    let all = GITHUB_AND_STRIPE.into_iter();
    for recorded in all.chain(DISCORD_AND_SHOPIFY).chain(OPENAI_AND_ANTHROPIC) {
        let mut reader = ResponseReader::new(NOW);
        for (name, value) in recorded.fields {
            reader.field(name, value.as_bytes());
        }
        reader.body(b"application/json; charset=utf-8", recorded.body.as_bytes());
        let info = reader.finish();
        assert_eq!(info.malformed_fields, 0, "{}", recorded.name);
        let mut pacer = pacer();
        let grant = granted(&mut pacer, &request(), NOW);
        let refusal = pacer.on_response(grant, recorded.status, &info, NOW);
        let refusal = refusal.unwrap();
        let decision = pacer.decide_retry(&refusal, 1, None, NOW);
        let understood = (refusal.reason, refusal.retry_after, decision);
        assert_eq!(understood, recorded.expected, "{}", recorded.name);
    }
}

/// Of GitHub's 403s, those about permissions are no limits.
#[test]
fn control_a_refusal_for_another_reason_is_none_by_a_limit() {
    let mut reader = ResponseReader::new(NOW);
    reader.field("x-ratelimit-remaining", b"4990");
    let body = br#"{"message":"Resource not accessible by integration"}"#;
    reader.body(b"application/json", body);
    let mut pacer = pacer();
    let grant = granted(&mut pacer, &request(), NOW);
    assert_eq!(pacer.on_response(grant, 403, &reader.finish(), NOW), None);
}
