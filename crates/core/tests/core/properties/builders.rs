//! Building quotas: a burst of B is exactly B, the rate in force is never above the requested one nor more than a thousandth below it,
//! and every error names a value that works.

use proptest::prelude::*;
use tollgate_core::{
    Concurrency, FixedWindow, InvalidQuota, LeakyBucket, Nanos, Outcome, Rate, SlidingCounter,
    SlidingLog, Timestamp, TokenBucket, Window,
};

use super::harness::{CheckResult, assert_caught, assert_holds, ensure};
use super::subject::at;

const NOW: Timestamp = Timestamp::from_secs(1_700_000_000);

/// What a burst test needs of a bucket: spend one unit if it is left.
trait UnitSpender {
    fn spend_one(&mut self) -> bool;
}

struct RealBucket(TokenBucket, u64);

impl UnitSpender for RealBucket {
    fn spend_one(&mut self) -> bool {
        let transition = self.0.decide(self.1, NOW, 1);
        self.1 = transition.next.unwrap_or(self.1);
        transition.outcome == Outcome::Allow
    }
}

/// Increment rounded up and capacity rounded down, each by itself: 3/s with a burst of 1 never admits, 900/min with a
/// burst of 900 admits 899.
struct SeparatelyRoundedBucket {
    price: u128,
    room: u128,
}

impl SeparatelyRoundedBucket {
    fn new(rate: Rate, burst: u64) -> Self {
        let period = u128::from(rate.period.as_nanos());
        Self {
            price: period.div_ceil(u128::from(rate.units)),
            room: period * u128::from(burst) / u128::from(rate.units),
        }
    }
}

impl UnitSpender for SeparatelyRoundedBucket {
    fn spend_one(&mut self) -> bool {
        let fits = self.price <= self.room;
        if fits {
            self.room -= self.price;
        }
        fits
    }
}

/// A full bucket admits its burst at one instant, one by one, and nothing more.
fn the_burst_is_exact(mut bucket: impl UnitSpender, burst: u64) -> CheckResult {
    for spent in 0..burst {
        ensure!(bucket.spend_one(), "only {spent} of {burst} admitted");
    }
    ensure!(!bucket.spend_one(), "more than {burst} admitted");
    Ok(())
}

fn rates() -> impl Strategy<Value = Rate> {
    let period = prop_oneof![
        Just(Nanos::SECOND),
        Just(Nanos::MINUTE),
        Just(Nanos::HOUR),
        Just(Nanos::DAY),
        Just(Nanos::YEAR),
        (1_u64..1 << 40).prop_map(Nanos::from_nanos),
    ];
    let units = prop_oneof![1_u64..1_000, 1_u64..1_000_000, Just(3), Just(900)];
    (units, period).prop_map(|(units, period)| Rate::new(units, period))
}

#[test]
fn a_burst_of_b_is_exactly_b() {
    let named = [
        (Rate::per_second(3), 1),
        (Rate::per_minute(900), 900),
        (Rate::per_second(7), 7),
        (Rate::per_hour(1_000), 1_000),
    ];
    for (rate, burst) in named {
        let bucket = TokenBucket::builder(rate).burst(burst).build().unwrap();
        the_burst_is_exact(RealBucket(bucket, 0), burst).unwrap();
    }
    assert_holds(
        &(rates(), 1_u64..300),
        |(rate, burst)| match TokenBucket::builder(rate).burst(burst).build() {
            Ok(bucket) => the_burst_is_exact(RealBucket(bucket, 0), burst),
            Err(_) => Ok(()),
        },
    );
}

#[test]
fn control_rounding_increment_and_capacity_separately_loses_some_of_the_burst() {
    for (rate, burst) in [(Rate::per_second(3), 1), (Rate::per_minute(900), 900)] {
        // 900/min divides; the minute's 66,666,666.67 ns do not.
        let is_lost = the_burst_is_exact(SeparatelyRoundedBucket::new(rate, burst), burst).is_err();
        assert!(is_lost, "{rate:?}");
    }
    assert_caught(&(rates(), 1_u64..300), |(rate, burst)| {
        the_burst_is_exact(SeparatelyRoundedBucket::new(rate, burst), burst)
    });
}

