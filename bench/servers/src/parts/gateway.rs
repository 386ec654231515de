//! Proxies with limits before the same upstream: what a forwarded and a rejected request cost, how long they take, and what idle
//! connections hold.
//!
//! Must not know: how any proxy is configured.

use std::time::Duration;

use super::{Keys, Report, Workload, streams};
use crate::contenders::Contender;
use crate::contenders::gateway::{ENVOY, NGINX, Proxy, Quota, Upstream};
use crate::load::open::Waiting;
use crate::load::{Shape, Way, open};
use crate::options::Options;
use crate::resident::{idle, megabytes};
use crate::stats::{Spread, Table};
use crate::study::quantiles;
use crate::system;

/// Clients with one request at a time each.
const CLIENTS: Shape = streams(64, 1);
/// Keys of the requests that are forwarded.
const KEYS: u32 = 1_000;
/// Requests a second, few enough that none waits for another.
const QUIET_RATE: f64 = 1_000.0;
/// How long connections are idle before their memory is measured.
const IDLE_TIME: Duration = Duration::from_secs(3);
/// Files that are open besides connections.
const SPARE_FILES: u64 = 200;

pub(super) fn run(options: &Options, report: &mut Report) -> Result<(), String> {
    let open_files = system::raise_open_files();
    let upstream = Upstream::start()?;
    rejected(options, &upstream, report)?;
    let proxies = Proxy::start_all(options, &upstream, Quota::Generous)?;
    proxied(options, &proxies, report)?;
    first_byte(options, &upstream, &proxies, report)?;
    match open_files < options.idle as u64 + SPARE_FILES {
        true => eprintln!("idle connections: this system allows too few open files"),
        false => resident(options, &proxies, report)?,
    }
    Ok(())
}

fn proxied(options: &Options, proxies: &[Proxy], report: &mut Report) -> Result<(), String> {
    let http1 = Workload {
        id: "gateway proxied",
        title: "Gateway, HTTP/1.1, forwarded",
        shape: CLIENTS,
        keys: Keys::Many(KEYS),
    };
    let contenders: Vec<Contender> = proxies.iter().map(Proxy::http1).collect();
    let study = report.study(options, http1, &contenders)?;
    let what = "forwarded requests per CPU second, beside";
    let goals = &mut report.goals;
    goals.at_least(&format!("{what} nginx"), 0.7, study.times_ours(NGINX));
    goals.at_least(&format!("{what} Envoy"), 1.0, study.times_ours(ENVOY));
    let http2 = Workload {
        id: "gateway proxied http2",
        title: "Gateway, HTTP/2 in, 4 connections × 16 streams, forwarded",
        shape: streams(4, 16),
        keys: Keys::Many(KEYS),
    };
    let contenders: Vec<Contender> = proxies.iter().map(Proxy::http2).collect();
    report.study(options, http2, &contenders)?;
    Ok(())
}

fn rejected(options: &Options, upstream: &Upstream, report: &mut Report) -> Result<(), String> {
    let proxies = Proxy::start_all(options, upstream, Quota::One)?;
    let contenders: Vec<Contender> = proxies.iter().map(Proxy::http1).collect();
    let workload = Workload {
        id: "gateway rejected",
        title: "Gateway, HTTP/1.1, rejected",
        shape: CLIENTS,
        keys: Keys::Hot,
    };
    let study = report.study(options, workload, &contenders)?;
    let what = "a rejected request's CPU, beside nginx";
    report.goals.at_most(what, 1.25, study.ours_to(NGINX));
    Ok(())
}

/// What a proxy adds to the time of a request when nothing else is under way. The response is one segment, so its first byte
/// arrives with its last.
fn first_byte(
    options: &Options,
    upstream: &Upstream,
    proxies: &[Proxy],
    report: &mut Report,
) -> Result<(), String> {
    let title =
        format!("Gateway, time to the response at {QUIET_RATE} requests a second, HTTP/1.1");
    eprintln!("{title}");
    let contenders: Vec<Contender> = std::iter::once(upstream.direct())
        .chain(proxies.iter().map(Proxy::http1))
        .collect();
    let numbers = vec![0; (options.requests / 8).max(500)];
    let mut series = vec![[const { Vec::new() }; 4]; contenders.len()];
    for _ in 0..options.latency_rounds {
        let mut direct = 0.0;
        for (contender, series) in contenders.iter().zip(&mut series) {
            let way = Way {
                address: contender.address,
                shape: CLIENTS,
                talk: &*contender.talk,
            };
            let times = open::lap(&way, &numbers, QUIET_RATE, Waiting::Sleep)
                .map_err(|error| format!("{title}, {}: {error}", contender.name))?;
            let [p50, p99, p999] = quantiles(&times);
            if contender.store.is_none() {
                direct = p50;
            }
            for (values, value) in series.iter_mut().zip([p50, p99, p999, p50 - direct]) {
                values.push(value);
            }
        }
    }
    let head = ["", "p50 µs", "p99 µs", "p99.9 µs", "added at p50, µs"];
    let mut table = Table::new(title, &head);
    for (contender, series) in contenders.iter().zip(&series) {
        let spreads = series.each_ref().map(|one| Spread::of(one.iter().copied()));
        let [p50, .., added] = spreads;
        let name = contender.name;
        let shown = spreads.map(|spread| spread.show(0));
        table.row([name.to_owned()].into_iter().chain(shown).collect());
        let who = (name, contender.role);
        let all = &mut report.measurements;
        all.add("gateway first byte", who, ("p50", "µs"), p50);
        all.add("gateway first byte", who, ("added p50", "µs"), added);
        if contender.role == crate::measurements::Role::Ours {
            let what = "time to first byte that the gateway adds, p50";
            report.goals.microseconds(what, 60.0, added);
        }
    }
    report.print(&table);
    Ok(())
}

/// Connections that have had one response each.
fn resident(options: &Options, proxies: &[Proxy], report: &mut Report) -> Result<(), String> {
    let count = options.idle;
    let title = format!("Gateway, resident memory with {count} idle connections, HTTP/1.1");
    let mut table = Table::new(title, &["", "MB before", "MB with them", "KB for each"]);
    for proxy in proxies {
        let contender = proxy.http1();
        eprintln!("{count} idle connections, {}", contender.name);
        let before = contender.server.resident()?;
        let connections = idle(contender.address, count, &contender)?;
        std::thread::sleep(IDLE_TIME);
        let after = contender.server.resident()?;
        drop(connections);
        let each = after.saturating_sub(before) as f64 / count as f64 / 1e3;
        let [before, after] = [before, after].map(megabytes);
        table.row(vec![
            contender.name.to_owned(),
            format!("{before:.1}"),
            format!("{after:.1}"),
            format!("{each:.1}"),
        ]);
        if contender.role == crate::measurements::Role::Ours {
            let what = format!("{count} idle connections of the gateway in all");
            report.goals.megabytes(&what, 150.0, after);
        }
    }
    report.print(&table);
    Ok(())
}
