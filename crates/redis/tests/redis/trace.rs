//! Random traces: quotas, instants and operations that repeat with the seed, including everything that has broken
//! limiters before.

use tollgate_core::concurrency::LeaseId;
use tollgate_core::limit::Limit;
use tollgate_core::reservation::ReservationId;
use tollgate_core::token_bucket::TokenBucketBuilder;
use tollgate_core::{
    Calendar, Concurrency, CustomBucket, FixedWindow, InvalidQuota, LeakyBucket, Nanos, Rate,
    Receipt, SlidingCounter, SlidingLog, Timestamp, TokenBucket, UtcOffset, Window,
};
use tollgate_store::Op;

/// Random numbers that repeat with the seed.
#[derive(Debug)]
pub(crate) struct TestRng(u64);

impl TestRng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.next() % n.max(1)
    }

    pub(crate) fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[usize::try_from(self.below(choices.len() as u64)).unwrap()]
    }

    /// A number of random width: small and huge numbers are equally likely.
    pub(crate) fn wide(&mut self) -> u64 {
        let bits = self.below(65);
        if bits == 0 {
            0
        } else {
            self.next() >> (64 - bits)
        }
    }

    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    Token,
    Leaky,
    Custom,
    Window,
    Log,
    Counter,
    Leases,
}

impl Family {
    pub(crate) const EACH: [Self; 7] = [
        Self::Token,
        Self::Leaky,
        Self::Custom,
        Self::Window,
        Self::Log,
        Self::Counter,
        Self::Leases,
    ];
}

const PERIODS: [Nanos; 7] = [
    Nanos::SECOND,
    Nanos::MINUTE,
    Nanos::HOUR,
    Nanos::DAY,
    Nanos::from_nanos(1_234_567_891),
    Nanos::from_millis(7),
    Nanos::YEAR,
];

/// A quota that can be built, and the time in which it changes noticeably.
pub(crate) fn limit(rng: &mut TestRng, family: Family) -> (Limit, u64) {
    loop {
        let is_extreme = rng.chance(15);
        let units = match is_extreme {
            true => rng.wide(),
            false => rng.one_of(&[0, 1, 2, 3, 5, 7, 10, 13, 100, 900, 1_000_003]),
        };
        let period = match is_extreme {
            true => Nanos::from_nanos(rng.wide()),
            false => rng.one_of(&PERIODS),
        };
        let burst = match is_extreme {
            true => rng.wide(),
            false => 1 + rng.below(20),
        };
        let overdraft = rng.one_of(&[0, 0, 1, 5, 50]);
        let block = rng.one_of(&[1, 1, 1, 2, 3, 1_000]);
        let rate = Rate::new(units, period);
        let span = period.as_nanos() / units.clamp(1, 20);
        let built: Result<Limit, _> = match family {
            Family::Token => TokenBucket::builder(rate)
                .burst(burst.saturating_mul(block))
                .overdraft(overdraft)
                .block(block)
                .build()
                .map(Into::into),
            Family::Custom => {
                let bucket = TokenBucket::builder(rate)
                    .burst(burst.saturating_mul(block))
                    .overdraft(overdraft)
                    .block(block);
                custom(rng, bucket, burst.saturating_mul(block))
            }
            Family::Leaky => {
                let leaky = match rng.below(3) {
                    0 => LeakyBucket::meter(rate).burst(burst),
                    1 => LeakyBucket::queue(rate).burst(burst),
                    _ => LeakyBucket::queue(rate).burst(burst).delay(burst / 2),
                };
                leaky.overdraft(overdraft).build().map(Into::into)
            }
            Family::Window => {
                let (window, span) = window(rng, period);
                let window = FixedWindow::builder(units, window).overdraft(overdraft);
                if let Ok(window) = window.build() {
                    return (window.into(), span / 3);
                }
                continue;
            }
            Family::Log => SlidingLog::builder(units.saturating_mul(block), period)
                .overdraft(overdraft)
                .block(block)
                .build()
                .map(Into::into),
            Family::Counter => SlidingCounter::builder(units, period)
                .overdraft(overdraft)
                .build()
                .map(Into::into),
            Family::Leases => Concurrency::new(units, period).map(Into::into),
        };
        if let Ok(limit) = built {
            return (limit, span);
        }
    }
}

/// A bucket that may refill in steps and may not start full.
fn custom(
    rng: &mut TestRng,
    bucket: TokenBucketBuilder,
    burst: u64,
) -> Result<Limit, InvalidQuota> {
    let mut custom = CustomBucket::builder(bucket);
    if rng.chance(60) {
        custom = custom.refill_in_steps();
    }
    if rng.chance(60) {
        let initial = rng.below(burst.saturating_add(1));
        custom = custom.initial(initial, rng.one_of(&PERIODS));
    }
    custom.build().map(Into::into)
}

