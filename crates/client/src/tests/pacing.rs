//! When requests are sent: never before the server allows it, by priority, and never after their deadline.

use proptest::prelude::*;
use tollgate_core::Nanos;

use super::support::{NOW, blocked, due, granted, info, pacer, queued, request, seconds};
use crate::{PaceError, Pacer, PacerSettings, Priority, RequestCost, WaiterState};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn nothing_is_sent_before_retry_after(wait in 1..60_u64, early in 1..1_000_u64) {
        let mut pacer = blocked(&wait.to_string());
        let waiter = queued(&mut pacer, &request(), NOW);
        let before = NOW.after(Nanos::from_nanos(wait * 1_000_000_000 - early));
        prop_assert!(due(&mut pacer, before).is_empty());
        let wakeup = pacer.next_wakeup(before).unwrap();
        prop_assert!(wakeup >= seconds(wait));
        prop_assert_eq!(due(&mut pacer, wakeup), [waiter]);
    }
}

#[test]
fn control_a_pacer_that_reads_no_fields_sends_too_early() {
    let mut pacer = pacer();
    let grant = granted(&mut pacer, &request(), NOW);
    pacer.on_response(grant, 200, &info(&[("retry-after", "30")]), NOW);
    // A successful response with `Retry-After` blocks nothing, so the check above can fail.
    assert!(pacer.acquire(&request(), seconds(1)).is_ok());
    assert_eq!(pacer.waiting(), 0);
}

/// GitHub says when its quota resets, and not how long its window is. A client that knew nothing else took a quarter of one
/// request as its part of what was left, and waited up to eight times as long as GitHub asked for.
#[test]
fn a_used_up_quota_is_waited_for_until_its_reset() {
    let mut pacer = pacer();
    let fields = [
        ("x-ratelimit-limit", "60"),
        ("x-ratelimit-remaining", "0"),
        ("x-ratelimit-reset", "40"),
    ];
    let grant = granted(&mut pacer, &request(), NOW);
    pacer.on_response(grant, 403, &info(&fields), NOW);
    let waiter = queued(&mut pacer, &request(), NOW);
    assert!(due(&mut pacer, seconds(39)).is_empty());
    // Clients that are refused together come back one after another.
    assert_eq!(due(&mut pacer, seconds(45)), [waiter]);
}

/// A server with a wrong clock reports resets that have passed. Its refusals are backed off from as those that say nothing.
#[test]
fn a_refusal_whose_reset_has_passed_is_backed_off_from() {
    let mut pacer = pacer();
    let fields = [
        ("x-ratelimit-limit", "5000"),
        ("x-ratelimit-remaining", "0"),
        ("x-ratelimit-reset", "1600000000"),
    ];
    let mut now = NOW;
    for _ in 0..12 {
        let grant = granted(&mut pacer, &request(), now);
        pacer.on_response(grant, 429, &info(&fields), now);
        let waiter = queued(&mut pacer, &request(), now);
        now = pacer.next_wakeup(now).unwrap();
        assert_eq!(due(&mut pacer, now), [waiter]);
        let WaiterState::Granted(grant) = pacer.poll(waiter) else {
            panic!()
        };
        pacer.release(grant, now);
        now = now.after(Nanos::from_millis(1));
    }
    // Twelve backoffs of full jitter, from 100 ms to 25 s.
    assert!(
        now.since(NOW) > Nanos::from_secs(10),
        "{:?}",
        now.since(NOW)
    );
}

#[test]
fn waits_that_servers_ask_for_are_capped() {
    let mut pacer = blocked("31536000");
    let year = pacer.acquire(&request(), NOW).unwrap_err();
    assert!(matches!(year, PaceError::WaitTooLong { .. }), "{year}");
    // After the longest block, a request may look again.
    let _grant = granted(&mut pacer, &request(), seconds(601));
}

#[test]
fn a_wait_beyond_the_deadline_fails_at_once_and_says_so() {
    let mut pacer = blocked("30");
    let error = pacer
        .acquire(&request().with_deadline(seconds(20)), NOW)
        .unwrap_err();
    assert!(matches!(error, PaceError::DeadlineTooClose { wait } if wait >= Nanos::from_secs(30)));
    assert!(
        error
            .to_string()
            .ends_with("which would pass the request's deadline")
    );
    queued(&mut pacer, &request().with_deadline(seconds(50)), NOW);
}

