//! Served paths that keep something between two messages: tickets of the Redis protocol, quota streams, the metrics page.
//!
//! The clock stands still. Must not know: how any of it is done.

use std::hint::black_box;
use std::pin::pin;
use std::sync::Arc;

use tollgate_envoy::rlqs::{QuotaCounts, RlqsSession};
use tollgate_policy::load;
use tollgate_policy::source::SourceFormat;
use tollgate_server::App;
use tollgate_server::resp::{Pipeline, RespServer, RespSession};
use tollgate_service::metrics::{MetricSources, MetricsFormat, gather};
use tollgate_store::{ManualClock, MemoryStore};

use super::transports::{app, at_once};
use super::{CaseRun, NOW};
use crate::measure::measured_section;

const ACQUIRE: &[u8] =
    b"*3\r\n$10\r\nTG.ACQUIRE\r\n$16\r\nheader.x-api-key\r\n$16\r\nuser000000000001\r\n";

/// Domain `bench`, and one bucket: `user` is `user000000000001`, ten requests in five seconds.
const REPORT: &[u8] =
    b"\x0a\x05bench\x12\x22\x0a\x1a\x0a\x18\x0a\x04user\x12\x10user000000000001\x12\x02\x08\x05\x18\x0a";

/// `TG.ACQUIRE` and `TG.RELEASE` of its ticket.
pub(super) fn acquire_release(times: u64) -> CaseRun {
    let text = "limits: [{ name: parallel, key: header.x-api-key, concurrency: 100, lease: 60s }]";
    let policy =
        load(text, "bench.yaml", SourceFormat::Yaml).map_err(|problems| problems.to_string())?;
    let app = App::new(&policy, 1_000, ManualClock::at(NOW))?;
    let store = MemoryStore::with_clock(1_000, ManualClock::at(NOW))?;
    let server = RespServer::new(store)?.with_checker(Arc::clone(app.service()) as Arc<_>);
    let mut session = server.session(None);
    let mut out = Vec::with_capacity(4_096);
    let mut run = || {
        let mut acquire = black_box(ACQUIRE).to_vec();
        reply(&server, &mut session, &mut acquire, &mut out);
        // The ticket is the last value: 32 digits and a line break.
        let ticket = out.len().checked_sub(34).and_then(|at| out.get(at..));
        let mut release = b"*2\r\n$10\r\nTG.RELEASE\r\n$32\r\n".to_vec();
        release.extend_from_slice(ticket.unwrap_or_default());
        reply(&server, &mut session, &mut release, &mut out);
        out == b":1\r\n"
    };
    if !run() {
        return Err(format!("answered: {}", out.escape_ascii()).into());
    }
    measured_section(times, run);
    Ok(())
}

fn reply<'s>(
    server: &'s RespServer<ManualClock>,
    session: &mut RespSession,
    input: &mut [u8],
    out: &mut Vec<u8>,
) {
    out.clear();
    let mut pipeline = Pipeline::<'s>::new();
    server.feed(session, input, &mut pipeline, out);
    if !pipeline.is_empty() {
        let drained = at_once(pin!(server.drain(session, &mut pipeline, out)));
        debug_assert!(drained.is_some());
    }
}

/// A report of one bucket on a quota stream, and the look whether an assignment is due.
pub(super) fn rlqs_report(times: u64) -> CaseRun {
    let app = app(1_000_000_000)?;
    let mut session = RlqsSession::open(Arc::clone(app.envoy())).ok_or("too many clients")?;
    let mut out = Vec::with_capacity(4_096);
    session.handle_message(REPORT)?;
    let counts = app.envoy().quota_counts();
    if (counts.buckets, counts.reports, counts.refused) != (1, 1, 0) {
        return Err(format!("after the first report: {counts:?}").into());
    }
    measured_section(times, || {
        out.clear();
        let handled = session.handle_message(black_box(REPORT)).is_ok();
        (handled, session.next_message(&mut out))
    });
    Ok(())
}

/// The metrics page with two limits.
pub(super) fn metrics_page(times: u64) -> CaseRun {
    let app = app(1_000_000_000)?;
    let sources = MetricSources {
        service: app.service(),
        descriptor_rules: &[],
        throttle_store: None,
        listeners: &[],
        buffered_bytes: (0, 0),
        certificate: None,
        generation: 1,
        files: None,
        quotas: QuotaCounts::default(),
        gateway: None,
        fleet: None,
    };
    if !gather(&sources, MetricsFormat::Prometheus).contains("per-user") {
        return Err("the page has no series of a limit".into());
    }
    measured_section(times, || {
        gather(black_box(&sources), MetricsFormat::Prometheus).len()
    });
    Ok(())
}
