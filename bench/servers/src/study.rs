//! Laps in turn: every contender once, then all of them again; and what they have shown as a table.
//!
//! Processor time and throughput are those of the closed model. Latencies are those of the open model at half of each
//! contender's throughput. Must not know: which servers there are, how they are asked.

use crate::contenders::{Contender, ProcessorTimes, StoreKind};
use crate::histogram::Histogram;
use crate::load::{Shape, Way, closed, open};
use crate::measurements::{Measurements, Role};
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

impl Keys {
    pub(crate) fn name(self) -> String {
        match self {
            Self::Hot => "one hot key".to_owned(),
            Self::Many(count) => format!("{count} keys"),
        }
    }

    fn numbers(self, requests: usize) -> Vec<u32> {
        match self {
            Self::Hot => vec![0; requests],
            Self::Many(count) => scattered(requests, count),
        }
    }
}

/// What is asked of all contenders.
#[derive(Clone, Copy)]
pub(crate) struct Workload<'a> {
    /// Its name in the file of measurements.
    pub(crate) id: &'a str,
    pub(crate) title: &'a str,
    pub(crate) shape: Shape,
    pub(crate) keys: Keys,
}

/// One contender's laps. Times are in microseconds; a microsecond for each is a second for a million.
#[derive(Default)]
struct Series {
    processor: Vec<f64>,
    /// The processor time of the store that it calls.
    store: Vec<f64>,
    wall: Vec<f64>,
    p50: Vec<f64>,
    p99: Vec<f64>,
    p999: Vec<f64>,
    /// Why a peer was left out: it did not answer, for example.
    failure: Option<String>,
}

/// What all laps of a study have shown. The first contender is the one that others are compared with.
pub(crate) struct Study {
    id: String,
    title: String,
    names: Vec<(&'static str, Role)>,
    store_kind: StoreKind,
    series: Vec<Series>,
}

impl Study {
    /// Runs all rounds.
    pub(crate) fn run(
        options: &Options,
        workload: Workload<'_>,
        contenders: &[Contender],
    ) -> Result<Self, String> {
        let requests = if workload.shape.in_batches {
            options.requests / 2
        } else {
            options.requests
        };
        let numbers = workload.keys.numbers(requests);
        let mut study = Self {
            id: workload.id.to_owned(),
            title: format!("{}, {}", workload.title, workload.keys.name()),
            names: contenders.iter().map(|one| (one.name, one.role)).collect(),
            store_kind: contenders
                .first()
                .map_or(StoreKind::Redis, |one| one.store_kind),
            series: contenders.iter().map(|_| Series::default()).collect(),
        };
        eprintln!("{}", study.title);
        for round in 0..=options.rounds {
            for (contender, series) in contenders.iter().zip(&mut study.series) {
                let Some(lap) = series.record((contender.name, contender.role), || {
                    at_saturation(contender, workload.shape, &numbers)
                })?
                else {
                    continue;
                };
                // The first round warms up.
                if round > 0 {
                    series.processor.push(lap[0]);
                    series.store.push(lap[1]);
                    series.wall.push(lap[2]);
                }
            }
        }
        for _ in 0..options.latency_rounds {
            for (contender, series) in contenders.iter().zip(&mut study.series) {
                let wall = series.wall.clone();
                let Some([p50, p99, p999]) =
                    series.record((contender.name, contender.role), || {
                        let per_second = 1e6 / spread(&wall).median / 2.0;
                        at_half(contender, workload.shape, &numbers, per_second)
                    })?
                else {
                    continue;
                };
                series.p50.push(p50);
                series.p99.push(p99);
                series.p999.push(p999);
            }
        }
        Ok(study)
    }

    /// How many times the processor time of `other` ours is, round by round.
    pub(crate) fn ours_to(&self, other: &str) -> Option<Spread> {
        self.ratios(other, |ours, theirs| ours / theirs)
    }

    /// How many times our processor time that of `other` is.
    pub(crate) fn times_ours(&self, other: &str) -> Option<Spread> {
        self.ratios(other, |ours, theirs| theirs / ours)
    }

