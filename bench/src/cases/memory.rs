//! The memory store on keys that it knows: one bucket by the short path, and batches with full answers.
//!
//! The clock stands still, so that reading the machine's is not counted. The store's secret differs from run to run; a
//! single key of a table always gets its favourite slot, so only the order in which bits are taken varies.

use std::hint::black_box;
use std::num::NonZeroU16;

use tollgate_core::limit::Limit;
use tollgate_core::{FixedWindow, Nanos, Rate, SlidingCounter, TokenBucket, Window};
use tollgate_store::{
    IdentifiedLimit, LimitId, ManualClock, MemoryStore, Op, QuotaCheck, StoreKey,
};

use super::{CaseRun, NOW};
use crate::measure::measured_section;

/// Far more than the keys that are used, so that no two share a group.
const ROOM: usize = 100_000;

/// One an hour, and so many at once.
fn bucket(burst: u64) -> Result<TokenBucket, Box<dyn std::error::Error>> {
    Ok(TokenBucket::builder(Rate::new(1, Nanos::HOUR))
        .burst(burst)
        .build()?)
}

fn limit(number: u16, limit: impl Into<Limit>) -> IdentifiedLimit {
    IdentifiedLimit {
        id: LimitId(NonZeroU16::MIN.saturating_add(number)),
        limit: limit.into(),
    }
}

/// Allowed throughout with a large burst; with a burst of one, denied after the first, which is not counted.
pub(super) fn spend(times: u64, burst: u64) -> CaseRun {
    let store = MemoryStore::with_clock(ROOM, ManualClock::at(NOW))?;
    let quota = TokenBucket::builder(Rate::per_second(1))
        .burst(burst)
        .build()?;
    let known = limit(0, quota);
    store.add_limit(&known);
    let key = StoreKey::new(b"user00000042")?;
    store.spend(&key, known.id, &quota, 1);
    measured_section(times, || {
        let (key, quota, cost) = black_box((&key, &quota, 1));
        black_box(&store).spend(key, known.id, quota, cost)
    });
    Ok(())
}

pub(super) fn ask_one(times: u64) -> CaseRun {
    ask(times, [limit(0, bucket(1_000_000)?)])
}

pub(super) fn ask_three_buckets(times: u64) -> CaseRun {
    let quota = bucket(1_000_000)?;
    ask(times, [limit(0, quota), limit(1, quota), limit(2, quota)])
}

pub(super) fn ask_eight_buckets(times: u64) -> CaseRun {
    let quota = bucket(1_000_000)?;
    ask(
        times,
        std::array::from_fn::<_, 8, _>(|n| limit(u16::try_from(n).unwrap_or(0), quota)),
    )
}

pub(super) fn ask_three_kinds(times: u64) -> CaseRun {
    let window = FixedWindow::builder(1_000_000, Window::Epoch(Nanos::DAY)).build()?;
    let counter = SlidingCounter::builder(1_000_000, Nanos::MINUTE).build()?;
    let bucket = bucket(1_000_000)?;
    ask(
        times,
        [limit(0, bucket), limit(1, window), limit(2, counter)],
    )
}

/// Eight buckets of one key, of which only the verdict is asked.
pub(super) fn spend_eight(times: u64) -> CaseRun {
    let store = MemoryStore::with_clock(ROOM, ManualClock::at(NOW))?;
    let quota = bucket(1_000_000)?;
    let buckets = std::array::from_fn::<_, 8, _>(|n| {
        let limit = limit(u16::try_from(n).unwrap_or(0), quota);
        store.add_limit(&limit);
        (limit.id, quota)
    });
    let key = StoreKey::new(b"user00000042")?;
    if !store.spend_all(&key, &buckets, 1)?.is_admitted() {
        return Err("the first request of a key was denied".into());
    }
    measured_section(times, || {
        let (key, buckets, cost) = black_box((&key, &buckets, 1));
        black_box(&store).spend_all(key, buckets, cost)
    });
    Ok(())
}

fn ask<const N: usize>(times: u64, rules: [IdentifiedLimit; N]) -> CaseRun {
    let store = MemoryStore::with_clock(ROOM, ManualClock::at(NOW))?;
    rules.iter().for_each(|limit| store.add_limit(limit));
    let key = StoreKey::new(b"user00000042")?;
    let checks = rules.each_ref().map(|limit| QuotaCheck {
        key,
        limit,
        op: Op::Spend(1),
    });
    let (verdict, _) = store.decide_array(checks)?;
    if !verdict.is_admitted() {
        return Err("the first request of a key was denied".into());
    }
    measured_section(times, || black_box(&store).decide_array(black_box(checks)));
    Ok(())
}
