//! One limit of every algorithm, and how long a clock that went back may lock a client out of it.

use tollgate_core::concurrency::LeaseId;
use tollgate_core::limit::Quota;
use tollgate_core::{
    Calendar, Concurrency, FixedWindow, LeakyBucket, Nanos, Rate, SlidingCounter, SlidingLog,
    TokenBucket, UtcOffset, Window,
};
use tollgate_store::{IdentifiedLimit, Op};

use crate::server_time::numbered_limit;

pub(super) const MOST: u64 = 5;

#[derive(Debug)]
pub(super) struct Case {
    pub(super) limit: IdentifiedLimit,
    /// Core's promise: the longest wait for one unit after the clock went back.
    pub(super) bound: Nanos,
    /// The most units admitted while the clock runs from there to the bound.
    pub(super) admitted_within_bound: u64,
}

impl Case {
    /// The operation that takes this many units. Each concurrency lease needs a new id, so `number` must be new each
    /// time.
    pub(super) fn take(&self, cost: u64, number: u128) -> Op {
        match self.limit.limit.quota() {
            Quota::Concurrency(_) => Op::Acquire {
                id: LeaseId(number),
                weight: cost,
            },
            _ => Op::Spend(cost),
        }
    }

    pub(super) fn is_concurrency(&self) -> bool {
        matches!(self.limit.limit.quota(), Quota::Concurrency(_))
    }
}

pub(super) fn cases() -> Vec<Case> {
    let rate = Rate::per_minute(10);
    let refill = Nanos::from_secs(30);
    let token = TokenBucket::builder(rate).burst(MOST).build().unwrap();
    // A leaky bucket's burst does not include the request that is being served.
    let meter = LeakyBucket::meter(rate).burst(MOST - 1).build().unwrap();
    let queue = LeakyBucket::queue(rate).burst(MOST - 1).build().unwrap();
    let window = |window| FixedWindow::builder(MOST, window).build().unwrap();
    let day = Window::Calendar(Calendar::Day, UtcOffset::UTC);
    let log = SlidingLog::builder(MOST, Nanos::MINUTE).build().unwrap();
    let counter = SlidingCounter::builder(MOST, Nanos::MINUTE)
        .build()
        .unwrap();
    let places = Concurrency::new(MOST, refill).unwrap();
    let case = |limit, bound, admitted_within_bound| Case {
        limit,
        bound,
        admitted_within_bound,
    };
    let two_minutes = Nanos::from_secs(120);
    let two_hours = Nanos::from_secs(7_200);
    let two_days = Nanos::from_secs(2 * 86_400);
    vec![
        case(numbered_limit(1, token), refill, MOST),
        case(numbered_limit(2, meter), meter.ceiling(), MOST),
        case(numbered_limit(3, queue), queue.ceiling(), MOST),
        // The open window ends within two windows' lengths, and by then at most one other has begun.
        case(
            numbered_limit(4, window(Window::Epoch(Nanos::HOUR))),
            two_hours,
            2 * MOST,
        ),
        case(
            numbered_limit(5, window(Window::FirstHit(Nanos::MINUTE))),
            Nanos::MINUTE,
            MOST,
        ),
        case(numbered_limit(6, window(day)), two_days, 2 * MOST),
        case(numbered_limit(7, log), Nanos::MINUTE, MOST),
        case(numbered_limit(600, counter), two_minutes, 2 * MOST),
        case(numbered_limit(6_000, places), refill, MOST),
    ]
}