    fn ratios(&self, other: &str, ratio: fn(f64, f64) -> f64) -> Option<Spread> {
        let index = self.names.iter().position(|(name, _)| *name == other)?;
        let (ours, theirs) = (self.series.first()?, self.series.get(index)?);
        if theirs.failure.is_some() {
            return None;
        }
        let pairs = ours.processor.iter().zip(&theirs.processor);
        Some(Spread::of(
            pairs.map(|(ours, theirs)| ratio(*ours, *theirs)),
        ))
    }

    /// Whether this peer was left out.
    pub(crate) fn has_failed(&self, name: &str) -> bool {
        let mut all = self.names.iter().zip(&self.series);
        all.any(|((one, _), series)| *one == name && series.failure.is_some())
    }

    pub(crate) fn table(&self) -> Table {
        let has_store = self.series.iter().any(Series::has_store);
        let mut head = vec!["", "CPU s per million"];
        if has_store {
            head.push(self.store_kind.names().0);
        }
        head.extend(["times tollgate's", "decisions/s at saturation"]);
        head.extend(["p50 µs at half", "p99 µs", "p99.9 µs"]);
        let mut table = Table::new(self.title.clone(), &head);
        let columns = head.len();
        for ((name, _), series) in self.names.iter().zip(&self.series) {
            if let Some(failure) = &series.failure {
                let mut row = vec![(*name).to_owned(), failure.clone()];
                row.resize(columns, "–".to_owned());
                table.row(row);
                continue;
            }
            let mut row = vec![(*name).to_owned(), spread(&series.processor).show(2)];
            if has_store {
                let store = spread(&series.store).show(2);
                row.push(if series.has_store() {
                    store
                } else {
                    "–".to_owned()
                });
            }
            let times = self.times_ours(name).map(|times| times.show(2));
            row.push(times.unwrap_or_default());
            row.push(format!("{:.0}", 1e6 / spread(&series.wall).median));
            for quantile in [&series.p50, &series.p99, &series.p999] {
                row.push(spread(quantile).show(0));
            }
            table.row(row);
        }
        table
    }

    pub(crate) fn measurements(&self, all: &mut Measurements) {
        let complete = self.names.iter().zip(&self.series);
        for (who, series) in complete.filter(|(_, series)| series.failure.is_none()) {
            let rates: Vec<f64> = series.wall.iter().map(|wall| 1e6 / wall).collect();
            for (metric, unit, numbers) in [
                ("cpu", "s per million", &series.processor),
                (self.store_kind.names().1, "s per million", &series.store),
                ("saturation", "per second", &rates),
                ("p50", "µs", &series.p50),
                ("p99", "µs", &series.p99),
                ("p99.9", "µs", &series.p999),
            ] {
                if !numbers.is_empty() && (!metric.ends_with(" cpu") || series.has_store()) {
                    all.add(&self.id, *who, (metric, unit), spread(numbers));
                }
            }
        }
    }
}

impl Series {
    /// The result of a lap. A peer that fails is left out from then on, and the table says why; any other failure ends the study.
    fn record<T>(
        &mut self,
        (name, role): (&str, Role),
        lap: impl FnOnce() -> Result<T, String>,
    ) -> Result<Option<T>, String> {
        if self.failure.is_some() {
            return Ok(None);
        }
        match lap() {
            Ok(result) => Ok(Some(result)),
            Err(error) if role == Role::Peer => {
                eprintln!("{name} is left out: {error}");
                self.failure = Some(error);
                Ok(None)
            }
            Err(error) => Err(format!("{name}: {error}")),
        }
    }

    fn has_store(&self) -> bool {
        self.store.iter().any(|time| *time > 0.0)
    }
}

fn spread(numbers: &[f64]) -> Spread {
    Spread::of(numbers.iter().copied())
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
    };
    let numbers: Vec<u32> = (0..keys).collect();
    let filled = closed::lap(&way, &numbers, || Ok(()));
    filled
        .map(|_| ())
        .map_err(|error| format!("{}: {error}", contender.name))
}

