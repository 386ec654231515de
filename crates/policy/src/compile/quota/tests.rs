//! Compiled quotas and the quotas that core rejects.

use tollgate_core::limit::{Limit, Quota};
use tollgate_core::{Calendar, Nanos, QuotaUnit, UtcOffset, Window};

use super::*;

fn at(line: u32) -> SourceLocation {
    SourceLocation {
        line,
        column: 5,
        width: 3,
    }
}

fn spec(algorithm: Algorithm, rates: &[(u64, Period)]) -> Located<QuotaSpec> {
    let rates = rates
        .iter()
        .zip(2..)
        .map(|((units, period), line)| {
            let rate = RateSpec {
                units: *units,
                period: *period,
            };
            Located::new(rate, at(line))
        })
        .collect();
    let spec = QuotaSpec {
        algorithm,
        amount: Amount::Rates(rates),
        burst: None,
        unit: QuotaUnit::Requests,
        utc_offset_minutes: 0,
        details: crate::model::QuotaDetails::default(),
    };
    Located::new(spec, at(1))
}

const SECOND: Period = Period::Span(Nanos::SECOND);
const MINUTE: Period = Period::Span(Nanos::MINUTE);
const HOUR: Period = Period::Span(Nanos::HOUR);

fn with_burst(mut quota: Located<QuotaSpec>, burst: Burst) -> Located<QuotaSpec> {
    quota.value.burst = Some(Located::new(burst, at(9)));
    quota
}

/// The burst and the interval of a bucket.
fn bucket(limit: &Limit) -> (u64, u64) {
    match limit.quota() {
        Quota::TokenBucket(bucket) => (bucket.limit(), bucket.interval().as_nanos()),
        Quota::LeakyBucket(bucket) => (bucket.limit(), bucket.interval().as_nanos()),
        other => panic!("{other:?} is not a bucket"),
    }
}

#[test]
fn the_burst_defaults_to_the_number_of_the_rate() {
    let plain = spec(Algorithm::TokenBucket, &[(1_000, MINUTE)]);
    assert_eq!(
        bucket(&build_limits(&plain, 0).unwrap()[0]),
        (1_000, 60_000_000)
    );
    let explicit = with_burst(plain.clone(), Burst::Units(200));
    assert_eq!(
        bucket(&build_limits(&explicit, 0).unwrap()[0]),
        (200, 60_000_000)
    );
    let auto = with_burst(plain, Burst::Auto);
    assert_eq!(
        bucket(&build_limits(&auto, 0).unwrap()[0]),
        (166, 60_000_000)
    );
}

#[test]
fn the_burst_of_several_windows_belongs_to_the_shortest() {
    let quota = with_burst(
        spec(Algorithm::TokenBucket, &[(1_000, HOUR), (10, SECOND)]),
        Burst::Units(20),
    );
    let built = build_limits(&quota, 0).unwrap();
    assert_eq!(bucket(&built[0]).0, 1_000);
    assert_eq!(bucket(&built[1]).0, 20);
}

#[test]
fn months_and_years_follow_the_calendar_only_in_fixed_windows() {
    let month = |algorithm| build_limits(&spec(algorithm, &[(100, Period::Month)]), 0).unwrap()[0];
    let Quota::FixedWindow(fixed) = *month(Algorithm::FixedWindow).quota() else {
        panic!("a fixed window");
    };
    assert_eq!(
        fixed.window(),
        Window::Calendar(Calendar::Month, UtcOffset::UTC)
    );
    let year = build_limits(&spec(Algorithm::FixedWindow, &[(9, Period::Year)]), 0).unwrap();
    let Quota::FixedWindow(year) = *year[0].quota() else {
        panic!("a fixed window");
    };
    assert_eq!(
        year.window(),
        Window::Calendar(Calendar::Year, UtcOffset::UTC)
    );
    let Quota::SlidingCounter(sliding) = *month(Algorithm::SlidingWindow).quota() else {
        panic!("a sliding window");
    };
    assert_eq!(sliding.window(), Nanos::from_secs(30 * 86_400));
    assert_eq!(
        bucket(&month(Algorithm::TokenBucket)).1,
        30 * 864 * 1_000_000_000
    );
}

#[test]
fn days_begin_at_the_utc_offset() {
    let mut quota = spec(
        Algorithm::FixedWindow,
        &[(5, Period::Span(Nanos::DAY)), (2, HOUR)],
    );
    quota.value.utc_offset_minutes = 120;
    let windows: Vec<_> = build_limits(&quota, 0)
        .unwrap()
        .iter()
        .map(|limit| match limit.quota() {
            Quota::FixedWindow(fixed) => fixed.window(),
            other => panic!("{other:?}"),
        })
        .collect();
    let east = UtcOffset::from_minutes(120).unwrap();
    assert_eq!(
        windows,
        [
            Window::Calendar(Calendar::Day, east),
            Window::Epoch(Nanos::HOUR)
        ]
    );
}

