//! The cache beside a store that is always asked: it never denies what the store would admit, and never sends anybody
//! back too early; and the controls that show that both would be noticed.

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

/// What was wrong with the cache's answers in a trace.
#[derive(Debug, Default, PartialEq, Eq)]
struct ErrorCounts {
    denied_falsely: usize,
    denied_falsely_beyond_a_second: usize,
    too_early: usize,
    answered: usize,
}

/// What the cache is told, and how.
#[derive(Clone, Copy)]
struct CacheUse {
    keep: DenialCaching,
    refunds: bool,
    tells_of_admissions: bool,
}

const GOOD: CacheUse = CacheUse {
    keep: DenialCaching::UntilRetryAfter,
    refunds: false,
    tells_of_admissions: true,
};

/// Runs a random trace over one limit and three keys, asking the cache first and the store about the same in any case.
fn run(limit: Limit, manners: CacheUse, seed: u64) -> ErrorCounts {
    let clock = Arc::new(ManualClock::at(START));
    let store = MemoryStore::with_clock(1_000, Arc::clone(&clock)).unwrap();
    let ruled = IdentifiedLimit {
        id: LimitId(NonZeroU16::MIN),
        limit,
    };
    let cache = DenialCache::for_keys(64);
    let mut dice = SeededRng::new(seed);
    let mut wrong = ErrorCounts::default();
    let mut receipts: Vec<(&[u8], Receipt)> = Vec::new();
    let mut asked_at = [START; 3];
    let unit = if dice.below(2) == 0 { 1 } else { 700 };
    for _ in 0..400 {
        clock.advance(Nanos::from_millis(dice.below(900)));
        let now = store.now();
        let index = usize::try_from(dice.below(3)).unwrap();
        let key = StoreKey::new(KEYS[index]).unwrap();
        let check = |op| QuotaCheck {
            key,
            limit: &ruled,
            op,
        };
        if manners.refunds && dice.below(4) == 0 {
            if let Some((who, receipt)) = receipts.pop() {
                let key = StoreKey::new(who).unwrap();
                let op = Op::Settle { receipt, actual: 0 };
                let settle = QuotaCheck {
                    key,
                    limit: &ruled,
                    op,
                };
                assert!(store.decide_array([settle]).is_ok());
            }
            continue;
        }
        let cost = 1 + dice.below(3) * unit;
        let checks = [check(Op::Spend(cost))];
        let mut known = [None];
        let local = cache.lookup(&checks, now, 1, &mut known);
        if let Some(CachedDenial { retry_after, .. }) = local {
            wrong.answered += 1;
            let (_, [truth]) = store.decide_array([check(Op::Peek(cost))]).unwrap();
            match truth.outcome {
                Outcome::Deny {
                    retry_after: true_wait,
                } => {
                    wrong.too_early += usize::from(retry_after < true_wait);
                }
                Outcome::Never => {}
                _ => {
                    wrong.denied_falsely += 1;
                    let late = now.since(asked_at[index]) > Nanos::SECOND;
                    wrong.denied_falsely_beyond_a_second += usize::from(late);
                }
            }
            continue;
        }
        let mut answers = [StoreReply::EMPTY];
        asked_at[index] = now;
        let verdict = store.decide(&checks, &mut answers).unwrap();
        if verdict.is_admitted() {
            receipts.push((KEYS[index], answers[0].receipt));
        }
        if manners.tells_of_admissions || !verdict.is_admitted() {
            cache.record(&checks, &answers, &[manners.keep], now, 1);
        }
    }
    wrong
}

/// The sum over many traces of every kind of limit.
fn run_all(manners: CacheUse) -> ErrorCounts {
    let mut sum = ErrorCounts::default();
    for limit in limits() {
        for seed in 0..12 {
            let one = run(limit, manners, seed);
            sum.denied_falsely += one.denied_falsely;
            sum.denied_falsely_beyond_a_second += one.denied_falsely_beyond_a_second;
            sum.too_early += one.too_early;
            sum.answered += one.answered;
        }
    }
    sum
}

#[test]
fn what_the_cache_denies_the_store_denies_for_no_longer() {
    let wrong = run_all(GOOD);
    assert!(wrong.answered > 2_000, "{wrong:?}");
    assert_eq!((wrong.denied_falsely, wrong.too_early), (0, 0), "{wrong:?}");
}

#[test]
fn where_charges_are_given_back_a_denial_is_false_for_a_second_at_most() {
    let wrong = run_all(CacheUse {
        keep: DenialCaching::OneSecond,
        refunds: true,
        ..GOOD
    });
    assert!(wrong.answered > 300, "{wrong:?}");
    assert!(wrong.denied_falsely > 0, "the exception occurs: {wrong:?}");
    assert_eq!(
        (wrong.denied_falsely_beyond_a_second, wrong.too_early),
        (0, 0),
        "{wrong:?}"
    );
}

