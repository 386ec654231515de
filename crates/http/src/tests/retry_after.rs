//! `Retry-After`, resets, jitter, and the choice of the binding limit.
//!
//! Must not know: dialects, except draft 11, which shows every limit.

use tollgate_core::{Nanos, Outcome, QuotaStatus, QuotaUnit};

use super::support::{Sample, denied, lines, status};
use crate::{Jitter, QuotaPolicy, RateLimitItem, RateLimitStatus, retry_after};

fn demo() -> QuotaPolicy {
    QuotaPolicy::new("demo", 20, Nanos::from_secs(2), QuotaUnit::Requests).unwrap()
}

fn field(outcome: Outcome, status: QuotaStatus, more_after: Nanos) -> String {
    demo().limit_field(outcome, &status, more_after)
}

#[test]
fn t_of_a_denial_is_its_retry_after_even_if_units_remain() {
    for (wait, t) in [(0, 1), (1, 1), (999, 1), (1_000, 1), (1_001, 2)] {
        assert_eq!(retry_after(denied(wait)), Some(t));
        let field = field(denied(wait), status(3, Nanos::from_secs(2)), Nanos::ZERO);
        assert_eq!(field, format!(r#""demo";r=3;t={t}"#));
    }
}

#[test]
fn t_of_an_admission_is_the_refill_or_the_next_unit_if_nothing_remains() {
    let field = |status, more_after| field(Outcome::Allow, status, more_after);
    let (half, two) = (Nanos::from_millis(500), Nanos::from_secs(2));
    assert_eq!(field(status(19, half), Nanos::ZERO), r#""demo";r=19;t=1"#);
    assert_eq!(field(status(0, two), half), r#""demo";r=0;t=1"#);
    assert_eq!(field(status(0, two), Nanos::ZERO), r#""demo";r=0;t=2"#);
    let untouched = field(status(20, Nanos::ZERO), Nanos::ZERO);
    assert_eq!(untouched, r#""demo";r=20;t=0"#);
}

#[test]
fn without_a_possible_retry_no_time_is_sent() {
    let never = field(Outcome::Never, status(20, Nanos::ZERO), Nanos::ZERO);
    assert_eq!(never, r#""demo";r=20;t=0"#);
    let closed = QuotaPolicy::new("closed", 0, Nanos::ZERO, QuotaUnit::Requests).unwrap();
    let field = closed.limit_field(Outcome::Never, &status(0, Nanos::ZERO), Nanos::ZERO);
    assert_eq!(field, r#""closed";r=0"#);
}

#[test]
fn retry_after_is_the_longest_wait_of_the_limits_that_deny() {
    let policy = demo();
    let item = |outcome| RateLimitItem::new(&policy, outcome, &status(0, Nanos::HOUR));
    let items = [
        item(denied(2_500)),
        item(denied(7_000)),
        item(Outcome::Allow),
    ];
    // Even if the combined outcome has too short a wait, the fields do not contradict each other.
    let rate_limit = RateLimitStatus::new(denied(10), &items);
    assert_eq!(rate_limit.retry_after(), Some(7));
    assert_eq!(
        lines(&rate_limit, "draft-11")[1],
        r#"ratelimit: "demo";r=0;t=3, "demo";r=0;t=7, "demo";r=0;t=3600"#
    );
    let waiting = RateLimitStatus::new(Outcome::Wait(Nanos::SECOND), &items[2..]);
    assert_eq!(waiting.retry_after(), None);
}

#[test]
fn jitter_is_never_early_stays_below_its_bound_and_reaches_both_ends() {
    let most = Nanos::from_secs(10);
    let mut seconds = [0_u32; 12];
    for seed in 0..10_000 {
        let jitter = Jitter::new(most, seed);
        assert!(jitter.extra() <= most);
        let rate_limit = RateLimitStatus::new(denied(1_000), &[]).with_jitter(jitter);
        let retry = usize::try_from(rate_limit.retry_after().unwrap()).unwrap();
        seconds[retry] += 1;
    }
    // Uniform over the ten seconds, within 20 %. One second sooner would be too early.
    assert_eq!(seconds[..2], [0, 0]);
    assert!(
        seconds[2..]
            .iter()
            .all(|count| (800..1_200).contains(count)),
        "{seconds:?}"
    );
    assert_eq!(Jitter::new(Nanos::ZERO, 7), Jitter::NONE);
    assert!(Jitter::new(Nanos::MAX, 7).extra() > Nanos::ZERO);
}

#[test]
fn jitter_moves_retry_after_and_t_together() {
    let sample = Sample::new();
    let items = sample.refused();
    for seed in 0..100 {
        let jitter = Jitter::new(Nanos::MINUTE, seed);
        let rate_limit = RateLimitStatus::new(denied(86_399_100), &items).with_jitter(jitter);
        let retry = rate_limit.retry_after().unwrap();
        assert!((86_400..=86_460).contains(&retry));
        let field = &lines(&rate_limit, "draft-11")[1];
        assert!(field.ends_with(&format!(";t={retry}")), "{field}");
        assert!(
            field.contains("r=40;t=36,"),
            "limits that admit have no jitter: {field}"
        );
    }
}

#[test]
fn the_binding_limit_is_the_one_that_refuses_longest_or_has_least_left() {
    let policy = |name| QuotaPolicy::new(name, 100, Nanos::MINUTE, QuotaUnit::Requests).unwrap();
    let names = ["a", "b", "c"];
    let policies = names.map(policy);
    let bound = |of: [(Outcome, u64); 3]| {
        let mut index = 0;
        let items = of.map(|(outcome, remaining)| {
            index += 1;
            RateLimitItem::new(
                &policies[index - 1],
                outcome,
                &status(remaining, Nanos::SECOND),
            )
        });
        let rate_limit = RateLimitStatus::new(Outcome::Allow, &items);
        let fields = lines(&rate_limit, "github");
        fields.last().unwrap().chars().next_back().unwrap()
    };
    let allow = Outcome::Allow;
    assert_eq!(bound([(allow, 5), (allow, 4), (allow, 6)]), 'b');
    assert_eq!(bound([(allow, 5), (allow, 5), (allow, 5)]), 'a');
    assert_eq!(bound([(allow, 0), (denied(1), 9), (denied(2), 9)]), 'c');
    assert_eq!(bound([(allow, 0), (denied(0), 9), (allow, 0)]), 'b');
    assert_eq!(
        bound([(denied(9), 0), (Outcome::Never, 9), (allow, 0)]),
        'b'
    );
}

#[test]
fn a_binding_limit_can_be_set() {
    let sample = Sample::new();
    let items = sample.admitted();
    let rate_limit = RateLimitStatus::new(Outcome::Allow, &items);
    assert_eq!(
        lines(&rate_limit.with_binding(1), "x-ratelimit")[0],
        "x-ratelimit-limit: 1000"
    );
    // An index out of range is ignored.
    assert_eq!(
        lines(&rate_limit.with_binding(2), "x-ratelimit")[0],
        "x-ratelimit-limit: 100"
    );
}
