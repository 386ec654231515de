//! The cache compared with a store that is always asked: it never denies what the store would admit, and never gives a
//! `Retry-After` that is too short. Negative controls show that the comparison finds both errors.

use std::num::NonZeroU16;
use std::sync::Arc;

use tollgate_core::limit::Limit;
use tollgate_core::{
    FixedWindow, LeakyBucket, Nanos, Outcome, Rate, Receipt, SlidingCounter, SlidingLog, Timestamp,
    TokenBucket, Window,
};
use tollgate_store::{
    IdentifiedLimit, LimitId, ManualClock, MemoryStore, Op, QuotaCheck, Store as _, StoreKey,
    StoreReply,
};

use super::{CachedDenial, DenialCache, DenialCaching};
use crate::testing::SeededRng;

const START: Timestamp = Timestamp::from_secs(1_700_000_000);
const KEYS: [&[u8]; 3] = [b"alice", b"bob", b"carol"];

fn limits() -> Vec<Limit> {
    let minute = Nanos::MINUTE;
    vec![
        TokenBucket::builder(Rate::per_second(2))
            .burst(5)
            .build()
            .unwrap()
            .into(),
        TokenBucket::builder(Rate::per_second(3_000))
            .block(1_000)
            .burst(7_000)
            .build()
            .unwrap()
            .into(),
        LeakyBucket::meter(Rate::per_second(1))
            .burst(3)
            .build()
            .unwrap()
            .into(),
        LeakyBucket::queue(Rate::per_second(1))
            .burst(3)
            .build()
            .unwrap()
            .into(),
        FixedWindow::builder(4, Window::Epoch(minute))
            .build()
            .unwrap()
            .into(),
        FixedWindow::builder(4, Window::FirstHit(minute))
            .build()
            .unwrap()
            .into(),
        SlidingCounter::builder(5, minute).build().unwrap().into(),
        SlidingLog::builder(5, minute).build().unwrap().into(),
    ]
}

/// The cache's errors in a trace.
#[derive(Debug, Default, PartialEq, Eq)]
struct ErrorCounts {
    false_denials: usize,
    late_false_denials: usize,
    short_waits: usize,
    hits: usize,
}

/// How a trace uses the cache.
#[derive(Clone, Copy)]
struct CacheUse {
    keep: DenialCaching,
    refunds: bool,
    records_admissions: bool,
}

const CORRECT_USE: CacheUse = CacheUse {
    keep: DenialCaching::UntilRetryAfter,
    refunds: false,
    records_admissions: true,
};

/// Runs a random trace on one limit and three keys. Every check asks the cache first, then the store in any case.
fn run(limit: Limit, cache_use: CacheUse, seed: u64) -> ErrorCounts {
    let clock = Arc::new(ManualClock::at(START));
    let store = MemoryStore::with_clock(1_000, Arc::clone(&clock)).unwrap();
    let identified = IdentifiedLimit {
        id: LimitId(NonZeroU16::MIN),
        limit,
    };
    let cache = DenialCache::for_keys(64);
    let mut rng = SeededRng::new(seed);
    let mut errors = ErrorCounts::default();
    let mut receipts: Vec<(&[u8], Receipt)> = Vec::new();
    let mut sent_at = [START; 3];
    let unit = if rng.below(2) == 0 { 1 } else { 700 };
    for _ in 0..400 {
        clock.advance(Nanos::from_millis(rng.below(900)));
        let now = store.now();
        let index = usize::try_from(rng.below(3)).unwrap();
        let key = StoreKey::new(KEYS[index]).unwrap();
        let check = |op| QuotaCheck {
            key,
            limit: &identified,
            op,
        };
        if cache_use.refunds && rng.below(4) == 0 {
            if let Some((key_bytes, receipt)) = receipts.pop() {
                let key = StoreKey::new(key_bytes).unwrap();
                let op = Op::Settle { receipt, actual: 0 };
                let settle = QuotaCheck {
                    key,
                    limit: &identified,
                    op,
                };
                assert!(store.decide_array([settle]).is_ok());
            }
            continue;
        }
        let cost = 1 + rng.below(3) * unit;
        let checks = [check(Op::Spend(cost))];
        let mut cached = [None];
        let local = cache.lookup(&checks, now, 1, &mut cached);
        if let Some(CachedDenial { retry_after, .. }) = local {
            errors.hits += 1;
            let (_, [reply]) = store.decide_array([check(Op::Peek(cost))]).unwrap();
            match reply.outcome {
                Outcome::Deny {
                    retry_after: true_wait,
                } => {
                    errors.short_waits += usize::from(retry_after < true_wait);
                }
                Outcome::Never => {}
                _ => {
                    errors.false_denials += 1;
                    let late = now.since(sent_at[index]) > Nanos::SECOND;
                    errors.late_false_denials += usize::from(late);
                }
            }
            continue;
        }
        let mut replies = [StoreReply::EMPTY];
        sent_at[index] = now;
        let verdict = store.decide(&checks, &mut replies).unwrap();
        if verdict.is_admitted() {
            receipts.push((KEYS[index], replies[0].receipt));
        }
        if cache_use.records_admissions || !verdict.is_admitted() {
            cache.record(&checks, &replies, &[cache_use.keep], now, 1);
        }
    }
    errors
}

