//! The custom bucket against a bucket that counts its tokens in plain numbers (I-01, I-03): it adds the units of the rate at each step, and
//! keeps a record of every key that it has seen.

use proptest::prelude::*;
use tollgate_core::{CustomBucket, Nanos, Outcome, QuotaStatus, Rate, Timestamp, TokenBucket};

use super::harness::{CheckResult, assert_caught, assert_holds, ensure};
use super::subject::{RealLimit, Step, Subject, at, beginning, trace};

/// The fields of one quota.
#[derive(Clone, Copy, Debug)]
struct Fields {
    units: u64,
    period: u64,
    burst: u64,
    is_stepped: bool,
    initial: u64,
    remember: u64,
}

impl Fields {
    fn build(&self) -> CustomBucket {
        let rate = Rate::new(self.units, Nanos::from_nanos(self.period));
        let bucket = TokenBucket::builder(rate).burst(self.burst);
        let mut builder = CustomBucket::builder(bucket).initial(
            self.initial.min(self.burst),
            Nanos::from_nanos(self.remember),
        );
        if self.is_stepped {
            builder = builder.refill_in_steps();
        }
        builder.build().unwrap()
    }
}

fn fields() -> impl Strategy<Value = Fields> {
    // Periods that most numbers of units do not divide.
    let period = prop_oneof![Just(1_000_000_000), 100_000_u64..5_000_000_000];
    (
        1_u64..12,
        period,
        1_u64..30,
        any::<bool>(),
        0_u64..30,
        1_u64..20,
    )
        .prop_map(
            |(units, period, burst, is_stepped, initial, remember)| Fields {
                units,
                period,
                burst,
                is_stepped,
                initial,
                remember: remember * period,
            },
        )
}

/// Counts tokens. A part of a token is the time that it has been refilled for, in nanoseconds of one interval.
struct TokenCount {
    fields: Fields,
    interval: u64,
    /// What the bucket holds and when that was so, unless the key is new.
    seen: Option<(u64, u64)>,
}

impl TokenCount {
    fn new(fields: Fields) -> Self {
        let interval = match fields.is_stepped {
            true => fields.period / fields.units,
            false => fields.period.div_ceil(fields.units),
        };
        Self {
            fields,
            interval,
            seen: None,
        }
    }

    fn full(&self) -> u64 {
        self.fields.burst * self.interval
    }

    /// What the bucket holds now, and whether the key is new.
    fn level(&self, now: u64) -> (u64, bool) {
        let initial = self.fields.initial.min(self.fields.burst) * self.interval;
        let new = (initial, true);
        let Some((level, since)) = self.seen else {
            return new;
        };
        let fields = &self.fields;
        let (counted_from, next_step, refilled) = if fields.is_stepped {
            let steps = now / fields.period - since / fields.period;
            let last = since / fields.period * fields.period;
            (last, fields.period, steps * fields.units * self.interval)
        } else {
            (since, 0, now - since)
        };
        let full_at = counted_from + (self.full() - level) + next_step;
        if initial < self.full() && now >= full_at + fields.remember {
            return new;
        }
        ((level + refilled).min(self.full()), false)
    }

    fn spend(&mut self, now: u64, cost: u64) -> bool {
        let (level, is_new) = self.level(now);
        let fits = cost * self.interval <= level;
        if fits && cost > 0 {
            self.seen = Some((level - cost * self.interval, now));
        } else if !fits && is_new && cost <= self.fields.burst {
            self.seen = Some((level, now));
        }
        fits
    }
}

fn decides_like_the_count<S: Subject>(
    mut limiter: S,
    fields: Fields,
    begin: u64,
    steps: &[Step],
) -> CheckResult {
    let mut count = TokenCount::new(fields);
    let mut now = begin;
    for step in steps {
        now += step.advance(fields.period);
        let fits = count.spend(now, step.cost);
        let outcome = limiter.spend(at(now), step.cost);
        ensure!(
            outcome.is_admitted() == fits,
            "{outcome:?} at {now}, fits: {fits}"
        );
        let (level, _) = count.level(now);
        let remaining = limiter.status(at(now)).remaining;
        ensure!(
            remaining == level / count.interval,
            "{remaining} left at {now}"
        );
        if let Outcome::Deny { retry_after } = outcome {
            let again = now + retry_after.as_nanos();
            ensure!(
                !limiter
                    .clone()
                    .spend(at(again - 1), step.cost)
                    .is_admitted(),
                "too late"
            );
            ensure!(
                limiter.clone().spend(at(again), step.cost).is_admitted(),
                "too early"
            );
        }
    }
    Ok(())
}

#[test]
fn i01_i03_a_custom_bucket_decides_as_one_that_counts_its_tokens() {
    assert_holds(
        &(fields(), beginning(), trace(60, 12)),
        |(fields, begin, steps)| {
            decides_like_the_count(RealLimit::new(fields.build()), fields, begin, &steps)
        },
    );
}

/// Forgets a key as soon as its bucket is full, as a store does that keeps no record of the keys it has seen.
#[derive(Clone, Debug, PartialEq)]
struct ForgetsFullKeys(RealLimit);

impl Subject for ForgetsFullKeys {
    fn spend(&mut self, now: Timestamp, cost: u64) -> Outcome {
        let status = self.0.status(now);
        if status.remaining == status.limit {
            self.0 = RealLimit::new(self.0.limit);
        }
        self.0.spend(now, cost)
    }

    fn status(&self, now: Timestamp) -> QuotaStatus {
        self.0.status(now)
    }
}

/// Refills steadily although the quota refills in steps.
#[derive(Clone, Debug, PartialEq)]
struct RefillsSteadily(RealLimit);

impl Subject for RefillsSteadily {
    fn spend(&mut self, now: Timestamp, cost: u64) -> Outcome {
        self.0.spend(now, cost)
    }

    fn status(&self, now: Timestamp) -> QuotaStatus {
        self.0.status(now)
    }
}

#[test]
fn buckets_that_forget_or_refill_steadily_are_caught() {
    let inputs = (fields(), beginning(), trace(60, 12));
    assert_caught(&inputs, |(fields, begin, steps)| {
        let wrong = ForgetsFullKeys(RealLimit::new(fields.build()));
        decides_like_the_count(wrong, fields, begin, &steps)
    });
    assert_caught(&inputs, |(fields, begin, steps)| {
        let steady = Fields {
            is_stepped: false,
            ..fields
        };
        let wrong = RefillsSteadily(RealLimit::new(steady.build()));
        decides_like_the_count(wrong, fields, begin, &steps)
    });
}