#[test]
fn a_rate_of_zero_denies_everything_whatever_the_overdraft_of_the_limit() {
    for algorithm in [
        Algorithm::TokenBucket,
        Algorithm::LeakyBucket,
        Algorithm::LeakyQueue,
        Algorithm::FixedWindow,
        Algorithm::SlidingWindow,
        Algorithm::SlidingLog,
    ] {
        let built = build_limits(&spec(algorithm, &[(0, SECOND)]), 50).unwrap();
        let answer = built[0]
            .decide(
                &tollgate_core::limit::State::default(),
                tollgate_core::Timestamp::from_secs(1),
                tollgate_core::limit::Op::Spend(1),
            )
            .unwrap();
        assert_eq!(
            answer.outcome,
            tollgate_core::Outcome::Never,
            "{algorithm:?}"
        );
    }
}

#[test]
fn bytes_above_a_million_per_second_are_charged_in_blocks_and_requests_are_rejected() {
    let mut quota = spec(Algorithm::TokenBucket, &[(700_000_000, SECOND)]);
    let refused = build_limits(&quota, 0).unwrap_err();
    assert_eq!(refused[0].location, at(2));
    assert_eq!(
        &*refused[0].message,
        "`rate` cannot be 700,000,000/s: whole nanoseconds cannot express this rate within 0.1 %"
    );
    assert_eq!(
        refused[0].help.as_deref(),
        Some("the nearest supported value is 500,000,000/s")
    );
    quota.value.unit = QuotaUnit::Bytes;
    assert!(build_limits(&quota, 0).is_ok());
}

#[test]
fn errors_of_core_are_reported_in_terms_of_the_file() {
    let burst = with_burst(
        spec(Algorithm::TokenBucket, &[(1, Period::Year)]),
        Burst::Units(200),
    );
    let diagnostics = build_limits(&burst, 0).unwrap_err();
    assert_eq!(diagnostics[0].location, at(9));
    assert_eq!(
        &*diagnostics[0].message,
        "`burst` cannot be 200 with a rate of 1/year: it would take longer than 2^62 ns (146 years) to refill"
    );
    assert_eq!(
        diagnostics[0].help.as_deref(),
        Some("the nearest supported value is 146")
    );
    let log = spec(Algorithm::SlidingLog, &[(20_000, MINUTE)]);
    assert_eq!(
        problems_of(&log),
        [(
            "`rate` cannot be 20,000/min: it is above the maximum of this algorithm".to_owned(),
            "the nearest supported value is 10,000/min".to_owned()
        )]
    );
    let useless = with_burst(spec(Algorithm::SlidingLog, &[(1, MINUTE)]), Burst::Auto);
    assert!(problems_of(&useless)[0].0.contains("`burst` is only for"));
    let zero = with_burst(
        spec(Algorithm::TokenBucket, &[(0, MINUTE)]),
        Burst::Units(3),
    );
    assert!(problems_of(&zero)[0].0.contains("a rate of zero denies"));
}

fn problems_of(quota: &Located<QuotaSpec>) -> Vec<(String, String)> {
    quota_diagnostics(quota, 0)
        .into_iter()
        .map(|p| (p.message.into(), p.help.unwrap_or_default().into()))
        .collect()
}

#[test]
fn the_errors_of_all_windows_are_reported() {
    let quota = spec(
        Algorithm::SlidingLog,
        &[(20_000, MINUTE), (5, SECOND), (30_000, HOUR)],
    );
    let lines: Vec<_> = quota_diagnostics(&quota, 0)
        .iter()
        .map(|p| p.location.line)
        .collect();
    assert_eq!(lines, [2, 4]);
}

#[test]
fn a_computed_quota_is_bounded_below_and_above() {
    let rate = |units, period| Located::new(RateSpec { units, period }, at(4));
    let mut quota = spec(Algorithm::TokenBucket, &[]);
    let amount = |base, each, most| {
        Amount::Computed(ComputedRate {
            base: rate(base, HOUR),
            each: rate(each, HOUR),
            times: Attribute::Claim("repos".into()),
            at_most: rate(most, HOUR),
        })
    };
    quota.value.amount = amount(5_000, 50, 12_500);
    assert_eq!(bucket(&build_limits(&quota, 0).unwrap()[0]).0, 5_000);
    quota.value.amount = amount(5_000, 50, 100);
    assert!(problems_of(&quota)[0].0.contains("below the base 5,000"));
}