/// The sum over many traces with every algorithm.
fn run_all(cache_use: CacheUse) -> ErrorCounts {
    let mut sum = ErrorCounts::default();
    for limit in limits() {
        for seed in 0..12 {
            let one = run(limit, cache_use, seed);
            sum.false_denials += one.false_denials;
            sum.late_false_denials += one.late_false_denials;
            sum.short_waits += one.short_waits;
            sum.hits += one.hits;
        }
    }
    sum
}

#[test]
fn a_cached_denial_is_never_wrong_and_its_retry_after_never_too_short() {
    let errors = run_all(CORRECT_USE);
    assert!(errors.hits > 2_000, "{errors:?}");
    assert_eq!(
        (errors.false_denials, errors.short_waits),
        (0, 0),
        "{errors:?}"
    );
}

#[test]
fn with_refunds_a_cached_denial_is_wrong_for_at_most_a_second() {
    let errors = run_all(CacheUse {
        keep: DenialCaching::OneSecond,
        refunds: true,
        ..CORRECT_USE
    });
    assert!(errors.hits > 300, "{errors:?}");
    assert!(errors.false_denials > 0, "the exception occurs: {errors:?}");
    assert_eq!(
        (errors.late_false_denials, errors.short_waits),
        (0, 0),
        "{errors:?}"
    );
}

#[test]
fn control_a_long_ttl_despite_refunds_is_caught() {
    let errors = run_all(CacheUse {
        refunds: true,
        ..CORRECT_USE
    });
    assert!(errors.late_false_denials > 0, "{errors:?}");
}

#[test]
fn control_a_cache_that_ignores_admissions_is_caught() {
    let errors = run_all(CacheUse {
        records_admissions: false,
        ..CORRECT_USE
    });
    assert!(errors.short_waits > 0, "{errors:?}");
}

#[test]
fn concurrency_limits_and_penalties_are_not_cached() {
    let errors = run_all(CacheUse {
        keep: DenialCaching::Never,
        ..CORRECT_USE
    });
    assert_eq!(errors, ErrorCounts::default());
}

/// A store, two limits (one per second, one per hour) and a batch with both.
struct TwoLimits {
    store: MemoryStore<ManualClock>,
    limits: [IdentifiedLimit; 2],
    cache: DenialCache,
}

impl TwoLimits {
    fn new(room: usize) -> Self {
        let identified = |number, period| IdentifiedLimit {
            id: LimitId(NonZeroU16::new(number).unwrap()),
            limit: TokenBucket::builder(Rate::new(1, period))
                .build()
                .unwrap()
                .into(),
        };
        Self {
            store: MemoryStore::with_clock(100, ManualClock::at(START)).unwrap(),
            limits: [identified(1, Nanos::SECOND), identified(2, Nanos::HOUR)],
            cache: DenialCache::for_keys(room),
        }
    }

    fn checks(&self) -> [QuotaCheck<'_>; 2] {
        self.limits.each_ref().map(|identified| QuotaCheck {
            key: StoreKey::new(b"alice").unwrap(),
            limit: identified,
            op: Op::Spend(1),
        })
    }

    fn spend(&self) {
        let mut replies = [StoreReply::EMPTY; 2];
        let decided = self.store.decide(&self.checks(), &mut replies);
        assert!(decided.is_ok());
        let keep = [DenialCaching::UntilRetryAfter; 2];
        self.cache.record(&self.checks(), &replies, &keep, START, 1);
    }

