//! The table that the page of benchmarks opens with: every workload with what is promised of it, and where we lose.
//!
//! Goals are those of a server with two cores of 2026; on other machines compare the columns with each other. Must not know: how
//! anything was measured.

use super::measurements::{Measurement, Measurements, Role};

/// A row: whose number is compared, and with what.
struct Headline {
    title: &'static str,
    workload: &'static str,
    ours: &'static str,
    /// The metric: processor time, or the size of a study of growth.
    metric: &'static str,
    /// At most so much, and so much of Redis.
    goal: (f64, Option<f64>),
    unit: &'static str,
}

const fn server(
    title: &'static str,
    workload: &'static str,
    ours: &'static str,
    goal: (f64, Option<f64>),
) -> Headline {
    Headline {
        title,
        workload,
        ours,
        metric: "cpu",
        goal,
        unit: "µs",
    }
}

const fn in_process(
    title: &'static str,
    workload: &'static str,
    ours: &'static str,
    metric: &'static str,
    goal: f64,
) -> Headline {
    Headline {
        title,
        workload,
        ours,
        metric,
        goal: (goal, None),
        unit: "ns",
    }
}

const HEADLINES: &[Headline] = &[
    server(
        "gRPC RLS, 10 connections × 50 streams (Envoy's shape)",
        "grpc 10 x 50",
        "tollgate",
        (7.0, None),
    ),
    server(
        "the same, answers of 2 limits",
        "grpc 10 x 50, 2 limits",
        "tollgate",
        (8.0, None),
    ),
    server(
        "the same, answers of 4 limits",
        "grpc 10 x 50, 4 limits",
        "tollgate",
        (8.5, None),
    ),
    server(
        "the same, answers of 8 limits",
        "grpc 10 x 50, 8 limits",
        "tollgate",
        (10.0, None),
    ),
    server(
        "gRPC RLS, 2 × 100 streams",
        "grpc 2 x 100",
        "tollgate",
        (6.8, None),
    ),
    server(
        "gRPC RLS, 4 × 8 streams",
        "grpc 4 x 8",
        "tollgate",
        (8.2, None),
    ),
    server(
        "gRPC RLS, 50 × 1 streams",
        "grpc 50 x 1",
        "tollgate",
        (15.0, None),
    ),
    server(
        "gRPC RLS over Redis, `exact`, one key",
        "redis grpc",
        "tollgate, exact",
        (16.0, Some(8.0)),
    ),
    server(
        "gRPC RLS over Redis, `leased`, one key",
        "redis grpc",
        "tollgate, leased",
        (8.5, Some(0.05)),
    ),
    server(
        "HTTP check over Redis, `exact`, 100 k keys",
        "redis http",
        "tollgate, exact",
        (16.0, Some(11.0)),
    ),
    server(
        "HTTP check over Redis, `leased`, 100 k keys",
        "redis http",
        "tollgate, leased",
        (16.0, Some(11.0)),
    ),
    server("HTTP check, 100 k keys", "http", "tollgate", (9.8, None)),
    server(
        "RESP by 16, `CL.THROTTLE`, 100 k keys",
        "resp by 16",
        "tollgate",
        (0.85, None),
    ),
    server(
        "RESP by 16, `TG.CHECK`, 100 k keys",
        "resp by 16",
        "tollgate, TG.CHECK",
        (1.15, None),
    ),
    server(
        "RESP one by one, `CL.THROTTLE`, 100 k keys",
        "resp one by one",
        "tollgate",
        (9.4, None),
    ),
    in_process(
        "library check, one hot key",
        "memory, one hot key, admitted",
        "tollgate",
        "cpu",
        18.0,
    ),
    in_process(
        "library check, 100 k keys, zipf",
        "memory, 100 k keys, zipf, admitted",
        "tollgate",
        "cpu",
        33.0,
    ),
    in_process(
        "library check, 1 M keys, uniform",
        "memory, 1000 k keys, uniform, admitted",
        "tollgate",
        "cpu",
        85.0,
    ),
    in_process(
        "policy engine, 1 limit, 100 k keys, zipf",
        "growth limits",
        "policy engine",
        "1",
        120.0,
    ),
    in_process(
        "policy engine, 4 limits, 100 k keys, zipf",
        "growth limits",
        "policy engine",
        "4",
        300.0,
    ),
];

/// Estimators do not tell keys apart, so their time is no peer's. They are named where we lose.
const ESTIMATORS: [&str; 1] = ["pingora-limits"];

/// Peers that count inexactly: several of their nodes together may admit more than the limit. So exact decisions are not compared
/// with their time. The list of losses names them.
const INEXACT: [&str; 1] = ["limitador-server, cached"];