pub(crate) fn way(contender: &Contender, shape: Shape) -> Way<'_> {
    Way {
        address: contender.address,
        shape,
        talk: &*contender.talk,
    }
}

/// Microseconds for each request: processor time of the server, of its store, and wall time.
fn at_saturation(contender: &Contender, shape: Shape, numbers: &[u32]) -> Result<[f64; 3], String> {
    let lap = closed::lap(&way(contender, shape), numbers, || {
        contender.processor_times()
    })?;
    let ProcessorTimes { server, store } = lap.after.since(lap.before);
    let each = 1e6 / numbers.len() as f64;
    Ok([server, store, lap.wall].map(|time| time.as_secs_f64() * each))
}

/// Quantiles in microseconds at this rate.
pub(crate) fn at_half(
    contender: &Contender,
    shape: Shape,
    numbers: &[u32],
    per_second: f64,
) -> Result<[f64; 3], String> {
    let waiting = contender.waiting();
    let latencies = open::lap(&way(contender, shape), numbers, per_second, waiting)?;
    Ok(quantiles(&latencies))
}

/// The half, 99 % and 99.9 % in microseconds.
pub(crate) fn quantiles(latencies: &Histogram) -> [f64; 3] {
    let parts = [(1, 2), (99, 100), (999, 1_000)];
    parts.map(|(part, whole)| latencies.quantile(part, whole) as f64 / 1e3)
}

/// Numbers below `count` in no order, the same in every run.
fn scattered(requests: usize, count: u32) -> Vec<u32> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        u32::try_from(((state >> 32) * u64::from(count)) >> 32).unwrap_or(0)
    };
    (0..requests).map(|_| next()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn study(names: Vec<(&'static str, Role)>) -> Study {
        let of = |time: f64| Series {
            processor: vec![time],
            wall: vec![time],
            ..Series::default()
        };
        Study {
            id: "grpc".to_owned(),
            title: "gRPC".to_owned(),
            store_kind: StoreKind::Redis,
            series: (1..=names.len()).map(|time| of(time as f64)).collect(),
            names,
        }
    }

    /// limitador-server with cached counters stopped answering, and the run of all other servers ended with it.
    #[test]
    fn a_peer_that_fails_is_left_out_and_named() {
        let mut study = study(vec![("tollgate", Role::Ours), ("slow", Role::Peer)]);
        assert_eq!(
            study.times_ours("slow").map(|times| times.median),
            Some(2.0)
        );
        let failed = || -> Result<(), String> { Err("no answer after 120s".to_owned()) };
        let slow = study.series.last_mut().unwrap();
        assert_eq!(slow.record(("slow", Role::Peer), failed), Ok(None));
        assert_eq!(slow.record(("slow", Role::Peer), || Ok(())), Ok(None));
        assert!(study.has_failed("slow") && !study.has_failed("tollgate"));
        assert!(study.times_ours("slow").is_none());
        let table = study.table().render(true);
        assert!(
            table.contains("| slow | no answer after 120s | – |"),
            "{table}"
        );
        let mut all = Measurements::default();
        study.measurements(&mut all);
        let file = std::env::temp_dir().join(format!("bench-study-{}.tsv", std::process::id()));
        all.save(&file).unwrap();
        let saved = std::fs::read_to_string(&file).unwrap();
        std::fs::remove_file(&file).unwrap();
        assert!(
            saved.contains("tollgate") && !saved.contains("slow"),
            "{saved}"
        );
    }

    #[test]
    fn our_own_failure_ends_the_study() {
        let failed = || -> Result<(), String> { Err("refused".to_owned()) };
        for role in [Role::Ours, Role::Floor] {
            let ended = Series::default().record(("tollgate", role), failed);
            assert_eq!(ended, Err("tollgate: refused".to_owned()));
        }
    }

    #[test]
    fn scattered_keys_are_within_bounds_and_spread_out() {
        let mut keys = scattered(10_000, 1_000);
        assert!(keys.iter().all(|key| *key < 1_000));
        keys.sort_unstable();
        keys.dedup();
        assert!(keys.len() > 990);
    }
}
