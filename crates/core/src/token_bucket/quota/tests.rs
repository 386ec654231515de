//! Building token buckets: rounding, defaults, blocks, and errors with their nearest values.

use super::*;

#[test]
fn the_interval_is_rounded_up_once_and_the_burst_is_kept() {
    let third = TokenBucket::builder(Rate::per_second(3))
        .burst(1)
        .build()
        .unwrap();
    assert_eq!(third.interval(), Nanos::from_nanos(333_333_334));
    assert_eq!(
        third.refill_time(),
        third.interval(),
        "a burst of one is one interval, not less"
    );
    let minute = TokenBucket::builder(Rate::per_minute(900))
        .burst(900)
        .build()
        .unwrap();
    assert_eq!(
        minute.refill_time().as_nanos(),
        900 * minute.interval().as_nanos()
    );
    assert_eq!(minute.limit(), 900);
}

#[test]
fn the_burst_defaults_to_the_limit() {
    assert_eq!(
        TokenBucket::builder(Rate::per_minute(30))
            .build()
            .unwrap()
            .limit(),
        30
    );
}

#[test]
fn a_rate_that_nanoseconds_cannot_express_names_the_nearest_one() {
    let error = TokenBucket::builder(Rate::per_second(700_000_000))
        .build()
        .unwrap_err();
    assert_eq!(
        (error.field, error.reason),
        ("limit", InvalidReason::RateTooFine)
    );
    assert_eq!(error.nearest, Some(500_000_000));
    assert!(
        TokenBucket::builder(Rate::per_second(500_000_000))
            .build()
            .is_ok()
    );
    assert!(
        TokenBucket::builder(Rate::per_second(1_000_000_000))
            .build()
            .is_ok()
    );
}

#[test]
fn blocks_make_byte_rates_expressible() {
    // 10 Gbit/s is 1.25 bytes a nanosecond: no whole interval for one byte, an exact one for 1,250.
    let rate = Rate::per_second(1_250_000_000);
    assert!(TokenBucket::builder(rate).build().is_err());
    let bucket = TokenBucket::builder(rate)
        .block(1_250)
        .burst(12_500)
        .build()
        .unwrap();
    assert_eq!(bucket.interval(), Nanos::from_nanos(1_000));
    assert_eq!(bucket.limit(), 12_500);
}

#[test]
fn every_rate_up_to_a_million_a_second_can_be_built() {
    for units in [1, 2, 3, 7, 999, 65_537, 777_777, 999_999, 1_000_000] {
        assert!(
            TokenBucket::builder(Rate::per_second(units))
                .build()
                .is_ok(),
            "{units}/s"
        );
    }
    assert!(TokenBucket::builder(Rate::per_year(1)).build().is_ok());
}

#[test]
fn errors_name_the_field_and_a_value_that_works() {
    let cases = [
        (
            TokenBucket::builder(Rate::per_second(5)).burst(0),
            "burst",
            Some(1),
        ),
        (
            TokenBucket::builder(Rate::per_second(5)).block(0),
            "block",
            Some(1),
        ),
        (
            TokenBucket::builder(Rate::new(5, Nanos::ZERO)),
            "period",
            Some(1),
        ),
        (
            TokenBucket::builder(Rate::per_second(0)).burst(3),
            "burst",
            Some(0),
        ),
        (
            TokenBucket::builder(Rate::per_second(0)).overdraft(3),
            "overdraft",
            Some(0),
        ),
        (
            TokenBucket::builder(Rate::per_second(5)).block(10).burst(9),
            "burst",
            Some(10),
        ),
        (
            TokenBucket::builder(Rate::per_year(1)).burst(u64::MAX),
            "burst",
            Some(146),
        ),
        (
            TokenBucket::builder(Rate::per_year(1))
                .burst(1)
                .overdraft(200),
            "overdraft",
            Some(145),
        ),
        (
            TokenBucket::builder(Rate::new(1, Nanos::MAX)),
            "limit",
            Some(4),
        ),
    ];
    for (builder, field, nearest) in cases {
        let error = builder.build().unwrap_err();
        assert_eq!((error.field, error.nearest), (field, nearest), "{error}");
    }
    assert!(
        TokenBucket::builder(Rate::new(4, Nanos::MAX))
            .burst(1)
            .build()
            .is_ok()
    );
}

#[test]
fn multiplying_by_the_reciprocal_divides_exactly() {
    for interval in [
        1,
        2,
        3,
        7,
        1_000,
        333_333_334,
        1 << 40,
        (1 << 61) + 1,
        1 << 62,
    ] {
        let rate = Rate::new(1, Nanos::from_nanos(interval));
        let bucket = TokenBucket::builder(rate).burst(1).build().unwrap();
        let near = |n: u64| [n.saturating_sub(1), n, n.saturating_add(1)];
        let multiples = [0, 1, 2, 3, 1_000, u64::MAX / interval];
        let spans = multiples.map(|n| near(n.saturating_mul(interval)));
        for span in spans
            .into_iter()
            .flatten()
            .chain([u64::MAX, 1 << 62, (1 << 63) - 1])
        {
            assert_eq!(
                bucket.whole_blocks(span),
                span / interval,
                "{span} / {interval}"
            );
        }
    }
}

#[test]
fn a_rate_of_zero_is_a_quota_that_admits_nothing() {
    assert_eq!(
        TokenBucket::builder(Rate::per_second(0))
            .build()
            .unwrap()
            .limit(),
        0
    );
}
