//! What a policy adds to its store: the policy engine with one limit and with four, beside the same checks asked of the store
//! directly.
//!
//! Must not know: other limiters, how anything is decided.

use std::fmt::Write as _;
use std::hint::black_box;
use std::num::NonZeroU16;

use tollgate_engine::Engine;
use tollgate_policy::attributes::{Attribute, Attributes};
use tollgate_policy::rules::Rules;
use tollgate_policy::source::SourceFormat;
use tollgate_store::{IdentifiedLimit, LimitId, MemoryStore, Op, QuotaCheck, StoreKey};

use crate::clock::thread_time;
use crate::contenders::{Quota, bucket};
use crate::keys::{KEY_LEN, Pattern, Requests};
use crate::options::Options;
use crate::stats::{Spread, Table};

/// States of the store: room for four limits of every key.
const STATES: usize = 1_000_000;

struct KeyedRequest<'a>(&'a [u8; KEY_LEN]);

impl Attributes for KeyedRequest<'_> {
    fn get(&self, attribute: &Attribute) -> Option<&[u8]> {
        matches!(attribute, Attribute::Header(_)).then_some(self.0)
    }
}

pub(crate) fn study(options: &Options) -> Result<Table, String> {
    let head = ["policy", "policy engine, CPU ns", "its store alone, CPU ns"];
    let mut table = Table::new("A policy on the memory store, one thread", &head);
    for pattern in [Pattern::Hot, Pattern::Zipf(100_000)] {
        eprintln!("… engine, {}", pattern.name());
        row::<1>(&mut table, pattern, options)?;
        row::<4>(&mut table, pattern, options)?;
    }
    Ok(table)
}

fn row<const N: usize>(
    table: &mut Table,
    pattern: Pattern,
    options: &Options,
) -> Result<(), String> {
    let engine = engine(N)?;
    let store = MemoryStore::for_keys(STATES).map_err(|error| error.to_string())?;
    let everybody = pattern.everybody();
    let requests = pattern.requests(options.requests, 1);
    let (mut with_policy, mut without) = (Vec::new(), Vec::new());
    // Every state is there before the clock starts.
    engine_lap(&engine, &everybody)?;
    store_lap::<N>(&store, &everybody)?;
    for _ in 0..options.rounds {
        with_policy.push(engine_lap(&engine, &requests)?);
        without.push(store_lap::<N>(&store, &requests)?);
    }
    let limits = if N == 1 { "1 limit" } else { "4 limits" };
    table.row(vec![
        format!("{limits}, {}", pattern.name()),
        Spread::of(with_policy.into_iter()).show(1),
        Spread::of(without.into_iter()).show(1),
    ]);
    Ok(())
}

/// An engine with so many limits by the same header.
fn engine(limits: usize) -> Result<Engine<MemoryStore>, String> {
    let mut text = "limits:\n".to_owned();
    for n in 0..limits {
        writeln!(
            text,
            "  - {{ name: limit-{n}, key: header.x-api-key, rate: 1000000000/h }}"
        )
        .map_err(|error| error.to_string())?;
    }
    let policy = tollgate_policy::load(&text, "bench.yaml", SourceFormat::Yaml)
        .map_err(|error| error.to_string())?;
    let rules = Rules::compile(&policy, [7; 16]).map_err(|problems| format!("{problems:?}"))?;
    let store = MemoryStore::for_keys(STATES).map_err(|error| error.to_string())?;
    Engine::new(rules, store).map_err(|error| error.to_string())
}

fn engine_lap(engine: &Engine<MemoryStore>, requests: &Requests) -> Result<f64, String> {
    lap(requests, |key| {
        Ok(engine.decide(black_box(&KeyedRequest(key))).is_admitted())
    })
}

fn store_lap<const N: usize>(store: &MemoryStore, requests: &Requests) -> Result<f64, String> {
    let limits: [IdentifiedLimit; N] = std::array::from_fn(|index| IdentifiedLimit {
        id: LimitId(NonZeroU16::MIN.saturating_add(u16::try_from(index).unwrap_or(0))),
        limit: bucket(Quota::GENEROUS).into(),
    });
    lap(requests, |key| {
        let key = StoreKey::new(key).map_err(|error| error.to_string())?;
        let checks: [QuotaCheck<'_>; N] = std::array::from_fn(|index| QuotaCheck {
            key,
            limit: &limits[index],
            op: Op::Spend(1),
        });
        let (outcome, replies) = store
            .decide_array(black_box(checks))
            .map_err(|error| error.to_string())?;
        black_box(replies);
        Ok(outcome.is_admitted())
    })
}

/// Nanoseconds of processor time for each request. All must be admitted.
fn lap(
    requests: &Requests,
    decide: impl Fn(&[u8; KEY_LEN]) -> Result<bool, String>,
) -> Result<f64, String> {
    let times = u32::try_from(requests.len()).map_err(|error| error.to_string())?;
    let before = thread_time();
    for key in &requests.flat {
        if !decide(key)? {
            return Err("a generous quota denied".to_owned());
        }
    }
    Ok((thread_time() - before).as_secs_f64() * 1e9 / f64::from(times))
}
