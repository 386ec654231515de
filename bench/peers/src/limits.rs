//! What each further limit adds to one check: `Memory::ask` with one, two, four and eight token buckets on hot keys.
//!
//! Must not know: other limiters; none of the peers decides on several limits at once.

use std::hint::black_box;
use std::num::NonZeroU16;

use tollgate_store::{Check, Key, LimitId, Memory, Op, Ruled};

use crate::clock::thread_time;
use crate::contenders::{Quota, bucket};
use crate::options::Options;
use crate::stats::{Spread, Table};

pub(crate) fn study(options: &Options) -> Result<Table, String> {
    let store = Memory::for_keys(100_000).map_err(|error| error.to_string())?;
    let rules: [Ruled; 8] = std::array::from_fn(|index| Ruled {
        id: LimitId(NonZeroU16::MIN.saturating_add(u16::try_from(index).unwrap_or(0))),
        limit: bucket(Quota::GENEROUS).into(),
    });
    rules.iter().for_each(|ruled| store.learn(ruled));
    let (mut one, mut two, mut four, mut eight) = (vec![], vec![], vec![], vec![]);
    for _ in 0..=options.rounds {
        one.push(lap::<1>(&store, &rules, options.requests)?);
        two.push(lap::<2>(&store, &rules, options.requests)?);
        four.push(lap::<4>(&store, &rules, options.requests)?);
        eight.push(lap::<8>(&store, &rules, options.requests)?);
    }
    let head = [
        "limits in one check",
        "CPU ns per check",
        "ns for each further limit",
    ];
    let mut table = Table::new("Several hot limits in one check", &head);
    for (count, laps) in [(1, &one), (2, &two), (4, &four), (8, &eight)] {
        // The first round warms up.
        let laps = laps.iter().zip(&one).skip(1);
        let further = laps
            .clone()
            .map(|(lap, one)| (lap - one) / f64::from((count - 1).max(1)));
        let further = if count == 1 {
            String::new()
        } else {
            Spread::of(further).show(1)
        };
        table.row(vec![
            count.to_string(),
            Spread::of(laps.map(|(lap, _)| *lap)).show(1),
            further,
        ]);
    }
    Ok(table)
}

/// Nanoseconds of processor time for each of so many checks on N limits.
fn lap<const N: usize>(store: &Memory, rules: &[Ruled; 8], times: usize) -> Result<f64, String> {
    let key = Key::of(b"user00000042").map_err(|error| error.to_string())?;
    let times = u32::try_from(times).map_err(|error| error.to_string())?;
    let before = thread_time();
    for _ in 0..times {
        let rules = black_box(rules);
        let checks: [Check<'_>; N] = std::array::from_fn(|index| Check {
            key,
            ruled: &rules[index],
            op: Op::Spend(1),
        });
        let (verdict, answers) = store.ask(checks).map_err(|error| error.to_string())?;
        black_box(answers);
        if !verdict.is_admitted() {
            return Err("a generous quota denied".to_owned());
        }
    }
    Ok((thread_time() - before).as_secs_f64() * 1e9 / f64::from(times))
}