    fn lookup(&self, generation: u64) -> Option<CachedDenial> {
        let mut cached = [None; 2];
        self.cache
            .lookup(&self.checks(), START, generation, &mut cached)
    }
}

#[test]
fn every_denying_limit_is_cached_and_the_longest_wait_binds() {
    let batch = TwoLimits::new(64);
    batch.spend();
    batch.spend();
    let expected = CachedDenial {
        binding: 1,
        retry_after: Nanos::HOUR,
    };
    assert_eq!(batch.lookup(1), Some(expected));
    assert_eq!(
        batch.lookup(2),
        None,
        "another version has no cached denial"
    );
}

#[test]
fn without_the_binding_limits_denial_the_batch_is_a_cache_miss() {
    let batch = TwoLimits::new(64);
    batch.spend();
    batch.spend();
    let key = StoreKey::new(b"alice").unwrap();
    batch.cache.remove(&key, batch.limits[1].id, 1);
    assert_eq!(batch.lookup(1), None);
    let mut cached = [None];
    let [soon, _] = batch.checks();
    let single = batch.cache.lookup(&[soon], START, 1, &mut cached);
    assert_eq!(single.map(|denied| denied.retry_after), Some(Nanos::SECOND));
}

#[test]
fn remove_and_clear_take_effect_at_once() {
    let batch = TwoLimits::new(64);
    batch.spend();
    batch.cache.clear();
    assert_eq!(batch.lookup(1), None);
}

#[test]
fn the_table_never_grows() {
    let cache = DenialCache::for_keys(8);
    let batch = TwoLimits::new(8);
    let mut replies = [StoreReply::EMPTY; 2];
    assert!(batch.store.decide(&batch.checks(), &mut replies).is_ok());
    let names: Vec<String> = (0..1_000).map(|n| n.to_string()).collect();
    let mut cached_keys = 0;
    for name in &names {
        let key = StoreKey::new(name.as_bytes()).unwrap();
        let checks = [QuotaCheck {
            key,
            ..batch.checks()[0]
        }];
        cache.record(
            &checks,
            &replies[..1],
            &[DenialCaching::UntilRetryAfter],
            START,
            1,
        );
    }
    for name in &names {
        let key = StoreKey::new(name.as_bytes()).unwrap();
        let checks = [QuotaCheck {
            key,
            ..batch.checks()[0]
        }];
        cached_keys += usize::from(cache.lookup(&checks, START, 1, &mut [None]).is_some());
    }
    assert!((1..=8).contains(&cached_keys), "{cached_keys}");
}

/// Tiers of a limit, and limits with one `bucket`, have different quotas on one state. A client that was denied for an hour under a small
/// quota was also denied after it had bought a larger one.
#[test]
fn i03_a_denial_by_one_quota_says_nothing_about_another_on_the_same_state() {
    let bucket = |burst| TokenBucket::builder(Rate::per_hour(1)).burst(burst).build();
    let id = LimitId(NonZeroU16::MIN);
    let [free, paid] = [1, 10].map(|burst| IdentifiedLimit {
        id,
        limit: bucket(burst).unwrap().into(),
    });
    let clock = Arc::new(ManualClock::at(START));
    let store = MemoryStore::with_clock(1_000, Arc::clone(&clock)).unwrap();
    let cache = DenialCache::for_keys(100);
    let check = |limit| QuotaCheck {
        key: StoreKey::new(KEYS[0]).unwrap(),
        limit,
        op: Op::Spend(1),
    };
    let mut replies = [StoreReply::EMPTY];
    for _ in 0..2 {
        let checks = [check(&free)];
        let _denied_at_last = store.decide(&checks, &mut replies).unwrap();
        let keep = [DenialCaching::UntilRetryAfter];
        cache.record(&checks, &replies, &keep, START, 1);
    }
    assert!(!replies[0].outcome.is_admitted());
    let is_cached = |limit| {
        cache
            .lookup(&[check(limit)], START, 1, &mut [None])
            .is_some()
    };
    assert!(is_cached(&free));
    assert!(!is_cached(&paid));
    assert!(
        store
            .decide(&[check(&paid)], &mut replies)
            .unwrap()
            .is_admitted()
    );
}