/// The opening table in markdown. Rows that were not measured are left out.
pub(super) fn table(all: &Measurements) -> String {
    let mut text =
        "| CPU per decision | ours | best peer | floor | goal | | p50 · p99 · p99.9, µs |\n\
                    |---|---:|---:|---:|---:|---|---:|\n"
            .to_owned();
    for row in HEADLINES {
        let Some(ours) = all.get(row.workload, row.ours, row.metric) else {
            continue;
        };
        let store = all.get(row.workload, row.ours, "store cpu");
        let (peer, floor) = (best(all, row, Role::Peer), best(all, row, Role::Floor));
        let cells = [
            row.title.to_owned(),
            format!(
                "**{}** ({}–{}) {}",
                shown(ours, store),
                round(ours.least),
                round(ours.most),
                row.unit
            ),
            peer.map_or("–".to_owned(), |peer| with_store(all, row, peer)),
            floor.map_or("–".to_owned(), |floor| with_store(all, row, floor)),
            goal(row),
            verdict(row, ours, store, peer).to_owned(),
            latencies(all, row),
        ];
        text += &format!("| {} |\n", cells.join(" | "));
    }
    text
}

/// Everybody whose processor time is below ours: first in the opening table, then in all other workloads.
pub(super) fn losses(all: &Measurements) -> String {
    let mut text = String::new();
    for row in HEADLINES.iter().filter(|row| row.metric == "cpu") {
        if let Some(ours) = all.get(row.workload, row.ours, row.metric) {
            text += &losses_in(all, row.title, ours);
        }
    }
    for workload in other_workloads(all) {
        let mut times = all.processor_times(workload);
        if let Some(ours) = times.find(|one| one.role == Role::Ours) {
            text += &losses_in(all, workload, ours);
        }
    }
    if text.is_empty() {
        text.push_str("In this run no peer took less processor time than ours.\n");
    }
    text
}

/// Who took less processor time than ours in our workload.
fn losses_in(all: &Measurements, title: &str, ours: &Measurement) -> String {
    let winners = all
        .processor_times(&ours.workload)
        .filter(|other| other.role == Role::Peer && other.median < ours.median);
    let lines = winners.map(|winner| {
        let times = ours.median / winner.median;
        let (ours_shown, theirs) = (round(ours.median), round(winner.median));
        let (name, unit) = (&winner.name, short_unit(&ours.unit));
        format!(
            "- {title}: {name} takes {theirs} {unit}, ours {ours_shown} {unit} ({times:.2}×).\n"
        )
    });
    lines.collect()
}

/// Workloads whose processor time was measured and that are not in the opening table, in their order.
fn other_workloads(all: &Measurements) -> Vec<&str> {
    let mut workloads: Vec<&str> = Vec::new();
    for one in all.0.iter().filter(|one| one.metric == "cpu") {
        let is_in_table = HEADLINES.iter().any(|row| row.workload == one.workload);
        if !is_in_table && !workloads.contains(&one.workload.as_str()) {
            workloads.push(&one.workload);
        }
    }
    workloads
}

/// A second for a million is a microsecond for each.
fn short_unit(unit: &str) -> &str {
    match unit {
        "s per million" => "µs",
        unit => unit,
    }
}

impl Headline {
    fn is_exact(&self) -> bool {
        self.ours == "tollgate, exact"
    }

    /// Leased decisions hardly ever call Redis.
    fn calls_store(&self) -> bool {
        self.goal.1.is_some_and(|goal| goal > 1.0)
    }
}

fn best<'a>(all: &'a Measurements, row: &Headline, role: Role) -> Option<&'a Measurement> {
    let calls_store = |one: &Measurement| all.get(row.workload, &one.name, "store cpu").is_some();
    all.processor_times(row.workload)
        .filter(|one| one.role == role && !ESTIMATORS.contains(&one.name.as_str()))
        .filter(|one| !row.is_exact() || !INEXACT.contains(&one.name.as_str()))
        // The floor of a decision that calls Redis calls it too.
        .filter(|one| role != Role::Floor || calls_store(one) == row.calls_store())
        .min_by(|one, other| one.median.total_cmp(&other.median))
}

fn shown(one: &Measurement, store: Option<&Measurement>) -> String {
    match store {
        Some(store) => format!("{} + {}", round(one.median), round(store.median)),
        None => round(one.median),
    }
}

fn with_store(all: &Measurements, row: &Headline, one: &Measurement) -> String {
    let store = all.get(row.workload, &one.name, "store cpu");
    format!("{} {}", one.name, shown(one, store))
}

fn goal(row: &Headline) -> String {
    match row.goal {
        (ours, Some(store)) => format!("≤ {ours} + {store}"),
        (ours, None) => format!("≤ {ours}"),
    }
}

fn verdict(
    row: &Headline,
    ours: &Measurement,
    store: Option<&Measurement>,
    peer: Option<&Measurement>,
) -> &'static str {
    let store = store.map_or(0.0, |store| store.median);
    let is_met = ours.median <= row.goal.0 && row.goal.1.is_none_or(|goal| store <= goal);
    match (is_met, peer.is_some_and(|peer| peer.median < ours.median)) {
        (_, true) => "**behind a peer**",
        (true, false) => "met",
        (false, false) => "missed",
    }
}

