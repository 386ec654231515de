//! A flood of distinct keys at a store that is far too small for them: memory, what is denied, what is forgiven.
//!
//! `cargo xtask bench flood` throws a hundred million keys at a table for one million; `--keys` and `--room` choose others,
//! `--smoke` is a quick one. It judges itself: memory must not grow, denied keys must stay denied, and what the store says
//! it forgave must be what is missing. It prints how long it took and asserts nothing about that.
#![allow(
    clippy::disallowed_types,
    reason = "it measures the machine's time; nothing decides by it"
)]

use std::num::NonZeroU16;
use std::process::ExitCode;
use std::time::Instant;

use tollgate_core::{Rate, Timestamp, TokenBucket};
use tollgate_store::{IdentifiedLimit, LimitId, ManualClock, MemoryStore, StoreKey};

/// Keys that are denied before the flood comes.
const GUARDED: u64 = 10_000;
/// Growth beyond the table that is not the flood's: what the program itself touches while it runs.
const SLACK: usize = 4 << 20;

type Failure = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    match options(std::env::args().skip(1)).and_then(|(keys, room)| run(keys, room)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("flood: {why}");
            ExitCode::FAILURE
        }
    }
}

fn options(mut words: impl Iterator<Item = String>) -> Result<(u64, usize), Failure> {
    let (mut keys, mut room) = (100_000_000, 1_000_000);
    while let Some(word) = words.next() {
        let mut number = || words.next().ok_or(format!("{word} needs a number"));
        match word.as_str() {
            "--keys" => keys = number()?.parse()?,
            "--room" => room = number()?.parse()?,
            "--smoke" => (keys, room) = (2_000_000, 20_000),
            _ => return Err(format!("--keys, --room and --smoke are known, not `{word}`").into()),
        }
    }
    Ok((keys, room))
}

/// Bytes of this process that are in memory.
fn resident() -> Result<usize, Failure> {
    let statm = std::fs::read_to_string("/proc/self/statm")?;
    let pages = statm.split(' ').nth(1).ok_or("statm has one field")?;
    Ok(pages.parse::<usize>()?.saturating_mul(4_096))
}

fn run(keys: u64, room: usize) -> Result<(), Failure> {
    let clock = ManualClock::at(Timestamp::from_secs(1_700_000_000));
    let store = MemoryStore::with_clock(room, clock)?;
    let quota = TokenBucket::builder(Rate::per_minute(1))
        .burst(10)
        .build()?;
    let [guarded, passing] = [NonZeroU16::MIN, NonZeroU16::MAX].map(LimitId);
    for id in [guarded, passing] {
        let limit = quota.into();
        store.add_limit(&IdentifiedLimit { id, limit });
    }
    let spend = |id, n: u64, cost| -> Result<bool, Failure> {
        let bytes = n.to_le_bytes();
        let key = StoreKey::new(&bytes)?;
        Ok(store.spend(&key, id, &quota, cost).is_admitted())
    };
    for n in 0..GUARDED {
        if !spend(guarded, n, 10)? {
            return Err("a fresh key was denied".into());
        }
    }
    let (before, began) = (resident()?, Instant::now());
    for n in 0..keys {
        spend(passing, n, 1)?;
    }
    let took = began.elapsed();
    let (usage, grown) = (store.usage(), resident()?.saturating_sub(before));

    let mut let_in = 0_u64;
    for n in 0..GUARDED {
        let_in = let_in.saturating_add(u64::from(spend(guarded, n, 1)?));
    }
    let limit = IdentifiedLimit {
        id: passing,
        limit: quota.into(),
    };
    let mut there = 0_u64;
    for n in 0..keys {
        let bytes = n.to_le_bytes();
        there = there.saturating_add(u64::from(
            store.inspect(&StoreKey::new(&bytes)?, &limit).is_some(),
        ));
    }
    let missing = keys
        .saturating_sub(there)
        .saturating_sub(usage.overflow_decisions);
    let per_key = took.as_nanos() / u128::from(keys.max(1));
    println!("keys                {keys}");
    println!("room for            {room}");
    println!(
        "time                {:.1} s, {per_key} ns a key",
        took.as_secs_f64()
    );
    println!("table               {} bytes", usage.table_bytes);
    println!("memory grew by      {grown} bytes");
    println!("denied, then let in {let_in} of {GUARDED}");
    println!("still there         {there}");
    println!("overflowed          {}", usage.overflow_decisions);
    println!("forgiven            {}", usage.evictions);
    println!("found missing       {missing}");
    if grown > usage.table_bytes.saturating_add(SLACK) {
        return Err("memory grew by more than the table".into());
    }
    if let_in > 0 {
        return Err("keys that were being denied were let in".into());
    }
    if usage.evictions != missing {
        return Err("what was forgiven is not what is missing".into());
    }
    Ok(())
}
