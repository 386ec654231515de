//! The interface of a limiter under test, real or wrong, and the traces that run on it.

use std::fmt::Debug;

use proptest::prelude::*;
use tollgate_core::concurrency::LeaseId;
use tollgate_core::limit::{Limit, Op, Quota, State};
use tollgate_core::{
    Calendar, Concurrency, CustomBucket, FixedWindow, LeakyBucket, Nanos, Outcome, QuotaStatus,
    Rate, SlidingCounter, SlidingLog, Timestamp, TokenBucket, UtcOffset, Window,
};

/// A limiter with its state.
pub(crate) trait Subject: Clone + PartialEq + Debug {
    /// Decides and stores the next state.
    fn spend(&mut self, now: Timestamp, cost: u64) -> Outcome;
    /// The status for a client.
    fn status(&self, now: Timestamp) -> QuotaStatus;
}

/// A real limit of any algorithm with one key's state.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RealLimit {
    pub(crate) limit: Limit,
    pub(crate) state: State,
    /// The id of the next lease, where the limit counts leases.
    next_id: u128,
}

impl RealLimit {
    pub(crate) fn new(limit: impl Into<Limit>) -> Self {
        Self {
            limit: limit.into(),
            state: State::default(),
            next_id: 0,
        }
    }

    /// Counts a lease of `spend_op` that was acquired without `spend`.
    pub(crate) fn count_lease(&mut self) {
        self.next_id += 1;
    }

    pub(crate) fn spend_op(&self, cost: u64) -> Op {
        match self.limit.quota() {
            Quota::Concurrency(_) => Op::Acquire {
                id: LeaseId(self.next_id),
                weight: cost,
            },
            _ => Op::Spend(cost),
        }
    }
}

impl Subject for RealLimit {
    fn spend(&mut self, now: Timestamp, cost: u64) -> Outcome {
        let transition = self
            .limit
            .decide(&self.state, now, self.spend_op(cost))
            .unwrap();
        if let Some(edit) = transition.next {
            self.state.apply(edit);
        }
        if transition.receipt.cost > 0 {
            self.next_id += 1;
        }
        transition.outcome
    }

    fn status(&self, now: Timestamp) -> QuotaStatus {
        self.limit.status(&self.state, now)
    }
}

/// One request of a trace; its time has no scale yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    kind: u8,
    raw: u64,
    pub(crate) cost: u64,
}

impl Step {
    /// Time since the previous request, for a limiter whose events happen every `scale` nanoseconds: nothing, the edges of one scale, a
    /// time around it, or long enough for a fresh start.
    pub(crate) const fn advance(&self, scale: u64) -> u64 {
        match self.kind {
            0 | 1 => 0,
            2 => 1,
            3 => scale.saturating_sub(1),
            4 => scale,
            5 => scale + 1,
            6 | 7 => self.raw % (2 * scale + 1),
            _ => self.raw % (40 * scale),
        }
    }
}

/// A trace of up to `longest` requests that cost up to `dearest` each.
pub(crate) fn trace(longest: usize, dearest: u64) -> impl Strategy<Value = Vec<Step>> {
    let cost = prop_oneof![1 => Just(0), 5 => Just(1), 3 => 0..=dearest];
    let step = (0_u8..9, any::<u64>(), cost).prop_map(|(kind, raw, cost)| Step { kind, raw, cost });
    prop::collection::vec(step, 1..longest)
}

/// An instant to begin at: the epoch, shortly after, today.
pub(crate) fn beginning() -> impl Strategy<Value = u64> {
    prop_oneof![
        Just(0),
        1_u64..10_000,
        Just(1_700_000_000_000_000_000),
        1_600_000_000_000_000_000_u64..1_900_000_000_000_000_000,
    ]
}

pub(crate) const fn at(nanos: u64) -> Timestamp {
    Timestamp::from_nanos(nanos)
}

/// An interval of refill, small and large, even and odd.
pub(crate) fn interval() -> impl Strategy<Value = u64> {
    prop_oneof![
        1_u64..20,
        Just(1_000),
        Just(333_333_334),
        1_u64..5_000_000_000
    ]
}

