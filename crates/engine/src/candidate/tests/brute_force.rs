//! Candidate totals against brute force: two engines side by side, one that enforces the quota and one that enforces
//! the candidate.

use super::*;

/// The differences by brute force.
#[derive(Debug, Default, PartialEq, Eq)]
struct ExpectedCounts {
    compared: u64,
    would_deny: u64,
    would_allow: u64,
    by_key: HashMap<String, u64>,
}

/// Sends random requests of many users to an engine with a candidate and to one that enforces it; both count.
fn compare_engines(seed: u64, own: LimitRule, alone: LimitRule) -> (Divergence, ExpectedCounts) {
    let (with_candidate, clock) = engine(vec![own]);
    let (other, other_clock) = engine(vec![alone]);
    let mut rng = SeededRng::new(seed);
    let mut expected = ExpectedCounts::default();
    for _ in 0..5_000 {
        let step = Nanos::from_millis(rng.below(20));
        clock.advance(step);
        other_clock.advance(step);
        // A few users exceed the limit, many do not.
        let user = if rng.one_in(2) {
            rng.below(4)
        } else {
            10 + rng.below(300)
        };
        let user = format!("user-{user}");
        let caller = TestCaller::named(&user);
        let cost = 1 + rng.below(3);
        let is_admitted = with_candidate.decide_with_cost(&caller, cost).is_admitted();
        let candidate_admits = other.decide_with_cost(&caller, cost).is_admitted();
        expected.compared += 1;
        expected.would_deny += u64::from(is_admitted && !candidate_admits);
        expected.would_allow += u64::from(!is_admitted && candidate_admits);
        if is_admitted != candidate_admits {
            *expected.by_key.entry(user).or_default() += 1;
        }
    }
    (divergence(&with_candidate), expected)
}

/// The first difference between a comparison and the brute-force counts.
fn difference(reported: &Divergence, expected: &ExpectedCounts) -> Option<String> {
    if totals(reported) != (expected.compared, expected.would_deny, expected.would_allow) {
        return Some(format!("{:?} is not {expected:?}", totals(reported)));
    }
    let most_error =
        (expected.would_deny + expected.would_allow) / u64::try_from(MAX_TRACKED_KEYS).unwrap();
    for key in &reported.top_keys {
        let least = key.would_deny + key.would_allow;
        let count = expected.by_key.get(&key.key).copied().unwrap_or(0);
        if key.error > most_error || !(least..=least + key.error).contains(&count) {
            return Some(format!("{key:?} occurred {count} times"));
        }
    }
    let is_there = |key: &str| reported.top_keys.iter().any(|tracked| tracked.key == key);
    let missing = expected
        .by_key
        .iter()
        .find(|(key, count)| **count > most_error && !is_there(key));
    missing.map(|(key, count)| format!("{key} occurred {count} times and is missing"))
}

#[test]
fn differing_decisions_are_counted_as_by_brute_force_in_both_directions() {
    let second = Nanos::SECOND;
    let candidates = [
        per_second(3),
        per_second(8),
        quota(Algorithm::FixedWindow, &[(5, second)]),
        quota(Algorithm::SlidingWindow, &[(5, second)]),
        quota(Algorithm::SlidingLog, &[(5, second)]),
        quota(Algorithm::LeakyBucket, &[(6, second)]),
        quota(Algorithm::TokenBucket, &[(5, second), (60, Nanos::MINUTE)]),
    ];
    let mut directions = (0, 0);
    for (seed, candidate) in (1_u64..).zip(candidates) {
        let alone = limit("api", candidate.clone());
        let (reported, expected) = compare_engines(seed, with_candidate(candidate), alone);
        assert_eq!(difference(&reported, &expected), None, "seed {seed}");
        assert_eq!((reported.missed, reported.unknown), (0, 0));
        assert!(
            !expected.by_key.is_empty(),
            "seed {seed} shows no difference"
        );
        directions.0 += expected.would_deny;
        directions.1 += expected.would_allow;
    }
    assert!(directions.0 > 100 && directions.1 > 100, "{directions:?}");
}

#[test]
fn a_candidate_has_the_penalty_and_the_wait_of_its_limit() {
    let penalised = |quota| LimitRule {
        penalty: Penalty::Count.into(),
        overdraft: 5,
        ..limit("api", quota)
    };
    let waiting = |quota| LimitRule {
        wait: Some(Nanos::from_millis(300).into()),
        ..limit("api", quota)
    };
    for with in [penalised, waiting] {
        let own = LimitRule {
            candidate: Some(per_second(7)),
            ..with(per_second(5))
        };
        let (reported, expected) = compare_engines(42, own, with(per_second(7)));
        assert_eq!(difference(&reported, &expected), None);
        assert!(expected.would_allow > 0);
    }
}

#[test]
fn control_a_candidate_that_is_charged_only_with_the_enforced_quota_is_caught() {
    // Negative control: a candidate that is only asked about requests the quota admits.
    let (reported, mut expected) = compare_engines(
        7,
        with_candidate(per_second(8)),
        limit("api", per_second(8)),
    );
    expected.compared -= expected.would_allow;
    expected.would_allow = 0;
    assert!(difference(&reported, &expected).is_some());
    // Negative control: keys that are confused with each other.
    let (mut reported, expected) = compare_engines(
        7,
        with_candidate(per_second(8)),
        limit("api", per_second(8)),
    );
    let (first, second) = reported.top_keys.split_at_mut(1);
    std::mem::swap(&mut first[0].key, &mut second[0].key);
    assert!(difference(&reported, &expected).is_some());
}