#[test]
fn control_a_cache_that_believes_for_long_although_charges_are_given_back_is_noticed() {
    let wrong = run_all(CacheUse {
        refunds: true,
        ..GOOD
    });
    assert!(wrong.denied_falsely_beyond_a_second > 0, "{wrong:?}");
}

#[test]
fn control_a_cache_that_does_not_hear_of_admissions_is_noticed() {
    let wrong = run_all(CacheUse {
        tells_of_admissions: false,
        ..GOOD
    });
    assert!(wrong.too_early > 0, "{wrong:?}");
}

#[test]
fn what_may_not_be_remembered_is_not() {
    let wrong = run_all(CacheUse {
        keep: DenialCaching::Never,
        ..GOOD
    });
    assert_eq!(wrong, ErrorCounts::default());
}

/// A store, two limits (one a second, one an hour) and a batch on both.
struct TwoLimits {
    store: MemoryStore<ManualClock>,
    limits: [IdentifiedLimit; 2],
    cache: DenialCache,
}

impl TwoLimits {
    fn new(room: usize) -> Self {
        let ruled = |number, period| IdentifiedLimit {
            id: LimitId(NonZeroU16::new(number).unwrap()),
            limit: TokenBucket::builder(Rate::new(1, period))
                .build()
                .unwrap()
                .into(),
        };
        Self {
            store: MemoryStore::with_clock(100, ManualClock::at(START)).unwrap(),
            limits: [ruled(1, Nanos::SECOND), ruled(2, Nanos::HOUR)],
            cache: DenialCache::for_keys(room),
        }
    }

    fn checks(&self) -> [QuotaCheck<'_>; 2] {
        self.limits.each_ref().map(|ruled| QuotaCheck {
            key: StoreKey::new(b"alice").unwrap(),
            limit: ruled,
            op: Op::Spend(1),
        })
    }

    fn spend(&self) {
        let mut answers = [StoreReply::EMPTY; 2];
        let decided = self.store.decide(&self.checks(), &mut answers);
        assert!(decided.is_ok());
        let keep = [DenialCaching::UntilRetryAfter; 2];
        self.cache.record(&self.checks(), &answers, &keep, START, 1);
    }

    fn ask(&self, generation: u64) -> Option<CachedDenial> {
        let mut known = [None; 2];
        self.cache
            .lookup(&self.checks(), START, generation, &mut known)
    }
}

#[test]
fn every_denying_limit_is_remembered_and_the_longest_is_the_answer() {
    let two = TwoLimits::new(64);
    two.spend();
    two.spend();
    let expected = CachedDenial {
        binding: 1,
        retry_after: Nanos::HOUR,
    };
    assert_eq!(two.ask(1), Some(expected));
    assert_eq!(two.ask(2), None, "another policy knows nothing of it");
}

#[test]
fn when_the_limit_that_bound_is_forgotten_the_others_do_not_answer_for_it() {
    let two = TwoLimits::new(64);
    two.spend();
    two.spend();
    let key = StoreKey::new(b"alice").unwrap();
    two.cache.remove(&key, two.limits[1].id, 1);
    assert_eq!(two.ask(1), None);
    let mut known = [None];
    let [soon, _] = two.checks();
    let alone = two.cache.lookup(&[soon], START, 1, &mut known);
    assert_eq!(alone.map(|denied| denied.retry_after), Some(Nanos::SECOND));
}

#[test]
fn a_reset_or_a_clearing_is_heard_at_once() {
    let two = TwoLimits::new(64);
    two.spend();
    two.cache.clear();
    assert_eq!(two.ask(1), None);
}

#[test]
fn the_table_stays_as_large_as_it_was_made() {
    let cache = DenialCache::for_keys(8);
    let two = TwoLimits::new(8);
    let mut answers = [StoreReply::EMPTY; 2];
    assert!(two.store.decide(&two.checks(), &mut answers).is_ok());
    let names: Vec<String> = (0..1_000).map(|n| n.to_string()).collect();
    let mut remembered = 0;
    for name in &names {
        let key = StoreKey::new(name.as_bytes()).unwrap();
        let checks = [QuotaCheck {
            key,
            ..two.checks()[0]
        }];
        cache.record(
            &checks,
            &answers[..1],
            &[DenialCaching::UntilRetryAfter],
            START,
            1,
        );
    }
    for name in &names {
        let key = StoreKey::new(name.as_bytes()).unwrap();
        let checks = [QuotaCheck {
            key,
            ..two.checks()[0]
        }];
        remembered += usize::from(cache.lookup(&checks, START, 1, &mut [None]).is_some());
    }
    assert!((1..=8).contains(&remembered), "{remembered}");
}
