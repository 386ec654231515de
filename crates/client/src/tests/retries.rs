//! Which refusals are retried.

use tollgate_core::{Nanos, Timestamp};
use tollgate_http::{RefusalReason, ResponseReader};

use super::support::{NOW, granted, info, pacer, request, seconds};
use crate::retry::backoff;
use crate::{Pacer, PacerSettings, RetryDecision, ServerRefusal};

/// A status and fields, and what they mean.
type RefusalCase = (
    u16,
    &'static [(&'static str, &'static str)],
    RefusalReason,
    RetryDecision,
);

fn refuse(
    pacer: &mut Pacer,
    status: u16,
    fields: &[(&str, &str)],
    now: Timestamp,
) -> ServerRefusal {
    let grant = granted(pacer, &request(), now);
    pacer
        .on_response(grant, status, &info(fields), now)
        .unwrap()
}

#[test]
fn rates_are_retried_and_used_up_quotas_are_not() {
    let cases: [RefusalCase; 7] = [
        (429, &[], RefusalReason::Rate, RetryDecision::Retry),
        (
            429,
            &[("retry-after", "2")],
            RefusalReason::Rate,
            RetryDecision::Retry,
        ),
        (
            403,
            &[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "30")],
            RefusalReason::Rate,
            RetryDecision::Retry,
        ),
        (503, &[], RefusalReason::Overloaded, RetryDecision::Retry),
        (529, &[], RefusalReason::Overloaded, RetryDecision::Retry),
        // A day's quota.
        (
            429,
            &[("retry-after", "40000")],
            RefusalReason::QuotaExhausted,
            RetryDecision::GiveUp,
        ),
        (
            429,
            &[("stripe-should-retry", "false")],
            RefusalReason::Rate,
            RetryDecision::GiveUp,
        ),
    ];
    for (status, fields, reason, decision) in cases {
        let mut pacer = pacer();
        let refusal = refuse(&mut pacer, status, fields, NOW);
        assert_eq!(refusal.reason, reason, "{fields:?}");
        assert_eq!(
            pacer.decide_retry(&refusal, 1, None, NOW),
            decision,
            "{fields:?}"
        );
    }
}

#[test]
fn other_statuses_are_no_refusals() {
    for status in [200, 304, 401, 403, 404, 500] {
        let mut pacer = pacer();
        let grant = granted(&mut pacer, &request(), NOW);
        assert_eq!(
            pacer.on_response(grant, status, &info(&[]), NOW),
            None,
            "{status}"
        );
    }
}

#[test]
fn an_exhausted_budget_of_the_account_is_not_retried() {
    let mut pacer = pacer();
    let mut reader = ResponseReader::new(NOW);
    reader.body(
        b"application/json",
        br#"{"error":{"code":"insufficient_quota"}}"#,
    );
    let grant = granted(&mut pacer, &request(), NOW);
    let refusal = pacer
        .on_response(grant, 429, &reader.finish(), NOW)
        .unwrap();
    assert_eq!(refusal.reason, RefusalReason::QuotaExhausted);
    assert_eq!(
        pacer.decide_retry(&refusal, 1, None, NOW),
        RetryDecision::GiveUp
    );
}

#[test]
fn attempts_deadlines_and_the_budget_end_retries() {
    let mut pacer = pacer();
    let refusal = refuse(&mut pacer, 429, &[("retry-after", "5")], NOW);
    assert_eq!(
        pacer.decide_retry(&refusal, 4, None, NOW),
        RetryDecision::GiveUp
    );
    let soon = Some(seconds(3));
    assert_eq!(
        pacer.decide_retry(&refusal, 1, soon, NOW),
        RetryDecision::GiveUp
    );
    let retries = (0..100)
        .filter(|_| pacer.decide_retry(&refusal, 1, None, NOW) == RetryDecision::Retry)
        .count();
    assert_eq!(retries, 10, "the reserve; one request adds a fifth");
}

#[test]
fn without_a_budget_only_attempts_and_deadlines_end_retries() {
    let mut pacer = Pacer::new(PacerSettings::default().without_retry_budget(), 1);
    let refusal = refuse(&mut pacer, 429, &[("retry-after", "5")], NOW);
    let retries = (0..100)
        .filter(|_| pacer.decide_retry(&refusal, 1, None, NOW) == RetryDecision::Retry)
        .count();
    assert_eq!(retries, 100);
    let decision = pacer.decide_retry(&refusal, 4, None, NOW);
    assert_eq!(decision, RetryDecision::GiveUp);
}

#[test]
fn backoff_is_random_and_doubles() {
    let mut random = crate::random::Random::new(3);
    for failures in 1..20 {
        let most = 100_u64 << (failures - 1_u32).min(8);
        let waits: Vec<Nanos> = (0..200).map(|_| backoff(failures, &mut random)).collect();
        assert!(waits.iter().all(|wait| *wait <= Nanos::from_millis(most)));
        assert!(
            waits
                .iter()
                .any(|wait| *wait > Nanos::from_millis(most * 8 / 10))
        );
        assert!(
            waits
                .iter()
                .any(|wait| *wait < Nanos::from_millis(most * 2 / 10))
        );
    }
}
