//! Growth with connections: each has one request under way, so all of them are busy all the time.
//!
//! The slowest requests show whether the server serves some connections far more often than others. Must not know: how the
//! server does it.

use super::{ONE_BY_ONE, Report};
use crate::contenders::{Contender, Ours, Setup};
use crate::load::{Shape, Way, closed};
use crate::options::Options;
use crate::stats::{Spread, Table};
use crate::system;

const COUNTS: [usize; 5] = [10, 100, 1_000, 5_000, 10_000];

/// Files that are open besides connections.
const SPARE_FILES: u64 = 200;

/// Each connection has so many requests in a lap, at least.
const REQUESTS_EACH: usize = 4;

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
    let head = ["", "connections", "CPU s per million", "p50 ms", "p99 ms"];
    let mut table = Table::new(
        "Growth with connections, one request under way on each",
        &head,
    );
    for (name, listener) in listeners {
        for count in COUNTS.into_iter().filter(|count| *count <= options.idle) {
            if open_files < count as u64 + SPARE_FILES {
                eprintln!("{count} connections need more open files than this system allows");
                break;
            }
            eprintln!("{name}, {count} connections");
            let [cost, p50, p99] = measure(options, &listener(&ours), count)?;
            let who = (name, crate::measurements::Role::Ours);
            let size = count.to_string();
            let all = &mut report.measurements;
            all.add(
                "growth connections",
                who,
                (&size, "µs of CPU per decision"),
                cost,
            );
            all.add(
                "growth connections p99",
                who,
                (&size, "ms, p99 of a decision"),
                p99,
            );
            let shown = [cost.show(2), p50.show(2), p99.show(2)];
            let row = [name.to_owned(), size].into_iter().chain(shown);
            table.row(row.collect());
        }
    }
    report.print(&table);
    Ok(())
}

/// Processor time for each request in microseconds, then two quantiles in milliseconds.
fn measure(options: &Options, contender: &Contender, count: usize) -> Result<[Spread; 3], String> {
    let way = Way {
        address: contender.address,
        shape: Shape {
            connections: count,
            ..ONE_BY_ONE
        },
        talk: &*contender.talk,
    };
    let requests = (count * REQUESTS_EACH).max(options.requests);
    let numbers = vec![0; requests];
    let laps = closed::laps(&way, &numbers, options.rounds, || {
        contender.processor_times()
    })?;
    let cost = laps.iter().map(|lap| {
        let used = lap.after.since(lap.before).server;
        used.as_secs_f64() * 1e6 / requests as f64
    });
    let quantile = |part, whole| {
        let nanos = laps
            .iter()
            .map(move |lap| lap.latencies.quantile(part, whole));
        Spread::of(nanos.map(|nanos| nanos as f64 / 1e6))
    };
    Ok([Spread::of(cost), quantile(1, 2), quantile(99, 100)])
}
