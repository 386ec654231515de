//! Laps in turn: every contender once, then all of them again; and what they have shown as a table.
//!
//! Must not know: which servers there are, how they are asked.

use crate::contenders::Contender;
use crate::load::{self, Shape, Way};
use crate::options::Options;
use crate::stats::{Spread, Table};

/// Which keys are asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keys {
    /// One, by everybody.
    Hot,
    /// So many, each as likely as any other.
    Many(u32),
}

/// One lap of one contender. Times are in microseconds; a microsecond for each is a second for a million.
#[derive(Clone, Copy, Debug)]
struct Seen {
    processor: f64,
    wall: f64,
    p50: f64,
    p99: f64,
    p999: f64,
}

/// What all laps of a study have shown. The first contender is the one that others are compared with.
pub(crate) struct Study {
    title: String,
    names: Vec<&'static str>,
    /// By contender, then by round.
    seen: Vec<Vec<Seen>>,
}

impl Study {
    /// Runs all rounds.
    pub(crate) fn run(
        title: &str,
        options: &Options,
        shape: Shape,
        keys: Keys,
        contenders: &[Contender],
    ) -> Result<Self, String> {
        let requests = if shape.in_batches {
            options.requests / 2
        } else {
            options.requests
        };
        let (what, numbers) = match keys {
            Keys::Hot => ("one hot key".to_owned(), vec![0; requests]),
            Keys::Many(count) => (format!("{count} keys"), scattered(requests, count)),
        };
        let mut study = Self {
            title: format!("{title}, {what}"),
            names: contenders.iter().map(|contender| contender.name).collect(),
            seen: vec![Vec::new(); contenders.len()],
        };
        eprintln!("{}", study.title);
        for round in 0..=options.rounds {
            for (contender, seen) in contenders.iter().zip(&mut study.seen) {
                let lap = ask(contender, shape, &numbers)
                    .map_err(|error| format!("{}, {}: {error}", study.title, contender.name))?;
                // The first round warms up.
                if round > 0 {
                    seen.push(lap);
                }
            }
        }
        Ok(study)
    }

    /// How many times the processor time of `other` ours is, round by round.
    pub(crate) fn ours_to(&self, other: &str) -> Option<Spread> {
        self.ratio(other)
            .map(|(ours, theirs)| ours / theirs)
            .spread()
    }

    /// How many times our processor time that of `other` is.
    pub(crate) fn times_ours(&self, other: &str) -> Option<Spread> {
        self.ratio(other)
            .map(|(ours, theirs)| theirs / ours)
            .spread()
    }

    fn ratio(&self, other: &str) -> Pairs<'_> {
        let index = self.names.iter().position(|name| *name == other);
        Pairs {
            ours: self.seen.first().map_or(&[], Vec::as_slice),
            theirs: index
                .and_then(|index| self.seen.get(index))
                .map_or(&[], Vec::as_slice),
        }
    }

    pub(crate) fn table(&self) -> Table {
        let head = [
            "",
            "CPU s per million",
            "times tollgate's",
            "decisions/s",
            "p50 µs",
            "p99 µs",
            "p99.9 µs",
        ];
        let mut table = Table::new(self.title.clone(), &head);
        for (name, laps) in self.names.iter().zip(&self.seen) {
            let of = |part: fn(&Seen) -> f64| Spread::of(laps.iter().map(part));
            let times = self.times_ours(name).map(|spread| spread.show(2));
            table.row(vec![
                (*name).to_owned(),
                of(|lap| lap.processor).show(2),
                times.unwrap_or_default(),
                format!("{:.0}", of(|lap| 1e6 / lap.wall).median),
                format!("{:.0}", of(|lap| lap.p50).median),
                format!("{:.0}", of(|lap| lap.p99).median),
                format!("{:.0}", of(|lap| lap.p999).median),
            ]);
        }
        table
    }
}

struct Pairs<'a> {
    ours: &'a [Seen],
    theirs: &'a [Seen],
}

impl Pairs<'_> {
    fn map(&self, ratio: impl Fn((f64, f64)) -> f64) -> Ratios {
        let pairs = self.ours.iter().zip(self.theirs);
        Ratios(
            pairs
                .map(|(ours, theirs)| ratio((ours.processor, theirs.processor)))
                .collect(),
        )
    }
}

struct Ratios(Vec<f64>);

impl Ratios {
    fn spread(self) -> Option<Spread> {
        (!self.0.is_empty()).then(|| Spread::of(self.0.into_iter()))
    }
}

/// How servers are filled.
const FILL: Shape = Shape {
    connections: 8,
    depth: 64,
    in_batches: true,
};
const FILL_ONE_BY_ONE: Shape = Shape {
    connections: 64,
    depth: 1,
    in_batches: false,
};

/// Asks about every key once, so that all states are there.
pub(crate) fn fill(contender: &Contender, keys: u32) -> Result<(), String> {
    if !contender.has_states {
        return Ok(());
    }
    let (address, talk) = contender
        .fill
        .as_ref()
        .map_or((contender.address, &contender.talk), |(address, talk)| {
            (*address, talk)
        });
    let way = Way {
        address,
        shape: if contender.pipelines {
            FILL
        } else {
            FILL_ONE_BY_ONE
        },
        talk: &**talk,
        processor: &|| contender.processor_time(),
    };
    let numbers: Vec<u32> = (0..keys).collect();
    let filled = load::lap(&way, &numbers);
    filled
        .map(|_| ())
        .map_err(|error| format!("{}: {error}", contender.name))
}

fn ask(contender: &Contender, shape: Shape, numbers: &[u32]) -> Result<Seen, String> {
    let way = Way {
        address: contender.address,
        shape,
        talk: &*contender.talk,
        processor: &|| contender.processor_time(),
    };
    let lap = load::lap(&way, numbers)?;
    let count = numbers.len() as f64;
    let quantile = |part, whole| lap.latencies.quantile(part, whole) as f64 / 1e3;
    Ok(Seen {
        processor: lap.processor.as_secs_f64() * 1e6 / count,
        wall: lap.wall.as_secs_f64() * 1e6 / count,
        p50: quantile(1, 2),
        p99: quantile(99, 100),
        p999: quantile(999, 1_000),
    })
}

/// Numbers below `count` in no order, the same in every run.
fn scattered(requests: usize, count: u32) -> Vec<u32> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        u32::try_from((state >> 32) * u64::from(count) >> 32).unwrap_or(0)
    };
    (0..requests).map(|_| next()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scattered_keys_are_within_bounds_and_spread_out() {
        let mut keys = scattered(10_000, 1_000);
        assert!(keys.iter().all(|key| *key < 1_000));
        keys.sort_unstable();
        keys.dedup();
        assert!(keys.len() > 990);
    }
}
