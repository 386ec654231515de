//! Published behaviours of these algorithms, each as a test that reads like its sentence.
//!
//! Must not know: how an algorithm stores its state. The tests go through `Limit`, as a store does.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that cannot go on should say so loudly, helpers included"
)]

mod nginx;
mod windows;

use tollgate_core::limit::{Limit, Op, State};
use tollgate_core::{
    Concurrency, FixedWindow, LeakyBucket, Nanos, Outcome, QuotaStatus, Rate, SlidingCounter,
    SlidingLog, Timestamp, TokenBucket, Window,
};

/// A limit with the state of one key.
struct KeyedLimit {
    limit: Limit,
    state: State,
}

impl KeyedLimit {
    fn new(limit: impl Into<Limit>) -> Self {
        Self {
            limit: limit.into(),
            state: State::default(),
        }
    }

    fn spend(&mut self, now: Timestamp, cost: u64) -> Outcome {
        let transition = self
            .limit
            .decide(&self.state, now, Op::Spend(cost))
            .unwrap();
        if let Some(edit) = transition.next {
            self.state.apply(edit);
        }
        transition.outcome
    }

    /// How many of `tries` requests at the same instant are allowed without waiting.
    fn count_allowed(&mut self, tries: u32, now: Timestamp) -> usize {
        (0..tries)
            .filter(|_| self.spend(now, 1) == Outcome::Allow)
            .count()
    }

    fn status(&self, now: Timestamp) -> QuotaStatus {
        self.limit.status(&self.state, now)
    }
}

fn at_ms(ms: u64) -> Timestamp {
    Timestamp::EPOCH.after(Nanos::from_millis(ms))
}

fn at_ns(ns: u64) -> Timestamp {
    Timestamp::from_nanos(ns)
}

fn deny_ms(ms: u64) -> Outcome {
    Outcome::Deny {
        retry_after: Nanos::from_millis(ms),
    }
}

/// Pseudo-random numbers, the same on every run (the constants are those of Knuth's MMIX generator).
struct PseudoRandom(u64);

impl PseudoRandom {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

#[test]
fn a_token_bucket_admits_a_hundred_at_once_and_then_ten_a_second() {
    let mut key = KeyedLimit::new(
        TokenBucket::builder(Rate::per_second(10))
            .burst(100)
            .build()
            .unwrap(),
    );
    assert_eq!(key.count_allowed(1_000, at_ms(5_000)), 100);
    assert_eq!(key.spend(at_ms(5_000), 1), deny_ms(100));
    for second in 1..=60 {
        assert_eq!(key.count_allowed(1_000, at_ms(5_000 + second * 1_000)), 10);
    }
    // After a long pause it is full again, and not fuller.
    assert_eq!(key.count_allowed(1_000, at_ms(5_000 + 3_600_000)), 100);
}

#[test]
fn a_leaky_bucket_as_a_meter_is_a_token_bucket_with_one_more() {
    let rate = Rate::per_minute(900);
    let mut meter = KeyedLimit::new(LeakyBucket::meter(rate).burst(7).build().unwrap());
    let mut bucket = KeyedLimit::new(TokenBucket::builder(rate).burst(8).build().unwrap());
    let (mut random, mut now, mut denied) = (PseudoRandom(1), 0, 0);
    for _ in 0..50_000 {
        now += random.below(150_000_000);
        let cost = random.below(4);
        let outcome = meter.spend(at_ns(now), cost);
        assert_eq!(
            outcome,
            bucket.spend(at_ns(now), cost),
            "at {now} ns, cost {cost}"
        );
        assert_eq!(meter.status(at_ns(now)), bucket.status(at_ns(now)));
        denied += u32::from(!outcome.is_admitted());
    }
    assert!(
        (5_000..45_000).contains(&denied),
        "both outcomes occurred: {denied} denials"
    );
}

#[test]
fn a_leaky_bucket_as_a_queue_admits_what_the_meter_admits_and_only_adds_waits() {
    let rate = Rate::per_second(10);
    let mut meter = KeyedLimit::new(LeakyBucket::meter(rate).burst(5).build().unwrap());
    let mut queue = KeyedLimit::new(LeakyBucket::queue(rate).burst(5).build().unwrap());
    let (mut random, mut now, mut waited, mut turn) = (PseudoRandom(2), 0, 0, 0);
    for _ in 0..20_000 {
        now += random.below(180);
        let (metered, queued) = (meter.spend(at_ms(now), 1), queue.spend(at_ms(now), 1));
        assert_eq!(metered.is_admitted(), queued.is_admitted(), "at {now} ms");
        let leaves = match queued {
            Outcome::Wait(wait) => now + wait.as_millis_ceil(),
            Outcome::Allow => now,
            Outcome::Deny { .. } | Outcome::Never => continue,
        };
        assert!(leaves >= turn, "at {now} ms: two leave within one interval");
        turn = leaves + 100;
        waited += u32::from(queued != Outcome::Allow);
    }
    assert!(waited > 1_000, "{waited} waited");
}

/// Every algorithm with this limit.
fn every_algorithm(limit: u64) -> [Limit; 7] {
    let rate = Rate::per_second(limit);
    let minute = Nanos::MINUTE;
    // A leaky bucket's burst stands beside the request being served.
    let burst = limit.saturating_sub(1);
    [
        TokenBucket::builder(rate).build().unwrap().into(),
        LeakyBucket::meter(rate)
            .burst(burst)
            .build()
            .unwrap()
            .into(),
        LeakyBucket::queue(rate)
            .burst(burst)
            .build()
            .unwrap()
            .into(),
        FixedWindow::builder(limit, Window::Epoch(minute))
            .build()
            .unwrap()
            .into(),
        SlidingLog::builder(limit, minute).build().unwrap().into(),
        SlidingCounter::builder(limit, minute)
            .build()
            .unwrap()
            .into(),
        Concurrency::new(limit, minute).unwrap().into(),
    ]
}

/// Spends or acquires `cost`, whichever the limit supports.
fn decide_once(limit: Limit, cost: u64) -> Outcome {
    let spend = limit.decide(&State::default(), at_ms(1_000), Op::Spend(cost));
    let acquire = Op::Acquire {
        id: tollgate_core::concurrency::LeaseId(1),
        weight: cost,
    };
    let transition = spend.or_else(|_| limit.decide(&State::default(), at_ms(1_000), acquire));
    transition.unwrap().outcome
}

#[test]
fn a_limit_of_zero_denies_every_cost_for_ever_and_still_allows_a_peek() {
    for limit in every_algorithm(0) {
        assert_eq!(decide_once(limit, 1), Outcome::Never, "{limit:?}");
        assert_eq!(decide_once(limit, u64::MAX), Outcome::Never, "{limit:?}");
        assert_eq!(decide_once(limit, 0), Outcome::Allow, "{limit:?}");
        let status = limit.status(&State::default(), at_ms(1_000));
        assert_eq!((status.limit, status.remaining), (0, 0), "{limit:?}");
    }
}

#[test]
fn a_cost_of_the_capacity_is_admitted_and_one_unit_more_never_is() {
    for limit in every_algorithm(10) {
        assert_eq!(decide_once(limit, 10), Outcome::Allow, "{limit:?}");
        assert_eq!(decide_once(limit, 11), Outcome::Never, "{limit:?}");
        assert_eq!(decide_once(limit, u64::MAX), Outcome::Never, "{limit:?}");
    }
}