/// The interval is never shorter than requested, and the rate in force is at least 999 thousandths of the requested one.
fn the_rate_is_within_tolerance(interval: u64, rate: Rate, block: u64) -> CheckResult {
    let requested = i128::from(rate.period.as_nanos()) * i128::from(block);
    let in_force = i128::from(interval) * i128::from(rate.units);
    ensure!(
        in_force >= requested,
        "faster than requested: {interval} ns for {rate:?}"
    );
    ensure!(
        (in_force - requested) * 1_000 <= in_force,
        "more than 0.1 % slow: {rate:?}"
    );
    Ok(())
}

fn any_rates() -> impl Strategy<Value = (Rate, u64)> {
    let number = || prop_oneof![1_u64..100, 1_u64..1 << 32, 1_u64..=u64::MAX];
    let blocks = prop_oneof![Just(1), number()];
    (number(), number(), blocks)
        .prop_map(|(units, period, block)| (Rate::new(units, Nanos::from_nanos(period)), block))
}

#[test]
fn the_rate_in_force_is_never_above_the_asked_one_and_at_most_a_thousandth_below() {
    assert_holds(&any_rates(), |(rate, block)| {
        match TokenBucket::builder(rate).block(block).burst(block).build() {
            Ok(bucket) => the_rate_is_within_tolerance(bucket.interval().as_nanos(), rate, block),
            Err(_) => Ok(()),
        }
    });
}

#[test]
fn control_an_interval_rounded_down_is_caught() {
    assert_caught(&any_rates(), |(rate, block)| {
        match TokenBucket::builder(rate).block(block).burst(block).build() {
            Ok(_) => {
                let exact = i128::from(rate.period.as_nanos()) * i128::from(block);
                let down = u64::try_from(exact / i128::from(rate.units)).unwrap();
                the_rate_is_within_tolerance(down, rate, block)
            }
            Err(_) => Ok(()),
        }
    });
}

