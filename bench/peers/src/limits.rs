//! What each further limit adds to one check: one, two, four and eight token buckets on a hot key, answered in full
//! (`MemoryStore::ask`) and by the verdict alone (`MemoryStore::spend_all`).
//!
//! Must not know: other limiters; none of the peers decides on several limits at once.

use std::hint::black_box;
use std::num::NonZeroU16;

use tollgate_core::TokenBucket;
use tollgate_store::{IdentifiedLimit, LimitId, MemoryStore, Op, QuotaCheck, StoreKey};

use crate::clock::thread_time;
use crate::contenders::{Quota, bucket};
use crate::options::Options;
use crate::stats::{Spread, Table};

pub(crate) fn study(options: &Options) -> Result<Table, String> {
    let store = MemoryStore::for_keys(100_000).map_err(|error| error.to_string())?;
    let rules: [IdentifiedLimit; 8] = std::array::from_fn(|index| IdentifiedLimit {
        id: LimitId(NonZeroU16::MIN.saturating_add(u16::try_from(index).unwrap_or(0))),
        limit: bucket(Quota::GENEROUS).into(),
    });
    rules.iter().for_each(|ruled| store.add_limit(ruled));
    let buckets = rules.map(|ruled| (ruled.id, bucket(Quota::GENEROUS)));
    let mut full: [Vec<f64>; 4] = Default::default();
    let mut verdict: [Vec<f64>; 4] = Default::default();
    for _ in 0..=options.rounds {
        full[0].push(lap::<1>(&store, &rules, options.requests)?);
        full[1].push(lap::<2>(&store, &rules, options.requests)?);
        full[2].push(lap::<4>(&store, &rules, options.requests)?);
        full[3].push(lap::<8>(&store, &rules, options.requests)?);
        for (laps, count) in verdict.iter_mut().zip([1, 2, 4, 8]) {
            laps.push(short_lap(&store, &buckets[..count], options.requests)?);
        }
    }
    let head = [
        "limits in one check",
        "CPU ns per check",
        "ns for each further limit",
    ];
    let mut table = Table::new("Several hot limits in one check", &head);
    for (name, laps) in [("spend_all", &verdict), ("ask", &full)] {
        rows(&mut table, name, laps);
    }
    Ok(table)
}

fn rows(table: &mut Table, name: &str, all: &[Vec<f64>; 4]) {
    let [one, ..] = all;
    for (count, laps) in [1, 2, 4, 8].into_iter().zip(all) {
        // The first round warms up.
        let laps = laps.iter().zip(one).skip(1);
        let further = laps
            .clone()
            .map(|(lap, one)| (lap - one) / f64::from((count - 1).max(1)));
        let further = if count == 1 {
            String::new()
        } else {
            Spread::of(further).show(1)
        };
        table.row(vec![
            format!("{count}, {name}"),
            Spread::of(laps.map(|(lap, _)| *lap)).show(1),
            further,
        ]);
    }
}

/// Nanoseconds of processor time for each of so many checks of which only the verdict is asked.
fn short_lap(
    store: &MemoryStore,
    buckets: &[(LimitId, TokenBucket)],
    times: usize,
) -> Result<f64, String> {
    let key = StoreKey::new(b"user00000042").map_err(|error| error.to_string())?;
    let times = u32::try_from(times).map_err(|error| error.to_string())?;
    let before = thread_time();
    for _ in 0..times {
        let verdict = store.spend_all(&key, black_box(buckets), 1);
        if !verdict.map_err(|error| error.to_string())?.is_admitted() {
            return Err("a generous quota denied".to_owned());
        }
    }
    Ok((thread_time() - before).as_secs_f64() * 1e9 / f64::from(times))
}

/// Nanoseconds of processor time for each of so many checks on N limits.
fn lap<const N: usize>(
    store: &MemoryStore,
    rules: &[IdentifiedLimit; 8],
    times: usize,
) -> Result<f64, String> {
    let key = StoreKey::new(b"user00000042").map_err(|error| error.to_string())?;
    let times = u32::try_from(times).map_err(|error| error.to_string())?;
    let before = thread_time();
    for _ in 0..times {
        let rules = black_box(rules);
        let checks: [QuotaCheck<'_>; N] = std::array::from_fn(|index| QuotaCheck {
            key,
            limit: &rules[index],
            op: Op::Spend(1),
        });
        let (verdict, answers) = store
            .decide_array(checks)
            .map_err(|error| error.to_string())?;
        black_box(answers);
        if !verdict.is_admitted() {
            return Err("a generous quota denied".to_owned());
        }
    }
    Ok((thread_time() - before).as_secs_f64() * 1e9 / f64::from(times))
}
