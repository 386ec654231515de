//! What a decision costs the server and the client: admitted and denied, on one key and on many.
//!
//! Must not know: how calls are made, how counters are read.

use tollgate_core::Nanos;

use crate::Failure;
use crate::contender::{Bucket, Contender};
use crate::options::Options;
use crate::redis_server::{BenchRedis, CallCost};
use crate::stats::{Spread, Table};

/// More than any run spends, so that every state is alive and nothing is denied.
const ADMITTING: Bucket = Bucket {
    units: 1_000,
    period: Nanos::SECOND,
    burst: 100_000_000,
};
/// Used up by the first call.
const DENYING: Bucket = Bucket {
    units: 1,
    period: Nanos::DAY,
    burst: 1,
};

const HEAD: [&str; 7] = [
    "",
    "server CPU s per million",
    "times tollgate's",
    "script, wall s per million",
    "times tollgate's",
    "client CPU s per million",
    "times tollgate's",
];

/// A table for each pattern and each answer.
pub(crate) fn measure(server: &mut BenchRedis, options: &Options) -> Result<Vec<Table>, Failure> {
    let mut tables = Vec::new();
    let patterns = [
        ("One hot key".to_owned(), 1),
        (format!("{} keys", options.keys), options.keys),
    ];
    for (pattern, keys) in patterns {
        for (answer, bucket, must_admit) in
            [("admitted", ADMITTING, true), ("denied", DENYING, false)]
        {
            server.empty()?;
            let both = Contender::both(bucket)?;
            let numbers = order(keys, options.calls);
            // Every state is there, and used up if it is to be, before anything is measured.
            for contender in &both {
                server.lap(contender, &numbers, None)?;
            }
            let laps = rounds(server, options, &both, &numbers, must_admit)?;
            let title = format!("{pattern}, {answer}");
            tables.push(table(&title, &laps));
        }
    }
    Ok(tables)
}

/// Which key each call is for: all keys in turn, but not one beside the other.
fn order(keys: u64, calls: u64) -> Vec<u64> {
    // A prime that divides no sensible number of keys, so that every one has its turn.
    (0..calls).map(|call| call * 7_919 % keys.max(1)).collect()
}

/// One cost of ours and one of the article's for each round.
fn rounds(
    server: &mut BenchRedis,
    options: &Options,
    both: &[Contender; 2],
    numbers: &[u64],
    must_admit: bool,
) -> Result<Vec<[CallCost; 2]>, Failure> {
    let [ours, article] = both;
    let mut lap = |contender| server.lap(contender, numbers, Some(must_admit));
    (0..options.rounds)
        .map(|round| {
            // In turn, so that neither always runs on what the other has left in the caches.
            if round % 2 == 0 {
                Ok([lap(ours)?, lap(article)?])
            } else {
                let article = lap(article)?;
                Ok([lap(ours)?, article])
            }
        })
        .collect()
}

fn table(title: &str, laps: &[[CallCost; 2]]) -> Table {
    let mut table = Table::new(title, &HEAD);
    for (index, name) in ["tollgate, exact", "the article's script"]
        .iter()
        .enumerate()
    {
        let mut cells = vec![(*name).to_owned()];
        let parts: [fn(&CallCost) -> f64; 3] =
            [|cost| cost.server, |cost| cost.script, |cost| cost.client];
        for part in parts {
            let of = |lap: &[CallCost; 2]| lap.get(index).map_or(f64::NAN, part);
            cells.push(Spread::of(laps.iter().map(of)).show(2));
            // Within a round, so that both had the same machine.
            let ratios = laps
                .iter()
                .map(|lap| of(lap) / lap.first().map_or(f64::NAN, part));
            cells.push(Spread::of(ratios).show(2));
        }
        table.row(cells);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_has_its_turn() {
        let mut keys = order(20_000, 20_000);
        assert_ne!(keys.first().zip(keys.get(1)), Some((&0, &1)));
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), 20_000);
        assert_eq!(order(1, 3), [0, 0, 0]);
    }

    #[test]
    fn ratios_are_formed_within_a_round() {
        let cost = |micros| CallCost {
            server: micros,
            script: micros,
            client: micros,
        };
        // The machine is ten times slower in the second round, for both.
        let laps = [[cost(1.0), cost(2.0)], [cost(10.0), cost(20.0)]];
        let text = table("T", &laps).render(true);
        assert!(text.contains("| 2.00 (2.00–2.00) |"), "{text}");
    }
}
