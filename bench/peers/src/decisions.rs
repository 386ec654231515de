//! How long decisions take: every contender on every pattern of keys, on one thread and on two, in interleaved rounds.
//!
//! In each round everyone runs the same requests once on one thread and once on two, one contender after the other.
//! Ratios are formed within a round and only then summed up, so that a machine that is slow for a while is slow for
//! everyone. Must not know: how a contender decides.

use std::sync::Barrier;
use std::time::Duration;

use crate::clock::{Stopwatch, thread_time};
use crate::contenders::{Contender, ENTRIES, Entry, Quota};
use crate::keys::{Pattern, Requests};
use crate::measurements::Measurements;
use crate::options::Options;
use crate::stats::{Spread, Table};

/// The same key is asked so often before the clock starts: every state is there, and strict quotas are used up.
const WARMING: usize = 4;

/// How often a lap is tried on a busy machine.
const TRIES: usize = 3;

/// One pattern of keys under one quota.
struct Workload {
    pattern: Pattern,
    quota: Quota,
    ends: &'static str,
    /// The share of requests that must be admitted, in per cent, from and to.
    admitted: (u64, u64),
}

/// What one contender did in one round, per decision in nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Lap {
    wall: f64,
    cpu: f64,
}

impl Lap {
    /// Whether each of so many threads had a processor nearly all the time.
    fn is_undisturbed(self, threads: usize) -> bool {
        self.cpu / self.wall > 0.9 * f64::from(u32::try_from(threads).unwrap_or(u32::MAX))
    }
}

/// Every lap of one contender: on one thread, and on two.
struct Track {
    entry: &'static Entry,
    contender: Box<dyn Contender>,
    single: Vec<Lap>,
    double: Vec<Lap>,
}

pub(crate) fn study(
    options: &Options,
    measurements: &mut Measurements,
) -> Result<Vec<Table>, String> {
    let mut tables = Vec::new();
    let names = ENTRIES.iter().map(|entry| entry.name);
    let head: Vec<&str> = std::iter::once("").chain(names).collect();
    let title = "Two threads beside one: decisions a second, where both had a processor throughout";
    let mut gains = Table::new(title, &head);
    for workload in workloads(options.most_keys) {
        eprintln!("… {}, {}", workload.pattern.name(), workload.ends);
        let tracks = race(&workload, options)?;
        tables.push(table(&workload, "one thread", &tracks, |track| {
            &track.single
        }));
        tables.push(table(&workload, "two threads", &tracks, |track| {
            &track.double
        }));
        gains.row(gain(&workload, &tracks));
        measure(&workload, &tracks, measurements);
    }
    tables.push(gains);
    Ok(tables)
}

fn workloads(most_keys: usize) -> Vec<Workload> {
    let patterns = [
        Pattern::Hot,
        Pattern::Zipf(100_000),
        Pattern::Uniform(most_keys),
    ];
    let mut workloads = Vec::new();
    for pattern in patterns {
        workloads.push(Workload {
            pattern,
            quota: Quota::GENEROUS,
            ends: "admitted",
            admitted: (100, 100),
        });
        workloads.push(Workload {
            pattern,
            quota: Quota::STRICT,
            ends: "denied",
            admitted: (0, 0),
        });
    }
    let pattern = Pattern::Uniform(most_keys);
    workloads.push(Workload {
        pattern,
        quota: Quota::REFILLED,
        ends: "admitted, full again",
        admitted: (99, 100),
    });
    workloads
}

fn race(workload: &Workload, options: &Options) -> Result<Vec<Track>, String> {
    let Workload { pattern, quota, .. } = *workload;
    let everybody = pattern.everybody();
    let requests = [1, 2].map(|seed| pattern.requests(options.requests, seed));
    let is_refilled = quota.burst == Quota::REFILLED.burst && quota.count == Quota::REFILLED.count;
    let entries = ENTRIES
        .iter()
        .filter(|entry| entry.has_buckets || !is_refilled);
    let mut tracks: Vec<Track> = entries
        .map(|entry| {
            let contender = (entry.make)(quota, pattern.keys());
            for _ in 0..WARMING {
                contender.decide_all(&everybody, true);
            }
            Track {
                entry,
                contender,
                single: Vec::new(),
                double: Vec::new(),
            }
        })
        .collect();
    for _ in 0..options.rounds {
        for track in &mut tracks {
            let [first, second] = &requests;
            let checked = |lap: (Lap, u64)| workload.judge(track.entry, lap);
            let single = checked(undisturbed(&*track.contender, &[first]))?;
            let double = checked(undisturbed(&*track.contender, &[first, second]))?;
            track.single.push(single);
            track.double.push(double);
        }
    }
    Ok(tracks)
}

