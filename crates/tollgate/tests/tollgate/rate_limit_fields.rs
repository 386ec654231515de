//! The header fields of admissions and denials agree with the limiter that decided.

use tollgate::{ConcurrencyLimiter, FixedWindow, Limiter, Nanos, SlidingLog, Window};

use crate::{clock, denied, secs};

/// The example in the documentation stated `q=100;w=60` beside `r=19`: the program repeated the rate, and the limiter had a burst of 20.
#[test]
fn quota_and_window_are_those_of_the_burst() {
    let clock = clock();
    let limiter = Limiter::per_minute(100)
        .burst(20)
        .name("per-key")
        .clock(clock.clone())
        .build()
        .unwrap();
    let first = limiter.spend("a", 1).unwrap().rate_limit_fields();
    assert_eq!(first.policy, r#""per-key";q=20;w=12"#);
    assert_eq!(first.limit, r#""per-key";r=19;t=1"#);
    assert_eq!(first.retry_after, None);
    limiter.check_n("a", 19).unwrap();
    let denial = denied(limiter.spend("a", 1)).rate_limit_fields();
    assert_eq!(denial.policy, first.policy);
    assert_eq!(denial.limit, r#""per-key";r=0;t=1"#);
    assert_eq!(denial.retry_after, Some(1));
    let by_check = denied(limiter.check("a")).rate_limit_fields();
    assert_eq!(by_check, denial, "the fast path says the same");
    let never = denied(limiter.check_n("a", 21)).rate_limit_fields();
    assert_eq!((never.policy, never.retry_after), (first.policy, None));
    clock.advance(secs(12).into());
    assert_eq!(
        limiter.peek("a").unwrap().rate_limit_fields().limit,
        r#""per-key";r=20;t=0"#
    );
}

#[test]
fn the_window_of_a_rate_that_is_not_a_whole_number_of_nanoseconds_is_not_rounded_up() {
    let limiter = Limiter::per_second(9).clock(clock()).build().unwrap();
    let fields = limiter.spend("a", 1).unwrap().rate_limit_fields();
    assert_eq!(fields.policy, r#""rate";q=9;w=1"#);
}

#[test]
fn every_limit_has_its_item_and_a_denial_has_that_of_the_limit_that_denied() {
    let limiter = Limiter::builder()
        .limit("minute", SlidingLog::builder(2, Nanos::MINUTE))
        .limit("day", FixedWindow::builder(5, Window::Epoch(Nanos::DAY)))
        .clock(clock())
        .build()
        .unwrap();
    let fields = limiter.spend("a", 1).unwrap().rate_limit_fields();
    assert_eq!(fields.policy, r#""minute";q=2;w=60, "day";q=5;w=86400"#);
    assert!(
        fields.limit.starts_with(r#""minute";r=1"#) && fields.limit.contains(r#", "day";r=4"#),
        "{}",
        fields.limit
    );
    limiter.check("a").unwrap();
    let denial = denied(limiter.spend("a", 1)).rate_limit_fields();
    assert_eq!(denial.policy, r#""minute";q=2;w=60"#);
    assert_eq!(denial.retry_after, Some(60));
}

#[test]
fn permits_have_no_window() {
    let limiter = ConcurrencyLimiter::builder(1)
        .name("slots")
        .build()
        .unwrap();
    let _permit = limiter.acquire("a").unwrap();
    let fields = denied(limiter.acquire("a")).rate_limit_fields();
    assert!(
        fields.policy.starts_with(r#""slots";q=1"#) && !fields.policy.contains(";w="),
        "{}",
        fields.policy
    );
}

#[test]
fn a_name_that_a_field_cannot_have_is_left_out() {
    let limiter = Limiter::per_second(9).name("größe").clock(clock()).build();
    // Names may be restricted by the builder instead.
    let Ok(limiter) = limiter else { return };
    let fields = limiter.spend("a", 1).unwrap().rate_limit_fields();
    assert_eq!(fields.iter().count(), 0);
}
