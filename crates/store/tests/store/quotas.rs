//! Random quotas of every algorithm, each with two others that may replace it on live state.

use tollgate_core::limit::Limit;
use tollgate_core::{
    Calendar, Concurrency, CustomBucket, FixedWindow, LeakyBucket, Nanos, Rate, SlidingCounter,
    SlidingLog, TokenBucket, UtcOffset, Window,
};

use crate::support::Random;

pub(crate) const ALGORITHMS: [&str; 8] = [
    "token bucket",
    "leaky meter",
    "leaky queue",
    "fixed window",
    "sliding log",
    "sliding counter",
    "concurrency",
    "custom bucket",
];

/// A rate that need not divide a second, for a small burst.
fn rate(random: &mut Random) -> Rate {
    let period = Nanos::from_nanos(1_000_000_000 + random.below(9_000_000_000));
    Rate::new(1 + random.below(7), period)
}

/// Makes three quotas share their state.
fn shared<Q: Copy + Into<Limit>>(made: [Q; 3], share: impl Fn(Q, &Q) -> Q) -> [Limit; 3] {
    made.map(|quota| made.iter().fold(quota, &share).into())
}

/// Three quotas of one algorithm that may replace each other.
pub(crate) fn variants(algorithm: usize, random: &mut Random) -> [Limit; 3] {
    let overdraft = random.below(6);
    let block = 1 + random.below(2);
    let window = Nanos::from_nanos(5_000_000_000 + random.below(60_000_000_000));
    match algorithm {
        0 => {
            let mut make = || {
                let bucket = TokenBucket::builder(rate(random)).burst(4 + random.below(20));
                bucket.overdraft(overdraft).block(block).build().unwrap()
            };
            let made = [make(), make(), make()];
            shared(made, TokenBucket::sharing_state_with)
        }
        1 | 2 => {
            let mut make = || {
                let rate = rate(random);
                let bucket = match algorithm {
                    1 => LeakyBucket::meter(rate),
                    _ => LeakyBucket::queue(rate).delay(random.below(3)),
                };
                let bucket = bucket.burst(3 + random.below(20));
                bucket.overdraft(overdraft).build().unwrap()
            };
            let made = [make(), make(), make()];
            shared(made, LeakyBucket::sharing_state_with)
        }
        3 => {
            let kind = match random.below(3) {
                0 => Window::Epoch(window),
                1 => Window::FirstHit(window),
                _ => Window::Calendar(Calendar::Day, UtcOffset::from_minutes(330).unwrap()),
            };
            let mut make = || {
                let quota = FixedWindow::builder(5 + random.below(50), kind);
                quota.overdraft(overdraft).build().unwrap().into()
            };
            [make(), make(), make()]
        }
        4 => {
            let mut make = || {
                let window = Nanos::from_nanos(window.as_nanos() + random.below(9_000_000_000));
                let quota = SlidingLog::builder(5 + random.below(50), window);
                quota.overdraft(overdraft).block(block).build().unwrap()
            };
            let made = [make(), make(), make()];
            shared(made, SlidingLog::sharing_state_with)
        }
        5 => {
            let mut make = || {
                let window = Nanos::from_nanos(window.as_nanos() + random.below(3) * 1_000_000_000);
                let quota = SlidingCounter::builder(5 + random.below(50), window);
                quota
                    .overdraft(overdraft)
                    .ceiling(100)
                    .build()
                    .unwrap()
                    .into()
            };
            [make(), make(), make()]
        }
        7 => custom_buckets(overdraft, window, random),
        _ => {
            let mut make = || {
                Concurrency::new(3 + random.below(4), window)
                    .unwrap()
                    .into()
            };
            [make(), make(), make()]
        }
    }
}

/// Three buckets that refill in steps or steadily and do not start full. They have the same step and memory, as the tiers of one limit have
/// them.
fn custom_buckets(overdraft: u64, window: Nanos, random: &mut Random) -> [Limit; 3] {
    let is_stepped = random.below(2) == 0;
    let mut make = || {
        let rate = Rate::new(1 + random.below(7), window);
        let bucket = TokenBucket::builder(rate).burst(4 + random.below(20));
        let builder =
            CustomBucket::builder(bucket.overdraft(overdraft)).initial(random.below(5), window);
        let builder = if is_stepped {
            builder.refill_in_steps()
        } else {
            builder
        };
        builder.build().unwrap()
    };
    let made = [make(), make(), make()];
    shared(made, CustomBucket::sharing_state_with)
}