impl Workload {
    /// A contender that did not decide as it should was not measured doing its work.
    fn judge(&self, entry: &Entry, (lap, per_cent): (Lap, u64)) -> Result<Lap, String> {
        let (least, most) = self.admitted;
        if (least..=most).contains(&per_cent) {
            return Ok(lap);
        }
        Err(format!(
            "{}: {} admitted {per_cent} %",
            self.pattern.name(),
            entry.name
        ))
    }
}

/// Runs the sequences, again if the threads had to wait for a processor, a few times at most. Threads that take turns on
/// one processor neither gain by being two nor get in each other's way: such a lap says nothing.
fn undisturbed(contender: &dyn Contender, sequences: &[&Requests]) -> (Lap, u64) {
    let mut last = run(contender, sequences);
    for _ in 1..TRIES {
        if last.0.is_undisturbed(sequences.len()) {
            break;
        }
        last = run(contender, sequences);
    }
    last
}

/// Runs the sequences at once, each on a thread of its own. Answers the lap and the share admitted, in per cent.
fn run(contender: &dyn Contender, sequences: &[&Requests]) -> (Lap, u64) {
    let barrier = Barrier::new(sequences.len() + 1);
    let total: usize = sequences.iter().map(|requests| requests.len()).sum();
    let alone = sequences.len() == 1;
    let (admitted, cpu, wall) = std::thread::scope(|scope| {
        let threads: Vec<_> = sequences
            .iter()
            .map(|requests| {
                scope.spawn(|| {
                    barrier.wait();
                    let (watch, before) = (Stopwatch::start(), thread_time());
                    let admitted = contender.decide_all(requests, alone);
                    (admitted, thread_time() - before, watch.elapsed())
                })
            })
            .collect();
        barrier.wait();
        let none = (0, Duration::ZERO, Duration::ZERO);
        threads
            .into_iter()
            .fold(none, |(admitted, cpu, wall), thread| {
                let (more, used, took) = thread
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                (admitted + more, cpu + used, wall.max(took))
            })
    });
    let each = |span: Duration| {
        span.as_secs_f64() * 1e9 / f64::from(u32::try_from(total).unwrap_or(u32::MAX))
    };
    (
        Lap {
            wall: each(wall),
            cpu: each(cpu),
        },
        admitted * 100 / (total as u64).max(1),
    )
}

fn table(
    workload: &Workload,
    threads: &str,
    tracks: &[Track],
    laps: fn(&Track) -> &Vec<Lap>,
) -> Table {
    let title = format!("{}, {}, {threads}", workload.pattern.name(), workload.ends);
    let head = [
        "",
        "wall ns per decision",
        "times tollgate's",
        "CPU ms per million",
        "times tollgate's",
    ];
    let mut table = Table::new(title, &head);
    let Some(ours) = tracks.first().map(laps) else {
        return table;
    };
    for track in tracks {
        let laps = laps(track);
        let times = |of: fn(&Lap) -> f64| {
            Spread::of(laps.iter().zip(ours).map(|(lap, our)| of(lap) / of(our))).show(2)
        };
        table.row(vec![
            track.entry.name.to_owned(),
            Spread::of(laps.iter().map(|lap| lap.wall)).show(1),
            times(|lap| lap.wall),
            Spread::of(laps.iter().map(|lap| lap.cpu)).show(1),
            times(|lap| lap.cpu),
        ]);
    }
    table
}

/// Processor time on one thread, which other work on the machine disturbs least.
fn measure(workload: &Workload, tracks: &[Track], measurements: &mut Measurements) {
    let id = format!("memory, {}, {}", workload.pattern.name(), workload.ends);
    for track in tracks {
        let Entry { name, role, .. } = *track.entry;
        let spread = Spread::of(track.single.iter().map(|lap| lap.cpu));
        measurements.add(&id, (name, role), ("cpu", "ns"), spread);
    }
}

/// How much more two threads do than one, for everyone, by the laps that were not disturbed.
fn gain(workload: &Workload, tracks: &[Track]) -> Vec<String> {
    let mut row = vec![format!("{}, {}", workload.pattern.name(), workload.ends)];
    for entry in ENTRIES {
        let track = tracks.iter().find(|track| track.entry.name == entry.name);
        let laps = track.map_or(&[][..], |track| &track.single).iter();
        let laps = laps.zip(track.map_or(&[][..], |track| &track.double));
        let gains: Vec<f64> = laps
            .filter(|(one, two)| one.is_undisturbed(1) && two.is_undisturbed(2))
            .map(|(one, two)| one.wall / two.wall)
            .collect();
        row.push(match gains.len() {
            0 => "–".to_owned(),
            laps => format!("{}, {laps} laps", Spread::of(gains.into_iter()).show(2)),
        });
    }
    row
}
