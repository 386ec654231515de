//! What a key takes of the server's memory, its time to live and its share of the server's tables included.
//!
//! Must not know: how calls are made, how counters are read.

use tollgate_core::Nanos;

use crate::Failure;
use crate::contender::{Bucket, Contender};
use crate::options::Options;
use crate::redis_server::BenchRedis;
use crate::stats::{Spread, Table};

/// A bucket whose states stay alive while they are counted.
const SLOW: Bucket = Bucket {
    units: 1,
    period: Nanos::DAY,
    burst: 100,
};

/// Bytes per key of everyone, in as many interleaved rounds as there are.
pub(crate) fn measure(server: &mut BenchRedis, options: &Options) -> Result<Table, Failure> {
    let [bucket, article] = Contender::both(SLOW)?;
    let [counter, window] = Contender::windows()?;
    let all = [
        ("tollgate, token bucket", bucket),
        ("the article's script, token bucket", article),
        ("tollgate, sliding counter", counter),
        ("tollgate, fixed window", window),
    ];
    let mut rounds = Vec::new();
    for _ in 0..options.rounds {
        rounds.push(round(server, options, &all)?);
    }
    let title = format!(
        "Bytes per key, of {} keys: used memory, time to live included",
        options.stored
    );
    let mut table = Table::new(title, &["", "bytes", "times tollgate's token bucket"]);
    for (index, (name, _)) in all.iter().enumerate() {
        let of = |round: &Vec<f64>| round.get(index).copied().unwrap_or(f64::NAN);
        let ratio = |round: &Vec<f64>| of(round) / round.first().copied().unwrap_or(f64::NAN);
        table.row(vec![
            (*name).to_owned(),
            Spread::of(rounds.iter().map(of)).show(1),
            Spread::of(rounds.iter().map(ratio)).show(2),
        ]);
    }
    server.empty()?;
    Ok(table)
}

fn round(
    server: &mut BenchRedis,
    options: &Options,
    all: &[(&str, Contender)],
) -> Result<Vec<f64>, Failure> {
    let keys: Vec<u64> = (1..=options.stored).collect();
    let count = f64::from(u32::try_from(options.stored)?);
    let mut bytes = Vec::with_capacity(all.len());
    for (_, contender) in all {
        server.empty()?;
        // The first call pays for what is not the keys'.
        server.lap(contender, &[0], Some(true))?;
        let before = server.used_memory()?;
        server.lap(contender, &keys, Some(true))?;
        bytes.push((server.used_memory()? - before) / count);
    }
    Ok(bytes)
}
