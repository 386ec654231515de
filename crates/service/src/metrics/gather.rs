//! Collects all metrics and writes the metrics page. The number of series does not depend on keys; `limit_series.rs` bounds it
//! in limits.
//!
//! Must not know: HTTP, how numbers are counted or formatted.

use std::sync::atomic::Ordering;

use tollgate_engine::control::{Halt, OperatorState};
use tollgate_fleet::Fleet;
use tollgate_store::{Clock, MemoryStore};

use super::exposition::{MetricsFormat, MetricsPage};
use super::families::{self, MetricFamily};
use super::gateway_series::write_gateway;
use super::limit_series::write_limits;
use super::overload_series::write_overload;
use super::process::ProcessStats;
use super::sources::{CertificateStatus, ListenerCounts, MetricSources, QuotaCounts};
use super::{
    AdminRejection, DegradationCause, Metrics, RequestOutcome, ThrottleCommand, Transport, reasons,
};
use crate::claims::{TokenCounters, TokenRejection};
use crate::fleet::{Membership, Mismatch, Rejection};
use crate::reload::ReloadStatus;
use crate::saturation::Saturation;

/// Reads one number from a struct of counters.
pub(super) type Getter<T> = fn(&T) -> u64;

type Listeners<'a> = &'a [(&'static str, ListenerCounts)];

/// The metrics page.
#[must_use]
pub fn gather<C: Clock>(from: &MetricSources<'_, C>, format: MetricsFormat) -> String {
    let mut page = MetricsPage::new(format);
    let service = from.service;
    let engine = service.engine();
    let now = service.now();
    let metrics = service.metrics();
    let generation = engine.generation();
    write_limits(&mut page, &generation, from.descriptor_rules, |rule| {
        service.limit_usage(&generation, rule)
    });
    write_requests(&mut page, metrics, from.listeners);
    let mut stores = vec![("policy", engine.store())];
    stores.extend(from.throttle_store.map(|store| ("throttle", store)));
    write_stores(&mut page, &stores);
    if let Some(fleet) = service.fleet() {
        write_shared_store(&mut page, fleet);
    }
    let mut degraded = page.family(&families::DEGRADED);
    for cause in DegradationCause::ALL {
        degraded.add(&[cause.name()], metrics.is_degraded(cause, now).into());
    }
    write_saturation(&mut page, service.saturation());
    if let Some(age) = service.decision_age() {
        page.family(&families::DECISION_AGE)
            .add_nanos(&[], age.as_nanos());
    }
    write_listeners(&mut page, from.listeners);
    if let Some(status) = service.overload_status() {
        write_overload(&mut page, &status);
    }
    if let Some(counts) = &from.gateway {
        write_gateway(&mut page, counts);
    }
    let (buffered, most) = from.buffered_bytes;
    page.family(&families::BUFFERED_BYTES).add(&[], buffered);
    page.family(&families::MAX_BUFFERED_BYTES).add(&[], most);
    write_certificate(&mut page, from.certificate);
    write_policy(&mut page, from.generation, from.files.as_ref());
    write_operators(&mut page, &engine.control().operator_state());
    write_fleet(&mut page, from.fleet);
    let (dropped, open) = service.ticket_usage();
    page.family(&families::TICKETS_OPEN).add(&[], open as u64);
    page.family(&families::TICKETS_DROPPED).add(&[], dropped);
    write_quotas(&mut page, &from.quotas);
    let mut rejected = page.family(&families::ADMIN_REJECTED);
    for (why, counter) in AdminRejection::ALL.into_iter().zip(&metrics.rejected) {
        rejected.add(&[why.name()], counter.load(Ordering::Relaxed));
    }
    let suppressed = metrics.suppressed_logs.load(Ordering::Relaxed);
    page.family(&families::LOGS_SUPPRESSED).add(&[], suppressed);
    page.family(&families::UNTRUSTED_GATEWAYS)
        .add(&[], metrics.untrusted_gateway_requests());
    let [charges, refunds] = &metrics.adjustments;
    page.family(&families::OPERATOR_ADJUSTMENTS)
        .add(&["charge"], charges.load(Ordering::Relaxed))
        .add(&["refund"], refunds.load(Ordering::Relaxed));
    write_tokens(&mut page, service.claims().counters());
    write_dropped_lines(&mut page, metrics);
    if let Some(state) = metrics.state_file() {
        page.family(&families::STATE_SAVES)
            .add(&["saved"], state.saves())
            .add(&["failed"], state.failed_saves());
        page.family(&families::STATE_SAVED_AT)
            .add(&[], state.saved_at().as_nanos() / 1_000_000_000);
        page.family(&families::STATE_DAMAGED)
            .add(&[], state.was_damaged().into());
    }
    page.family(&families::BUILD)
        .add(&[env!("CARGO_PKG_VERSION")], 1);
    write_process(&mut page, &ProcessStats::current());
    page.finish()
}

fn write_dropped_lines(page: &mut MetricsPage, metrics: &Metrics) {
    page.family(&families::LOG_LINES_DROPPED)
        .add(&[], metrics.dropped_log_lines());
    if let Some(dropped) = metrics.dropped_access_log_lines() {
        page.family(&families::ACCESS_LOG_LINES_DROPPED)
            .add(&[], dropped);
    }
}

fn write_tokens(page: &mut MetricsPage, counters: &TokenCounters) {
    let mut tokens = page.family(&families::TOKENS);
    tokens.add(&["verified"], counters.verified());
    tokens.add(&["cached"], counters.cached());
    for reason in TokenRejection::ALL {
        tokens.add(&[reason.as_str()], counters.rejections(reason));
    }
    page.family(&families::TOKEN_SIGNATURES)
        .add(&[], counters.signature_checks());
}

/// Calls of the shared store and its breakers. The store has at most 64 parts.
fn write_shared_store(page: &mut MetricsPage, fleet: &Fleet) {
    let counted = fleet.totals();
    page.family(&families::SHARED_CALLS)
        .add(&["answered"], counted.answered)
        .add(&["refused"], counted.refused)
        .add(&["busy"], counted.busy)
        .add(&["ambiguous"], counted.ambiguous);
    let waiting = u64::try_from(fleet.remote().waiting_calls()).unwrap_or(u64::MAX);
    page.family(&families::SHARED_WAITING).add(&[], waiting);
    let is_degraded = fleet.is_degraded().into();
    page.family(&families::SHARED_DEGRADED)
        .add(&[], is_degraded);
    let mut state = page.family(&families::BREAKER);
    for (part, breaker) in fleet.breakers().iter().enumerate() {
        state.add(&[&part.to_string()], (!breaker.is_closed()).into());
    }
    for (family, count) in [
        (families::BREAKER_OPENINGS, counted.openings),
        (families::LOCAL_DECISIONS, counted.fallback),
        (families::CACHED_DENIALS, counted.cached_denials),
        (families::REPLAYED, counted.replayed),
        (families::REPLAY_DROPPED, counted.replay_dropped),
    ] {
        page.family(&family).add(&[], count);
    }
}

/// Requests by outcome, their durations, and requests that wait.
fn write_requests(page: &mut MetricsPage, metrics: &Metrics, listeners: Listeners<'_>) {
    let answered = metrics.requests.read();
    let each = |transport: Transport| RequestOutcome::ALL.map(|answered| (transport, answered));
    let mut family = page.family(&families::REQUESTS);
    for ((transport, outcome), count) in Transport::ALL
        .iter()
        .flat_map(|one| each(*one))
        .zip(answered)
    {
        family.add(&[transport.name(), outcome.name()], count);
    }
    let mut family = page.family(&families::REFUSALS);
    for (reason, count) in reasons().zip(metrics.refusals.read()) {
        family.add(&[reason], count);
    }
    let mut family = page.family(&families::DURATION);
    for transport in Transport::ALL {
        if let Some(spans) = metrics.duration_snapshot(transport) {
            family.add_histogram(&[transport.name()], &spans);
        }
    }
    page.family(&families::WAIT)
        .add_histogram(&[], &metrics.waits.read());
    let mut family = page.family(&families::WAITING);
    for (name, counts) in listeners {
        family.add(&[name], counts.waiting);
    }
    let throttled = metrics.throttled.read();
    let mut family = page.family(&families::THROTTLE);
    let each = |command: ThrottleCommand| ["allowed", "denied"].map(|outcome| (command, outcome));
    for ((command, outcome), count) in ThrottleCommand::ALL
        .iter()
        .flat_map(|one| each(*one))
        .zip(throttled)
    {
        family.add(&[command.name(), outcome], count);
    }
}

/// The occupancy of stores, evictions and overflow.
fn write_stores<C: Clock>(page: &mut MetricsPage, stores: &[(&str, &MemoryStore<C>)]) {
    let all: Vec<_> = stores
        .iter()
        .map(|(name, store)| (*name, store.usage(), store.occupancy()))
        .collect();
    let mut family = page.family(&families::STORE_SLOTS);
    for (name, _, occupancy) in &all {
        family.add(&[name], occupancy.slots);
    }
    let mut family = page.family(&families::STORE_LIVE);
    for (name, _, occupancy) in &all {
        family.add(&[name], occupancy.live);
    }
    let mut family = page.family(&families::STORE_EVICTIONS);
    for (name, usage, _) in &all {
        family.add(&[name], usage.evictions);
    }
    let mut family = page.family(&families::STORE_OVERFLOW);
    for (name, usage, _) in &all {
        family.add(&[name], usage.overflow_decisions);
    }
    let mut family = page.family(&families::STORE_BYTES);
    for (name, usage, _) in &all {
        family
            .add(&[name, "tables"], usage.table_bytes as u64)
            .add(&[name, "collections"], usage.collection_bytes as u64);
    }
}

/// The wait queue and the runtime's delay.
fn write_saturation(page: &mut MetricsPage, saturation: &Saturation) {
    let most = saturation.max_waiting() as u64;
    page.family(&families::MAX_WAITING).add(&[], most);
    page.family(&families::WAIT_QUEUE_FULL)
        .add(&["refused"], saturation.refused())
        .add(&["let_through"], saturation.let_through());
    let late = saturation.late_micros().saturating_mul(1_000);
    page.family(&families::RUNTIME_DELAY).add_nanos(&[], late);
}

fn write_listeners(page: &mut MetricsPage, listeners: Listeners<'_>) {
    let families: [(MetricFamily, Getter<ListenerCounts>); 10] = [
        (families::CONNECTIONS, |counts| counts.open),
        (families::CONNECTIONS_ACCEPTED, |counts| counts.accepted),
        (families::CONNECTIONS_REFUSED, |counts| {
            counts.refused_connections
        }),
        (families::CONNECTIONS_EVICTED, |counts| {
            counts.evicted_connections
        }),
        (families::AUTH_FAILURES, |counts| counts.auth_failures),
        (families::ACCEPT_ERRORS, |counts| counts.accept_errors),
        (families::FAILED_HANDSHAKES, |counts| {
            counts.failed_handshakes
        }),
        (families::BUFFER_REFUSALS, |counts| counts.refused_buffers),
        (families::FLOODS, |counts| counts.floods),
        (families::PANICS, |counts| counts.panics),
    ];
    for (family, value) in &families {
        let mut family = page.family(family);
        for (name, counts) in listeners {
            family.add(&[name], value(counts));
        }
    }
}

/// The certificate's expiry and its reloads.
fn write_certificate(page: &mut MetricsPage, status: Option<CertificateStatus>) {
    let mut family = page.family(&families::TLS_EXPIRES);
    if let Some(status) = status {
        family.add(&[], status.expires);
    }
    let mut family = page.family(&families::TLS_RELOADS);
    if let Some(status) = status {
        family
            .add(&["loaded"], status.loads)
            .add(&["refused"], status.refusals);
    }
}

/// The current policy and its reloads.
fn write_policy(page: &mut MetricsPage, generation: u64, status: Option<&ReloadStatus>) {
    page.family(&families::GENERATION).add(&[], generation);
    // A policy that is not from a file is always valid.
    let valid = status.is_none_or(|status| status.valid);
    page.family(&families::POLICY_VALID).add(&[], valid.into());
    let mut family = page.family(&families::POLICY_LOADED_AT);
    if let Some(status) = status {
        family.add_nanos(&[], status.loaded_at.as_nanos());
    }
    let (loads, refusals) =
        status.map_or((generation, 0), |status| (status.loads, status.refusals));
    page.family(&families::RELOADS)
        .add(&["loaded"], loads)
        .add(&["refused"], refusals);
}

/// Operators' switches, overrides and blocks.
fn write_operators(page: &mut MetricsPage, controls: &OperatorState) {
    let switches = || controls.limits.values().chain([&controls.everything]);
    let halted = |halt| {
        switches()
            .filter(|switch| switch.halt == Some(halt))
            .count()
    };
    page.family(&families::SWITCHES)
        .add(&["shadow"], halted(Halt::Shadow) as u64)
        .add(&["off"], halted(Halt::Off) as u64);
    page.family(&families::OVERRIDES)
        .add(&[], controls.overrides.len() as u64);
    page.family(&families::BLOCKS)
        .add(&[], controls.blocks.len() as u64);
}

/// Quotas that are assigned to Envoy.
fn write_quotas(page: &mut MetricsPage, counts: &QuotaCounts) {
    page.family(&families::QUOTA_STREAMS)
        .add(&[], counts.streams);
    page.family(&families::QUOTA_BUCKETS)
        .add(&[], counts.buckets);
    page.family(&families::QUOTA_REPORTS)
        .add(&[], counts.reports);
    page.family(&families::QUOTA_ASSIGNMENTS)
        .add(&["changed"], counts.changed)
        .add(&["repeated"], counts.repeated);
    page.family(&families::QUOTA_ABANDONED)
        .add(&[], counts.abandoned);
    page.family(&families::QUOTA_REFUSED)
        .add(&[], counts.refused);
}

/// The fleet's nodes and the synchronisation with them.
fn write_fleet(page: &mut MetricsPage, membership: Option<&Membership>) {
    let fleet_view = membership.map(|membership| (membership, membership.view()));
    let mut family = page.family(&families::FLEET_NODES);
    if let Some((membership, _)) = &fleet_view {
        family.add(&[], membership.fleet_size().count().get().into());
    }
    let mut family = page.family(&families::FLEET_MISMATCH);
    if let Some((_, view)) = &fleet_view {
        for (what, nodes) in Mismatch::ALL.into_iter().zip(view.mismatches) {
            family.add(&[what.name()], nodes as u64);
        }
    }
    let mut family = page.family(&families::FLEET_REJECTED);
    if let Some((membership, _)) = &fleet_view {
        for (why, total) in Rejection::ALL
            .into_iter()
            .zip(membership.rejections().totals)
        {
            family.add(&[why.name()], total);
        }
    }
    let mut family = page.family(&families::FLEET_CONTROLS_VERSION);
    if let Some((_, view)) = &fleet_view {
        family.add(&[], view.controls_version);
    }
    let mut family = page.family(&families::FLEET_CONTROLS_WAITING);
    if let Some((_, view)) = &fleet_view {
        family.add(&[], view.pending_changes as u64);
    }
    let mut family = page.family(&families::FLEET_HEARTBEAT_AGE);
    if let Some((_, view)) = &fleet_view {
        family.add_nanos(&[], view.beat_age.as_nanos());
    }
    let mut family = page.family(&families::FLEET_PANICS);
    if let Some((membership, _)) = &fleet_view {
        family.add(&[], membership.panics());
    }
}

fn write_process(page: &mut MetricsPage, stats: &ProcessStats) {
    let nanos = [
        (families::PROCESS_CPU, stats.cpu_nanos),
        (families::PROCESS_STARTED, stats.started_nanos),
    ];
    for (family, value) in &nanos {
        let mut family = page.family(family);
        if let Some(value) = value {
            family.add_nanos(&[], *value);
        }
    }
    let whole = [
        (families::PROCESS_RESIDENT, stats.resident_bytes),
        (families::PROCESS_VIRTUAL, stats.virtual_bytes),
        (families::PROCESS_FDS, stats.open_fds),
        (families::PROCESS_MAX_FDS, stats.max_fds),
        (families::PROCESS_THREADS, stats.threads),
    ];
    for (family, value) in &whole {
        let mut family = page.family(family);
        if let Some(value) = value {
            family.add(&[], *value);
        }
    }
}