fn latencies(all: &Measurements, row: &Headline) -> String {
    let quantiles = ["p50", "p99", "p99.9"].map(|metric| {
        let found = all.get(row.workload, row.ours, metric);
        found.map(|one| format!("{:.0}", one.median))
    });
    match quantiles {
        [Some(p50), Some(p99), Some(p999)] => format!("{p50} · {p99} · {p999}"),
        _ => "–".to_owned(),
    }
}

/// Three digits that matter.
fn round(number: f64) -> String {
    match number {
        100.0.. => format!("{number:.0}"),
        10.0.. => format!("{number:.1}"),
        _ => format!("{number:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(lines: &[(&str, &str, &str, &str, f64)]) -> Measurements {
        let mut all = Measurements::default();
        for (workload, name, role, metric, median) in lines {
            let line =
                format!("{workload}\t{name}\t{role}\t{metric}\tµs\t{median}\t{median}\t{median}");
            all.read(&line).unwrap();
        }
        all
    }

    #[test]
    fn a_row_says_what_was_met_and_who_is_ahead() {
        let ahead = [
            ("http", "tollgate", "ours", "cpu", 9.5),
            ("http", "throttlecrab-server", "peer", "cpu", 14.7),
            ("http", "bare hyper", "floor", "cpu", 10.1),
        ];
        let table = table(&measured(&ahead));
        assert!(table.contains("| met |"), "{table}");
        assert!(table.contains("throttlecrab-server 14.7"), "{table}");
        assert!(losses(&measured(&ahead)).contains("no peer"));
    }

    #[test]
    fn a_peer_that_is_faster_is_named_even_if_the_goal_is_met() {
        let behind = [
            ("http", "tollgate", "ours", "cpu", 9.5),
            ("http", "nginx limit_req", "peer", "cpu", 7.0),
        ];
        let table = table(&measured(&behind));
        assert!(table.contains("behind a peer"), "{table}");
        let losses = losses(&measured(&behind));
        assert!(
            losses.contains("nginx limit_req takes 7.00 µs, ours 9.50 µs (1.36×)"),
            "{losses}"
        );
    }

    /// HAProxy took half of our time over HTTP/2, and the page did not say so.
    #[test]
    fn a_peer_that_is_faster_in_a_workload_without_a_row_is_named_too() {
        let all = measured(&[
            ("gateway proxied http2", "tollgate", "ours", "cpu", 20.0),
            ("gateway proxied http2", "HAProxy", "peer", "cpu", 10.0),
            ("gateway proxied http2", "bare proxy", "floor", "cpu", 5.0),
            ("gateway first byte", "tollgate", "ours", "p50", 100.0),
            ("gateway first byte", "HAProxy", "peer", "p50", 50.0),
        ]);
        let expected = "- gateway proxied http2: HAProxy takes 10.0 µs, ours 20.0 µs (2.00×).\n";
        assert_eq!(losses(&all), expected);
    }

    #[test]
    fn the_floor_of_an_exact_decision_calls_redis_and_that_of_a_leased_one_does_not() {
        let all = measured(&[
            ("redis grpc", "tollgate, exact", "ours", "cpu", 15.0),
            ("redis grpc", "tollgate, leased", "ours", "cpu", 8.0),
            ("redis grpc", "bare tonic", "floor", "cpu", 7.0),
            ("redis grpc", "with a call", "floor", "cpu", 20.0),
            ("redis grpc", "with a call", "floor", "store cpu", 9.0),
        ]);
        let table = table(&all);
        let (exact, leased) = table.split_once("leased").unwrap();
        assert!(exact.contains("with a call 20.0 + 9.00"), "{table}");
        assert!(leased.contains("bare tonic 7.00"), "{table}");
    }

    #[test]
    fn the_best_peer_of_an_exact_decision_is_exact_and_another_is_named_where_we_lose() {
        let all = measured(&[
            ("redis grpc", "tollgate, exact", "ours", "cpu", 9.0),
            ("redis grpc", "tollgate, leased", "ours", "cpu", 3.0),
            ("redis grpc", "envoyproxy/ratelimit", "peer", "cpu", 50.0),
            ("redis grpc", "limitador-server, cached", "peer", "cpu", 8.0),
        ]);
        let table = table(&all);
        let (exact, leased) = table.split_once("leased").unwrap();
        assert!(exact.contains("envoyproxy/ratelimit 50.0"), "{table}");
        assert!(leased.contains("limitador-server, cached 8.00"), "{table}");
        let losses = losses(&all);
        assert!(losses.contains("limitador-server, cached takes 8.00"));
    }

    #[test]
    fn redis_counts_and_a_missed_part_of_a_goal_is_a_miss() {
        let all = measured(&[
            ("redis http", "tollgate, exact", "ours", "cpu", 15.0),
            ("redis http", "tollgate, exact", "ours", "store cpu", 12.0),
        ]);
        let table = table(&all);
        assert!(
            table.contains("**15.0 + 12.0**") && table.contains("| missed |"),
            "{table}"
        );
    }
}