/// The fields of any builder by name, so that a test can set the field that an error names to its nearest value.
type Fields = Vec<(&'static str, u64)>;
type Build = fn(&Fields) -> Result<(), InvalidQuota>;

fn field(fields: &Fields, name: &str) -> u64 {
    fields.iter().find(|field| field.0 == name).unwrap().1
}

fn token_bucket(fields: &Fields) -> Result<(), InvalidQuota> {
    let value = |name| field(fields, name);
    let rate = Rate::new(value("limit"), Nanos::from_nanos(value("period")));
    let builder = TokenBucket::builder(rate)
        .burst(value("burst"))
        .block(value("block"));
    builder.overdraft(value("overdraft")).build().map(|_| ())
}

fn leaky_bucket(fields: &Fields) -> Result<(), InvalidQuota> {
    let value = |name| field(fields, name);
    let rate = Rate::new(value("limit"), Nanos::from_nanos(value("period")));
    let builder = LeakyBucket::queue(rate)
        .burst(value("burst"))
        .delay(value("delay"));
    builder.overdraft(value("overdraft")).build().map(|_| ())
}

fn fixed_window(fields: &Fields) -> Result<(), InvalidQuota> {
    let value = |name| field(fields, name);
    let window = Window::Epoch(Nanos::from_nanos(value("window")));
    let builder = FixedWindow::builder(value("limit"), window).overdraft(value("overdraft"));
    builder.build().map(|_| ())
}

fn sliding_log(fields: &Fields) -> Result<(), InvalidQuota> {
    let value = |name| field(fields, name);
    let builder = SlidingLog::builder(value("limit"), Nanos::from_nanos(value("window")));
    let builder = builder.overdraft(value("overdraft")).block(value("block"));
    builder.build().map(|_| ())
}

fn sliding_counter(fields: &Fields) -> Result<(), InvalidQuota> {
    let value = |name| field(fields, name);
    let builder = SlidingCounter::builder(value("limit"), Nanos::from_nanos(value("window")));
    let builder = builder
        .overdraft(value("overdraft"))
        .ceiling(value("ceiling"));
    builder.build().map(|_| ())
}

fn concurrency(fields: &Fields) -> Result<(), InvalidQuota> {
    let lease = Nanos::from_nanos(field(fields, "lease"));
    Concurrency::new(field(fields, "concurrency"), lease).map(|_| ())
}

const BUILDERS: [(Build, &[&str]); 6] = [
    (
        token_bucket,
        &["limit", "period", "burst", "block", "overdraft"],
    ),
    (
        leaky_bucket,
        &["limit", "period", "burst", "delay", "overdraft"],
    ),
    (fixed_window, &["limit", "window", "overdraft"]),
    (sliding_log, &["limit", "window", "overdraft", "block"]),
    (
        sliding_counter,
        &["limit", "window", "overdraft", "ceiling"],
    ),
    (concurrency, &["concurrency", "lease"]),
];

/// The nearest value of each error fixes the field that it names and so leads, field by field, to a quota. An error names the first
/// invalid field, and there may be others.
fn nearest_values_lead_to_a_quota(build: Build, mut fields: Fields) -> CheckResult {
    for _ in 0..=2 * fields.len() {
        let Err(error) = build(&fields) else {
            return Ok(());
        };
        ensure!(
            field(&fields, error.field) == error.value,
            "{error}: not the value given"
        );
        let Some(nearest) = error.nearest else {
            return Ok(());
        };
        for (name, value) in &mut fields {
            if *name == error.field {
                *value = nearest;
            }
        }
        if let Err(next) = build(&fields) {
            ensure!(next.field != error.field, "{error} leads to {next}");
        }
    }
    ensure!(false, "the nearest values go in circles: {fields:?}");
    Ok(())
}

fn any_fields() -> impl Strategy<Value = (usize, Vec<u64>)> {
    let number = prop_oneof![
        Just(0),
        1_u64..20,
        1_u64..1 << 34,
        any::<u64>(),
        Just(u64::MAX)
    ];
    (0..BUILDERS.len(), prop::collection::vec(number, 5))
}

#[test]
fn the_nearest_value_of_every_error_is_accepted() {
    assert_holds(&any_fields(), |(which, values)| {
        let (build, names) = BUILDERS[which];
        let fields: Fields = names.iter().copied().zip(values).collect();
        nearest_values_lead_to_a_quota(build, fields)
    });
}

#[test]
fn control_a_nearest_value_that_is_rejected_is_caught() {
    let wrong: Build = |fields| {
        let error = sliding_log(fields).err();
        error.map_or(Ok(()), |error| {
            let nearest = error.nearest.map(|nearest| nearest.saturating_add(1));
            Err(InvalidQuota { nearest, ..error })
        })
    };
    assert_caught(&any_fields(), |(_, values)| {
        let fields: Fields = BUILDERS[3].1.iter().copied().zip(values).collect();
        nearest_values_lead_to_a_quota(wrong, fields)
    });
}

/// One request a year leaks and refills as exactly as a million a second (NGINX truncates below one a millisecond).
#[test]
fn the_slowest_rate_is_as_exact_as_the_fastest() {
    for rate in [Rate::per_year(1), Rate::per_second(1_000_000)] {
        let bucket = TokenBucket::builder(rate).burst(2).build().unwrap();
        let tat = bucket.decide(0, NOW, 2).next.unwrap();
        let full = at(NOW.as_nanos() + bucket.interval().as_nanos());
        let early = at(full.as_nanos() - 1);
        assert_eq!(bucket.decide(tat, full, 1).outcome, Outcome::Allow);
        assert!(!bucket.decide(tat, early, 1).outcome.is_admitted());
    }
}