#[test]
fn requests_that_wait_fail_as_soon_as_a_block_passes_their_deadline() {
    let mut pacer = Pacer::new(PacerSettings::default().with_initial_rate(1.0).unwrap(), 7);
    let grant = granted(&mut pacer, &request(), NOW);
    let hopeless = queued(&mut pacer, &request().with_deadline(seconds(10)), NOW);
    let other = queued(&mut pacer, &request(), NOW);
    pacer.on_response(grant, 429, &info(&[("retry-after", "30")]), NOW);
    assert_eq!(due(&mut pacer, NOW), [hopeless]);
    let state = pacer.poll(hopeless);
    assert!(matches!(
        state,
        WaiterState::Failed(PaceError::DeadlineTooClose { .. })
    ));
    assert!(matches!(pacer.poll(other), WaiterState::Waiting));
}

#[test]
fn priorities_go_first_and_equals_in_order() {
    let mut pacer = blocked("5");
    let mut wait = |priority| queued(&mut pacer, &request().with_priority(priority), NOW);
    let low = wait(Priority::Low);
    let first = wait(Priority::Normal);
    let second = wait(Priority::Normal);
    let high = wait(Priority::High);
    let mut order = Vec::new();
    for second in 5..60 {
        order.extend(due(&mut pacer, seconds(second)));
    }
    assert_eq!(order, [high, first, second, low]);
}

#[test]
fn the_queue_is_bounded() {
    let settings = PacerSettings::default().with_initial_rate(1.0).unwrap();
    let mut pacer = Pacer::new(settings.with_max_waiters(2).with_max_wait(Nanos::HOUR), 7);
    let _grant = granted(&mut pacer, &request(), NOW);
    queued(&mut pacer, &request(), NOW);
    queued(&mut pacer, &request(), NOW);
    assert_eq!(
        pacer.acquire(&request(), NOW).unwrap_err(),
        PaceError::QueueFull
    );
}

#[test]
fn tokens_are_reserved_by_estimate_and_settled_by_usage() {
    let mut pacer = pacer();
    let fields = [
        ("x-ratelimit-limit-tokens", "1000"),
        ("x-ratelimit-remaining-tokens", "1000"),
        ("x-ratelimit-reset-tokens", "30s"),
    ];
    let grant = granted(&mut pacer, &request(), NOW);
    pacer.on_response(grant, 200, &info(&fields), NOW);
    let cost = |tokens| request().with_cost(RequestCost::NONE.with_output_tokens(tokens));
    let mut grant = granted(&mut pacer, &cost(900), seconds(1));
    // The estimate leaves 100 tokens, and there are more once the request used less.
    let waiter = queued(&mut pacer, &cost(500), NOW);
    assert!(due(&mut pacer, seconds(29)).is_empty());
    pacer.settle(&mut grant, RequestCost::NONE.with_output_tokens(100));
    assert_eq!(due(&mut pacer, seconds(29)), [waiter]);
}

