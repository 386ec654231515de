//! The bodies of refusals and other problems.
//!
//! Must not know: how JSON is written; an independent parser reads it.

use serde_json::{Value, json};
use tollgate_core::{Nanos, Outcome, QuotaUnit};

use super::support::{Sample, denied, status};
use crate::{Jitter, ProblemDetails, ProblemType, QuotaPolicy, RateLimitItem, RateLimitStatus};

fn policy(name: &str) -> QuotaPolicy {
    QuotaPolicy::new(name, 20, Nanos::from_secs(2), QuotaUnit::Requests).unwrap()
}

fn read(problem: &ProblemDetails) -> Value {
    serde_json::from_str(&problem.to_json()).unwrap()
}

fn written(rate_limit: &RateLimitStatus<'_>, cause: ProblemType) -> Value {
    let mut out = Vec::new();
    rate_limit.write_problem(cause, cause.status(), &mut out);
    serde_json::from_slice(&out).unwrap()
}

#[test]
fn a_denial_names_every_policy_that_refuses_and_the_exact_wait() {
    let (day, hour, minute) = (policy("day"), policy("hour"), policy("minute"));
    let nothing = status(0, Nanos::DAY);
    let exact = Outcome::Deny {
        retry_after: Nanos::from_nanos(1_500_000_001),
    };
    let items = [
        RateLimitItem::new(&day, exact, &nothing).with_cost(3),
        RateLimitItem::new(&hour, denied(700), &nothing),
        RateLimitItem::new(&minute, Outcome::Allow, &status(1, Nanos::SECOND)),
    ];
    let rate_limit = RateLimitStatus::new(exact, &items);
    let expected = json!({
        "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
        "title": "Quota Exceeded",
        "status": 429,
        "detail": "the limit \"day\" has no room for a cost of 3 now; retry after 1501 ms",
        "violated-policies": ["day", "hour"],
        "retry-after-ms": 1501,
    });
    assert_eq!(written(&rate_limit, ProblemType::QuotaExceeded), expected);
    // Jitter applies to `retry-after-ms` as well.
    let jitter = Jitter::new(Nanos::MINUTE, 1);
    let later = written(&rate_limit.with_jitter(jitter), ProblemType::QuotaExceeded);
    assert!(later["retry-after-ms"].as_u64().unwrap() > 1_501);
}

#[test]
fn every_cause_has_the_type_title_and_status_of_the_draft() {
    let cases = [
        (
            ProblemType::QuotaExceeded,
            "quota-exceeded",
            "Quota Exceeded",
            429,
        ),
        (
            ProblemType::ReducedCapacity,
            "temporary-reduced-capacity",
            "Temporary Reduced Capacity",
            503,
        ),
        (
            ProblemType::AbnormalUsage,
            "abnormal-usage-detected",
            "Abnormal Usage Detected",
            429,
        ),
    ];
    for (cause, name, title, status) in cases {
        let body = written(&RateLimitStatus::new(denied(1), &[]), cause);
        let expected = json!({
            "type": format!("https://iana.org/assignments/http-problem-types#{name}"),
            "title": title,
            "status": status,
            "detail": "the request is refused",
            "retry-after-ms": 1,
        });
        assert_eq!(body, expected);
    }
}

#[test]
fn a_limits_own_message_is_the_detail_with_any_characters() {
    let message = "Slow down, \"friend\" \\ \u{1}\n\t é 日本 😀 </script>";
    let custom = policy("custom").with_message(message);
    let items = [RateLimitItem::new(
        &custom,
        denied(5),
        &status(0, Nanos::SECOND),
    )];
    let rate_limit = RateLimitStatus::new(denied(5), &items);
    let mut out = b"HTTP".to_vec();
    rate_limit.write_problem(ProblemType::QuotaExceeded, 403, &mut out);
    assert!(out.starts_with(b"HTTP{"), "it is appended");
    let body: Value = serde_json::from_slice(&out[4..]).unwrap();
    assert_eq!(
        (&body["detail"], &body["status"]),
        (&json!(message), &json!(403))
    );

    let endless = policy("endless").with_message(&"é".repeat(100_000));
    let items = [RateLimitItem::new(
        &endless,
        denied(5),
        &status(0, Nanos::SECOND),
    )];
    let body = written(
        &RateLimitStatus::new(denied(5), &items),
        ProblemType::QuotaExceeded,
    );
    assert_eq!(body["detail"].as_str().unwrap().chars().count(), 1_024);
}

#[test]
fn a_cost_that_never_fits_says_that_waiting_does_not_help() {
    let demo = policy("demo");
    let item = RateLimitItem::new(&demo, Outcome::Never, &status(20, Nanos::ZERO));
    let text = "a cost of 21 is above 20, the most that the limit \"demo\" ever admits at once; waiting does not help";
    let body = written(
        &RateLimitStatus::new(Outcome::Never, &[item.with_cost(21)]),
        ProblemType::QuotaExceeded,
    );
    assert_eq!(body["detail"], text);
    assert_eq!(body.get("retry-after-ms"), None);
    assert_eq!(body["violated-policies"], json!(["demo"]));
    let closed = written(
        &RateLimitStatus::new(Outcome::Never, &[item]),
        ProblemType::QuotaExceeded,
    );
    assert_eq!(
        closed["detail"],
        "the limit \"demo\" never admits this; waiting does not help"
    );
}

#[test]
fn names_and_details_are_escaped() {
    let name = r#"a"b\c"#;
    let named = policy(name);
    let items = [RateLimitItem::new(
        &named,
        denied(5),
        &status(0, Nanos::SECOND),
    )];
    let body = written(
        &RateLimitStatus::new(denied(5), &items),
        ProblemType::QuotaExceeded,
    );
    assert_eq!(body["violated-policies"], json!([name]));

    let nasty = "line\nbreak, \"quote\", \u{1}, \u{2028}, </script>";
    let plain = ProblemDetails::new(400, "Bad Request", nasty);
    assert_eq!(read(&plain)["detail"], nasty);
    assert!(!plain.to_json().contains('\n'));
}

#[test]
fn a_custom_detail_replaces_the_default() {
    let sample = Sample::new();
    let items = sample.refused();
    let rate_limit = RateLimitStatus::new(denied(86_399_100), &items);
    let mut usual = written(&rate_limit, ProblemType::QuotaExceeded);
    let mut out = Vec::new();
    rate_limit.write_problem_with_detail(
        ProblemType::QuotaExceeded,
        429,
        "the \"day\" is over",
        &mut out,
    );
    let own: Value = serde_json::from_slice(&out).unwrap();
    usual["detail"] = json!("the \"day\" is over");
    assert_eq!(own, usual);
}

#[test]
fn a_problem_names_a_violated_policy_without_a_status() {
    let plain = ProblemDetails::new(429, "Too Many Requests", "blocked");
    let problem = plain.with_violated_policy(ProblemType::AbnormalUsage, Some("api"), Some(90_500));
    let expected = json!({
        "type": ProblemType::AbnormalUsage.type_uri(), "title": "Abnormal Usage Detected", "status": 429,
        "detail": "blocked", "violated-policies": ["api"], "retry-after-ms": 90_500,
    });
    assert_eq!(read(&problem), expected);
    assert_eq!((problem.status(), problem.detail()), (429, "blocked"));
}
