//! Settling by the response: permits, estimates, and counted responses.

use tollgate_core::{Nanos, Outcome};
use tollgate_policy::model::{Algorithm, Cost, Count, LimitRule, Mode, StatusClass};

use crate::testing::{TestCaller, engine, limit, places, quota};
use crate::{DenialReason, Response};

struct TokensUsed(&'static str);

impl Response for TokensUsed {
    fn status(&self) -> u16 {
        200
    }

    fn header(&self, name: &str) -> Option<&[u8]> {
        (name == "x-tokens-used").then_some(self.0.as_bytes())
    }
}

fn tokens() -> LimitRule {
    LimitRule {
        cost: Cost::Response {
            header: "x-tokens-used".into(),
            estimate: 100,
            at_most: 500,
        },
        overdraft: 1_000,
        ..limit(
            "tokens",
            quota(Algorithm::TokenBucket, &[(1_000, Nanos::HOUR)]),
        )
    }
}

#[test]
fn an_estimate_is_settled_at_the_cost_in_the_response() {
    let (engine, _clock) = engine(vec![tokens()]);
    let alice = TestCaller::named("alice");
    let remaining = || engine.peek(&alice).limits()[0].status.remaining;
    let ticket = || engine.decide(&alice).take_ticket().unwrap();
    let first = ticket();
    assert_eq!(remaining(), 900);
    engine.respond(first, &TokensUsed("30")).unwrap();
    assert_eq!(remaining(), 970);
    engine.respond(ticket(), &TokensUsed("250")).unwrap();
    assert_eq!(remaining(), 720);
    engine.respond(ticket(), &TokensUsed("9999")).unwrap();
    assert_eq!(remaining(), 220, "at most the policy's maximum");
    engine.respond(ticket(), &TokensUsed("a lot")).unwrap();
    assert_eq!(
        remaining(),
        120,
        "a response without the header keeps the estimate"
    );
    engine.cancel(ticket()).unwrap();
    assert_eq!(remaining(), 120);
}

#[test]
fn a_reservation_is_settled_under_every_limit_even_without_a_response_cost() {
    let plain = limit(
        "plain",
        quota(Algorithm::TokenBucket, &[(1_000, Nanos::HOUR)]),
    );
    let window = limit(
        "window",
        quota(Algorithm::FixedWindow, &[(500, Nanos::HOUR)]),
    );
    let (engine, _clock) = engine(vec![plain, window, tokens()]);
    let alice = TestCaller::named("alice");
    let remaining = || {
        let peeked = engine.peek_with_cost(&alice, 0);
        [0, 1, 2].map(|index| peeked.limits()[index].status.remaining)
    };
    let mut verdict = engine.reserve(&alice, 200);
    assert_eq!(remaining(), [800, 300, 800]);
    engine.settle(verdict.take_ticket().unwrap(), 50).unwrap();
    assert_eq!(remaining(), [950, 450, 950], "less than the estimate");
    let mut verdict = engine.reserve(&alice, 200);
    engine.settle(verdict.take_ticket().unwrap(), 300).unwrap();
    assert_eq!(remaining(), [650, 150, 650], "more than the estimate");
    let mut verdict = engine.reserve(&alice, 100);
    engine.cancel(verdict.take_ticket().unwrap()).unwrap();
    assert_eq!(remaining(), [650, 150, 650]);
    let mut plain = engine.decide_with_cost(&alice, 1);
    engine.cancel(plain.take_ticket().unwrap()).unwrap();
    assert_eq!(
        remaining(),
        [649, 149, 650],
        "otherwise only the response's cost is settled"
    );
}

#[test]
fn permits_are_held_until_the_response_or_the_end_of_the_lease() {
    let (engine, clock) = engine(vec![limit("at-once", places(2))]);
    let alice = TestCaller::named("alice");
    let first = engine.decide(&alice).take_ticket().unwrap();
    let second = engine.decide(&alice).take_ticket().unwrap();
    let third = engine.decide(&alice);
    assert_eq!(third.reason(), Some(DenialReason::Concurrency));
    let minute = Outcome::Deny {
        retry_after: Nanos::MINUTE,
    };
    assert_eq!(
        (third.outcome(), engine.peek(&alice).outcome()),
        (minute, minute)
    );
    engine.respond(first, &200).unwrap();
    assert_eq!(engine.peek(&alice).outcome(), Outcome::Allow);
    clock.advance(Nanos::from_secs(40));
    assert!(second.has_permits());
    assert_eq!(engine.renew(&second), Ok(true));
    clock.advance(Nanos::from_secs(40));
    assert_eq!(
        engine.peek(&alice).limits()[0].status.remaining,
        1,
        "renewed in time"
    );
    clock.advance(Nanos::from_secs(20));
    assert_eq!(engine.peek(&alice).limits()[0].status.remaining, 2);
    assert_eq!(engine.renew(&second), Ok(false));
    engine.respond(second, &200).unwrap();
}

#[test]
fn a_denied_request_holds_no_permit() {
    let mut narrow = limit("narrow", quota(Algorithm::TokenBucket, &[(1, Nanos::HOUR)]));
    narrow.key = Vec::new();
    let (engine, _clock) = engine(vec![limit("at-once", places(2)), narrow]);
    assert!(
        engine
            .decide(&TestCaller::named("alice"))
            .take_ticket()
            .is_some()
    );
    for _ in 0..5 {
        let mut verdict = engine.decide(&TestCaller::named("bob"));
        assert!(verdict.take_ticket().is_none());
        assert_eq!(verdict.limits()[0].status.remaining, 2);
    }
}

#[test]
fn permits_in_shadow_are_acquired_and_released_silently() {
    let mut shadow = limit("at-once", places(1));
    shadow.mode = Mode::Shadow;
    let (engine, _clock) = engine(vec![shadow]);
    let alice = TestCaller::named("alice");
    let ticket = engine.decide(&alice).take_ticket().unwrap();
    let mut second = engine.decide(&alice);
    assert_eq!(second.outcome(), Outcome::Allow);
    assert!(
        second.take_ticket().is_none(),
        "it has no permit to release"
    );
    engine.respond(ticket, &200).unwrap();
    assert_eq!(engine.peek(&alice).limits()[0].status.remaining, 1);
    assert_eq!(engine.totals("at-once").unwrap().would_deny, 1);
}

#[test]
fn only_responses_of_the_chosen_statuses_are_counted() {
    let mut failures = limit(
        "failures",
        quota(Algorithm::FixedWindow, &[(2, Nanos::HOUR)]),
    );
    failures.count = Count::Responses(vec![StatusClass::Code(401), StatusClass::Class(5)]);
    let (engine, _clock) = engine(vec![failures]);
    let alice = TestCaller::named("alice");
    let remaining = || engine.peek(&alice).limits()[0].status.remaining;
    let respond = |status: u16| {
        let ticket = engine.decide(&alice).take_ticket().unwrap();
        engine.respond(ticket, &status).unwrap();
        remaining()
    };
    assert_eq!([200, 404, 401, 302, 503].map(respond), [2, 2, 1, 1, 0]);
    let verdict = engine.decide(&alice);
    assert_eq!(verdict.rule_name(), Some("failures"));
}

#[test]
fn a_request_with_nothing_to_settle_has_no_ticket() {
    let (engine, _clock) = engine(vec![limit(
        "api",
        quota(Algorithm::TokenBucket, &[(9, Nanos::HOUR)]),
    )]);
    assert!(
        engine
            .decide(&TestCaller::named("alice"))
            .take_ticket()
            .is_none()
    );
    let mut tokens = engine_with_tokens();
    assert!(
        tokens.take_ticket().is_none(),
        "a peek has nothing to settle"
    );
}

fn engine_with_tokens() -> crate::Verdict {
    let (engine, _clock) = engine(vec![tokens()]);
    engine.peek(&TestCaller::named("alice"))
}

/// A response of so many bytes.
struct Bytes(u64);

impl Response for Bytes {
    fn status(&self) -> u16 {
        200
    }

    fn header(&self, _: &str) -> Option<&[u8]> {
        None
    }

    fn body_bytes(&self) -> Option<u64> {
        Some(self.0)
    }
}

#[test]
fn an_estimate_is_settled_at_the_bytes_of_the_body() {
    let traffic = LimitRule {
        cost: Cost::ResponseBody {
            estimate: 100,
            at_most: 500,
        },
        overdraft: 1_000,
        ..tokens()
    };
    let (engine, _clock) = engine(vec![traffic]);
    let alice = TestCaller::named("alice");
    let remaining = || engine.peek(&alice).limits()[0].status.remaining;
    let ticket = || engine.decide(&alice).take_ticket().unwrap();
    engine.respond(ticket(), &Bytes(30)).unwrap();
    assert_eq!(remaining(), 970);
    engine.respond(ticket(), &Bytes(9_999)).unwrap();
    assert_eq!(remaining(), 470, "at most the policy's maximum");
    engine.respond(ticket(), &200).unwrap();
    assert_eq!(remaining(), 370, "an unknown length keeps the estimate");
}

#[test]
fn chosen_responses_give_the_charge_back() {
    let fair = LimitRule {
        refund: vec![StatusClass::Class(5), StatusClass::Code(429)],
        ..limit("fair", quota(Algorithm::TokenBucket, &[(10, Nanos::HOUR)]))
    };
    let (engine, _clock) = engine(vec![fair]);
    let alice = TestCaller::named("alice");
    let remaining = || engine.peek(&alice).limits()[0].status.remaining;
    for (status, left) in [(503, 10), (429, 10), (200, 9), (404, 8), (500, 8)] {
        let ticket = engine.decide(&alice).take_ticket().unwrap();
        engine.respond(ticket, &status).unwrap();
        assert_eq!(remaining(), left, "{status}");
    }
}

#[test]
fn permits_and_bytes_wait_for_the_body_and_the_head_settles_the_others() {
    let few = limit("few", places(1));
    let (engine, clock) = engine(vec![tokens(), few]);
    let alice = TestCaller::named("alice");
    let mut ticket = engine.decide(&alice).take_ticket().unwrap();
    let body = ticket.take_until_body_end().unwrap();
    assert!(body.has_permits() && !ticket.has_permits());
    assert!(ticket.take_until_body_end().is_none());
    let summary = ticket.summarize(&TokensUsed("30"));
    engine.respond(ticket, &summary).unwrap();
    assert_eq!(engine.peek(&alice).limits()[0].status.remaining, 970);
    assert!(!engine.decide(&alice).is_admitted(), "the permit is held");
    // The lease expires, and is taken again because nobody has asked.
    clock.advance(Nanos::HOUR);
    assert_eq!(engine.renew(&body), Ok(false));
    assert_eq!(engine.reacquire(&body), Ok(true));
    assert!(!engine.decide(&alice).is_admitted());
    engine.respond(body, &200).unwrap();
    assert!(engine.decide(&alice).is_admitted());
}