/// A window of random kind, and its length.
fn window(rng: &mut TestRng, period: Nanos) -> (Window, u64) {
    let window = match rng.below(4) {
        0 => Window::Epoch(period),
        1 => Window::FirstHit(period),
        2 => Window::Epoch(Nanos::from_nanos(1 + rng.below(5_000_000_000))),
        _ => {
            let minutes = rng.below(1_681).cast_signed() - 840;
            let offset = UtcOffset::from_minutes(i16::try_from(minutes).unwrap()).unwrap();
            let calendar = rng.one_of(&[
                Calendar::Day,
                Calendar::Week,
                Calendar::Month,
                Calendar::Year,
            ]);
            Window::Calendar(calendar, offset)
        }
    };
    let span = match window {
        Window::Epoch(length) | Window::FirstHit(length) => length.as_nanos(),
        _ => Nanos::DAY.as_nanos() * rng.one_of(&[1, 7, 20, 200]),
    };
    (window, span)
}

/// The relation of the next instant to the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClockStep {
    Still,
    On,
    Leap,
    Back,
    Anywhere,
}

pub(crate) fn instant(rng: &mut TestRng, now: Timestamp, span: u64) -> (Timestamp, ClockStep) {
    let a_little = rng.below(span.saturating_add(2));
    match rng.below(100) {
        0..20 => (now, ClockStep::Still),
        20..85 => (now.after(Nanos::from_nanos(a_little)), ClockStep::On),
        85..92 => {
            let far = span.saturating_mul(rng.below(40));
            (now.after(Nanos::from_nanos(far)), ClockStep::Leap)
        }
        92..98 => {
            let back = a_little.saturating_mul(rng.one_of(&[1, 1, 10]));
            let nanos = now.as_nanos().saturating_sub(back);
            (Timestamp::from_nanos(nanos), ClockStep::Back)
        }
        98 => (usual(rng), ClockStep::Anywhere),
        _ => (Timestamp::from_nanos(rng.wide()), ClockStep::Anywhere),
    }
}

/// Some time in the years around 2026.
pub(crate) fn usual(rng: &mut TestRng) -> Timestamp {
    Timestamp::from_nanos(1_700_000_000_000_000_000 + rng.below(300_000_000_000_000_000))
}

pub(crate) fn cost(rng: &mut TestRng, most: u64) -> u64 {
    match rng.below(20) {
        0 => 0,
        1 => most,
        2 => most.saturating_add(1),
        3 => most / 2,
        4 => rng.wide(),
        5 => u64::MAX,
        6..9 => rng.below(most.saturating_add(2)),
        _ => 1 + rng.below(3),
    }
}

/// An operation that the family supports. `receipts` are earlier charges.
pub(crate) fn operation(
    rng: &mut TestRng,
    family: Family,
    most: u64,
    span: u64,
    receipts: &[Receipt],
) -> Op {
    if family == Family::Leases {
        let id = LeaseId(u128::from(rng.below(9)));
        let weight = match rng.below(20) {
            0 => rng.wide(),
            1 => 0,
            _ => 1 + rng.below(most / 3 + 1),
        };
        return match rng.below(10) {
            0..6 => Op::Acquire { id, weight },
            6 | 7 => Op::Renew(id),
            _ => Op::Release(id),
        };
    }
    let cost = cost(rng, most);
    let id = ReservationId(u128::from(rng.below(8)));
    let receipt = if receipts.is_empty() || rng.chance(3) {
        Receipt {
            cost: rng.wide(),
            at: Timestamp::from_nanos(rng.wide()),
            mark: rng.wide(),
        }
    } else {
        rng.one_of(receipts)
    };
    match rng.below(100) {
        0..45 => Op::Spend(cost),
        45..53 => Op::SpendUpTo(cost),
        53..60 => Op::Peek(cost),
        60..70 => Op::ChargeAlways(cost),
        70..76 => Op::Settle { receipt, actual: 0 },
        76..80 => Op::Settle {
            receipt,
            actual: cost,
        },
        80..84 => Op::Credit(cost),
        84..91 => Op::Reserve {
            id,
            cost,
            hold: Nanos::from_nanos(rng.below(span.saturating_mul(6).max(1))),
        },
        91..97 => Op::SettleReserved { id, actual: cost },
        _ => Op::CancelReserved(id),
    }
}