#[test]
fn a_report_of_nothing_left_stops_requests_until_the_reset() {
    let mut pacer = pacer();
    let grant = granted(&mut pacer, &request(), NOW);
    pacer.on_response(
        grant,
        200,
        &info(&[("ratelimit", r#""api";r=0;t=12"#)]),
        NOW,
    );
    queued(&mut pacer, &request(), NOW);
    assert!(due(&mut pacer, seconds(11)).is_empty());
    assert_eq!(due(&mut pacer, seconds(12)).len(), 1);
}

#[test]
fn cached_responses_change_nothing() {
    let mut pacer = pacer();
    let grant = granted(&mut pacer, &request(), NOW);
    let cached = info(&[("ratelimit", r#""api";r=0;t=12"#), ("age", "5")]);
    pacer.on_response(grant, 429, &cached, NOW);
    let _grant = granted(&mut pacer, &request(), seconds(1));
}

#[test]
fn one_request_has_to_succeed_after_an_outage() {
    let mut pacer = pacer();
    let grant = granted(&mut pacer, &request(), NOW);
    pacer.on_failure(grant, NOW);
    let first = queued(&mut pacer, &request(), NOW);
    let second = queued(&mut pacer, &request(), NOW);
    assert_eq!(
        due(&mut pacer, seconds(1)),
        [first],
        "one request looks whether the server is back"
    );
    let WaiterState::Granted(grant) = pacer.poll(first) else {
        panic!()
    };
    assert!(
        pacer.next_wakeup(seconds(2)) > Some(seconds(59)),
        "the others wait for its response, until they give up"
    );
    pacer.on_response(grant, 200, &info(&[]), seconds(2));
    assert_eq!(due(&mut pacer, seconds(3)), [second]);
}

/// A server may have a limit that it does not report beside one that it reports.
#[test]
fn a_refusal_that_no_report_explains_shows_a_hidden_quota() {
    let rate_after = |fields: &[(&str, &str)]| {
        let mut pacer = Pacer::new(PacerSettings::default(), 7);
        let grant = granted(&mut pacer, &request(), NOW);
        let report = [
            ("ratelimit-policy", r#""a";q=100;w=60"#),
            ("ratelimit", r#""a";r=90;t=6"#),
        ];
        pacer.on_response(grant, 200, &info(&report), NOW);
        let before = pacer.status(NOW).next().unwrap().rate;
        let grant = granted(&mut pacer, &request(), seconds(30));
        pacer.on_response(grant, 429, &info(fields), seconds(31));
        pacer.status(NOW).next().unwrap().rate / before
    };
    let policy = ("ratelimit-policy", r#""a";q=100;w=60"#);
    assert!(rate_after(&[policy, ("ratelimit", r#""a";r=89;t=7"#)]) < 0.9);
    // The reported limit explains these: it is used up, or may be.
    assert!(rate_after(&[policy, ("ratelimit", r#""a";r=0;t=60"#)]) >= 1.0);
    assert!(rate_after(&[]) >= 1.0);
}

/// A proxy before the server may refuse without fields. Each such refusal passed for one by the reported limit, of which others might
/// have used the rest, so the client went on at the reported pace.
#[test]
fn refusals_without_fields_are_explained_by_a_report_only_once() {
    let mut pacer = Pacer::new(PacerSettings::default(), 7);
    let grant = granted(&mut pacer, &request(), NOW);
    let report = [
        ("ratelimit-policy", r#""a";q=1000000;w=60"#),
        ("ratelimit", r#""a";r=999990;t=1"#),
    ];
    pacer.on_response(grant, 200, &info(&report), NOW);
    // Two are refused at once: others may have used up the quota.
    let before = pacer.status(NOW).next().unwrap().rate;
    let [first, second] = [1, 2].map(|at| granted(&mut pacer, &request(), seconds(at)));
    pacer.on_response(first, 429, &info(&[]), seconds(3));
    pacer.on_response(second, 429, &info(&[]), seconds(3));
    assert!(pacer.status(NOW).next().unwrap().rate >= before);
    // This one was sent later, and the report still leaves room.
    let third = granted(&mut pacer, &request(), seconds(30));
    pacer.on_response(third, 429, &info(&[]), seconds(31));
    assert!(pacer.status(NOW).next().unwrap().rate < before);
}

/// Requests kept a limit fresh that the server had stopped to report, so that an old report paced a client for ever.
#[test]
fn a_limit_that_the_server_no_longer_reports_stops_pacing() {
    let mut pacer = Pacer::new(PacerSettings::default(), 7);
    let grant = granted(&mut pacer, &request(), NOW);
    let report = [
        ("ratelimit-policy", r#""overload:credits";q=1;w=60"#),
        ("ratelimit", r#""overload:credits";r=0;t=60"#),
    ];
    pacer.on_response(grant, 200, &info(&report), NOW);
    // The gap that the report made is longer than the report is used.
    let error = pacer.acquire(&request(), seconds(61)).unwrap_err();
    assert!(matches!(error, PaceError::WaitTooLong { .. }), "{error}");
    let grant = granted(&mut pacer, &request(), seconds(700));
    pacer.on_response(grant, 200, &info(&[]), seconds(700));
    let _next = granted(&mut pacer, &request(), seconds(702));
}

/// Reports of tokens say nothing about requests that use none, and requests that use none do not move the next one that does.
#[test]
fn a_report_of_tokens_does_not_pace_requests_without_tokens() {
    let settings = PacerSettings::default().with_initial_rate(1.0).unwrap();
    let mut pacer = Pacer::new(settings, 7);
    let fields = [
        ("x-ratelimit-limit-tokens", "1000"),
        ("x-ratelimit-remaining-tokens", "600"),
        ("x-ratelimit-reset-tokens", "60s"),
    ];
    let grant = granted(&mut pacer, &request(), NOW);
    pacer.on_response(grant, 200, &info(&fields), NOW);
    let tokens = request().with_cost(RequestCost::NONE.with_output_tokens(100));
    let _first = granted(&mut pacer, &tokens, seconds(2));
    let _without = granted(&mut pacer, &request(), seconds(4));
    // One request a second, although the report leaves 500 tokens.
    queued(&mut pacer, &request(), seconds(4));
    assert_eq!(due(&mut pacer, seconds(6)).len(), 1);
    // A hundred tokens of ten a second, times a share of a quarter.
    let waiter = queued(&mut pacer, &tokens, seconds(10));
    assert!(due(&mut pacer, seconds(15)).is_empty());
    assert_eq!(due(&mut pacer, seconds(60)), [waiter]);
}
