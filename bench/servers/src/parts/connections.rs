//! Growth with connections, and the tail of latency with many of them.
//!
//! At saturation each connection has one request under way, so all of them are busy all the time: the slowest requests show whether
//! the server serves some connections far more often than others. At half of saturation requests are due by the open model and
//! take any free connection. Must not know: how the server does it.

use super::{ONE_BY_ONE, Report};
use crate::contenders::{Contender, Ours, Setup};
use crate::load::{Shape, closed};
use crate::measurements::Role;
use crate::options::Options;
use crate::stats::{Spread, Table};
use crate::study::{at_half, quantiles, way};
use crate::system;

const COUNTS: [usize; 5] = [10, 100, 1_000, 5_000, 10_000];

/// Connections of the tables of one worker and of two.
const COUNTS_OF_WORKERS: [usize; 3] = [50, 1_000, 5_000];

/// Files that are open besides connections.
const SPARE_FILES: u64 = 200;

/// Each connection has so many requests in a lap, at least.
const REQUESTS_EACH: usize = 4;

/// What is measured, after the name and the number of connections.
const COLUMNS: [&str; 7] = [
    "CPU s per million",
    "p50 ms at saturation",
    "p99 ms",
    "p99.9 ms",
    "p50 ms at half",
    "p99 ms",
    "p99.9 ms",
];

/// How ours is asked.
type Listener = fn(&Ours) -> Contender;

pub(super) fn run(options: &Options, report: &mut Report) -> Result<(), String> {
    let open_files = system::raise_open_files();
    let ours = Ours::start(Setup::new(&options.tollgate, options.keys))?;
    let listeners: [(&str, Listener); 3] = [
        ("HTTP check", Ours::http),
        ("gRPC RLS", Ours::grpc),
        ("Redis protocol", Ours::resp),
    ];
    let mut table = table("Growth with connections, one request under way on each");
    for (name, listener) in listeners {
        for count in possible(&COUNTS, options, open_files) {
            eprintln!("{name}, {count} connections");
            let measured = measure(options, &listener(&ours), count)?;
            let who = (name, Role::Ours);
            let size = count.to_string();
            let all = &mut report.measurements;
            all.add(
                "growth connections",
                who,
                (&size, "µs of CPU per decision"),
                measured.cost,
            );
            let [_, p99, _] = measured.at_saturation;
            all.add(
                "growth connections p99",
                who,
                (&size, "ms, p99 of a decision"),
                p99,
            );
            table.row(measured.row(name, count));
        }
    }
    report.print(&table);
    Ok(())
}

/// HTTP checks over few and many connections, of one worker and of two.
pub(super) fn of_workers(
    options: &Options,
    contenders: &[Contender],
    report: &Report,
) -> Result<(), String> {
    let open_files = system::raise_open_files();
    let mut table = table("HTTP check, server on both cores, one request under way on each");
    for count in possible(&COUNTS_OF_WORKERS, options, open_files) {
        for contender in contenders {
            eprintln!("{}, {count} connections", contender.name);
            let measured = measure(options, contender, count)?;
            table.row(measured.row(contender.name, count));
        }
    }
    report.print(&table);
    Ok(())
}

/// The numbers of connections that the options and this system allow.
fn possible(counts: &[usize], options: &Options, open_files: u64) -> Vec<usize> {
    let mut counts: Vec<usize> = counts.to_vec();
    counts.retain(|count| *count <= options.idle);
    counts.retain(|count| {
        let is_possible = *count as u64 + SPARE_FILES <= open_files;
        if !is_possible {
            eprintln!("{count} connections need more open files than this system allows");
        }
        is_possible
    });
    counts
}

fn table(title: &str) -> Table {
    let head: Vec<&str> = ["", "connections"].into_iter().chain(COLUMNS).collect();
    Table::new(title, &head)
}

/// What a number of connections has shown.
struct ConnectionCosts {
    /// Microseconds of processor time for each request.
    cost: Spread,
    /// Milliseconds at 50, 99 and 99.9 % of all requests.
    at_saturation: [Spread; 3],
    at_half: [Spread; 3],
}

impl ConnectionCosts {
    fn row(&self, name: &str, count: usize) -> Vec<String> {
        let quantiles = self.at_saturation.iter().chain(&self.at_half);
        let shown = std::iter::once(&self.cost).chain(quantiles);
        let cells = shown.map(|spread| spread.show(2));
        [name.to_owned(), count.to_string()]
            .into_iter()
            .chain(cells)
            .collect()
    }
}

fn measure(
    options: &Options,
    contender: &Contender,
    count: usize,
) -> Result<ConnectionCosts, String> {
    let shape = Shape {
        connections: count,
        ..ONE_BY_ONE
    };
    let requests = (count * REQUESTS_EACH).max(options.requests);
    let numbers = vec![0; requests];
    let laps = closed::laps(&way(contender, shape), &numbers, options.rounds, || {
        contender.processor_times()
    })?;
    let cost = laps.iter().map(|lap| {
        let used = lap.after.since(lap.before).server;
        used.as_secs_f64() * 1e6 / requests as f64
    });
    let rate = laps
        .iter()
        .map(|lap| requests as f64 / lap.wall.as_secs_f64());
    let rate = Spread::of(rate).median / 2.0;
    let half: Result<Vec<[f64; 3]>, String> = (0..options.latency_rounds)
        .map(|_| at_half(contender, shape, &numbers, rate))
        .collect();
    let full: Vec<[f64; 3]> = laps.iter().map(|lap| quantiles(&lap.latencies)).collect();
    Ok(ConnectionCosts {
        cost: Spread::of(cost),
        at_saturation: milliseconds(&full),
        at_half: milliseconds(&half?),
    })
}

/// The spread of each quantile over all laps, which have microseconds.
fn milliseconds(laps: &[[f64; 3]]) -> [Spread; 3] {
    [0, 1, 2].map(|index| {
        let values = laps.iter().filter_map(|quantiles| quantiles.get(index));
        Spread::of(values.map(|micros| micros / 1e3))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_quantile_has_its_own_spread() {
        let laps = [[1e3, 2e3, 30e3], [3e3, 4e3, 10e3], [2e3, 9e3, 20e3]];
        let medians = milliseconds(&laps).map(|spread| spread.median);
        assert_eq!(medians, [2.0, 4.0, 20.0]);
    }
}