/// A token bucket of exactly this interval and burst.
pub(crate) fn bucket(interval: u64, burst: u64) -> TokenBucket {
    let rate = Rate::new(1, Nanos::from_nanos(interval));
    TokenBucket::builder(rate).burst(burst).build().unwrap()
}

/// Any limit, and the time scale of its events.
pub(crate) fn any_limit() -> impl Strategy<Value = (RealLimit, u64)> {
    prop_oneof![
        token_buckets(),
        leaky_buckets(),
        custom_buckets(),
        fixed_windows(),
        sliding_logs(),
        sliding_counters(),
        concurrencies()
    ]
}

pub(crate) fn token_buckets() -> impl Strategy<Value = (RealLimit, u64)> {
    (interval(), 0_u64..12, 1_u64..4).prop_map(|(interval, burst, block)| {
        let rate = Rate::new(u64::from(burst > 0) * block, Nanos::from_nanos(interval));
        let builder = TokenBucket::builder(rate).burst(burst * block).block(block);
        (RealLimit::new(builder.build().unwrap()), interval)
    })
}

pub(crate) fn leaky_buckets() -> impl Strategy<Value = (RealLimit, u64)> {
    (interval(), 0_u64..12, 0_u64..12, any::<bool>()).prop_map(|(interval, burst, delay, meter)| {
        let rate = Rate::new(1, Nanos::from_nanos(interval));
        let builder = LeakyBucket::queue(rate)
            .burst(burst)
            .delay(delay.min(burst));
        let builder = if meter { builder.nodelay() } else { builder };
        (RealLimit::new(builder.build().unwrap()), interval)
    })
}

/// New keys start full here: the denial of a key that starts with less is recorded, which `custom_bucket` covers.
pub(crate) fn custom_buckets() -> impl Strategy<Value = (RealLimit, u64)> {
    let period = prop_oneof![1_000_u64..20_000, Just(1_000_000_000)];
    (period, 1_u64..9, 1_u64..12).prop_map(|(period, units, burst)| {
        let rate = Rate::new(units, Nanos::from_nanos(period));
        let bucket = TokenBucket::builder(rate).burst(burst);
        let quota = CustomBucket::builder(bucket).refill_in_steps().build();
        (RealLimit::new(quota.unwrap()), period / units)
    })
}

pub(crate) fn fixed_windows() -> impl Strategy<Value = (RealLimit, u64)> {
    let window = prop_oneof![
        interval().prop_map(|n| (Window::Epoch(Nanos::from_nanos(n)), n)),
        interval().prop_map(|n| (Window::FirstHit(Nanos::from_nanos(n)), n)),
        (0_usize..3, -840_i16..=840).prop_map(|(which, minutes)| {
            let calendar = [Calendar::Day, Calendar::Week, Calendar::Month][which];
            let offset = UtcOffset::from_minutes(minutes).unwrap();
            (Window::Calendar(calendar, offset), 86_400_000_000_000)
        }),
    ];
    // Small limits too: a window that admits its limit twice shows only if the limit was spent.
    (prop_oneof![0_u64..4, 0_u64..12], window).prop_map(|(limit, (window, scale))| {
        (
            RealLimit::new(FixedWindow::builder(limit, window).build().unwrap()),
            scale,
        )
    })
}

pub(crate) fn sliding_logs() -> impl Strategy<Value = (RealLimit, u64)> {
    (0_u64..12, interval(), 1_u64..4).prop_map(|(limit, window, block)| {
        let builder = SlidingLog::builder(limit * block, Nanos::from_nanos(window)).block(block);
        (RealLimit::new(builder.build().unwrap()), window)
    })
}

pub(crate) fn sliding_counters() -> impl Strategy<Value = (RealLimit, u64)> {
    let limit = prop_oneof![4 => 0_u64..12, 1 => 1_000_000_u64..4_000_000_000];
    (limit, interval()).prop_map(|(limit, window)| {
        let quota = SlidingCounter::builder(limit, Nanos::from_nanos(window));
        (RealLimit::new(quota.build().unwrap()), window)
    })
}

pub(crate) fn concurrencies() -> impl Strategy<Value = (RealLimit, u64)> {
    (0_u64..12, interval()).prop_map(|(limit, lease)| {
        let quota = Concurrency::new(limit, Nanos::from_nanos(lease)).unwrap();
        (RealLimit::new(quota), lease)
    })
}
