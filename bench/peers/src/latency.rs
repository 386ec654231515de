//! How long single decisions take while fresh keys stream in: the pauses that a mean hides.
//!
//! One thread asks in turn for a key that nobody has seen and for one of a hundred thousand that are in use, and times
//! both. While a table grows, the request that triggered it pauses. Here that is the fresh key; in a server it is also every
//! request that waits behind it. Must not know: how a contender decides.

use crate::contenders::{ENTRIES, Entry, Quota};
use crate::histogram::Histogram;
use crate::keys::{KEY_LEN, Random, key};
use crate::options::Options;
use crate::stats::{Spread, Table};

/// Keys that are in use all the time.
const LIVE: usize = 100_000;
/// What a bounded contender is made for; the others grow.
const ROOM: usize = 1_000_000;

const WHO: [&str; 4] = ["tollgate", "governor", "throttlecrab", "DashMap by hand"];

/// Both kinds of one run.
struct Timed {
    live: Histogram,
    fresh: Histogram,
}

pub(crate) fn study(options: &Options) -> Table {
    let title = format!(
        "Nanoseconds of single decisions while {} M fresh keys stream in",
        options.fresh as f64 / 1e6
    );
    let head = ["", "p50", "p99", "p99.9", "p99.99", "max"];
    let mut table = Table::new(title, &head);
    let entries: Vec<&Entry> = WHO
        .iter()
        .filter_map(|who| ENTRIES.iter().find(|entry| entry.name == *who))
        .collect();
    let mut runs: Vec<Vec<Timed>> = entries.iter().map(|_| Vec::new()).collect();
    for stream in 0..options.streams {
        for (entry, runs) in entries.iter().zip(&mut runs) {
            eprintln!(
                "… stream {} of {}, {}",
                stream + 1,
                options.streams,
                entry.name
            );
            runs.push(run(entry, options.fresh));
        }
    }
    for (entry, runs) in entries.iter().zip(&runs) {
        table.row(row(
            &format!("{}, keys in use", entry.name),
            runs,
            |timed| &timed.live,
        ));
    }
    for (entry, runs) in entries.iter().zip(&runs) {
        table.row(row(&format!("{}, fresh keys", entry.name), runs, |timed| {
            &timed.fresh
        }));
    }
    table
}

fn run(entry: &Entry, fresh: usize) -> Timed {
    let contender = (entry.make)(Quota::ORDINARY, ROOM);
    let clock = quanta::Clock::new();
    let mut random = Random::seeded(3);
    let mut timed = Timed {
        live: Histogram::new(),
        fresh: Histogram::new(),
    };
    let mut name = String::with_capacity(KEY_LEN);
    for number in 0..LIVE {
        write(&mut name, number);
        contender.decide(&name);
    }
    for number in 0..fresh {
        for (number, histogram) in [
            (LIVE + number, &mut timed.fresh),
            (random.below(LIVE), &mut timed.live),
        ] {
            write(&mut name, number);
            let before = clock.raw();
            std::hint::black_box(contender.decide(&name));
            histogram.add(clock.delta_as_nanos(before, clock.raw()));
        }
    }
    timed
}

/// The key of a number, in place: making it is not timed and allocates nothing.
fn write(name: &mut String, number: usize) {
    name.clear();
    name.push_str(std::str::from_utf8(&key(number)).unwrap_or_default());
}

fn row(name: &str, runs: &[Timed], kind: fn(&Timed) -> &Histogram) -> Vec<String> {
    let spread = |of: &dyn Fn(&Histogram) -> u64| {
        Spread::of(runs.iter().map(|timed| of(kind(timed)) as f64))
    };
    let mut cells = vec![name.to_owned()];
    for (part, whole) in [(1, 2), (99, 100), (999, 1_000), (9_999, 10_000)] {
        cells.push(format!(
            "{:.0}",
            spread(&|histogram| histogram.quantile(part, whole)).median
        ));
    }
    cells.push(spread(&Histogram::most).show(0));
    cells
}
