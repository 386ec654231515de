//! Reads every number there is and writes the page. The number of series does not grow with keys, and only so far with
//! limits.
//!
//! Must not know: HTTP, how numbers are counted or spelt.

use std::sync::atomic::Ordering;

use tollgate_engine::control::{Halt, OperatorState};
use tollgate_engine::{ComparisonTotals, Generation, LimitTotals};
use tollgate_fleet::Fleet;
use tollgate_store::{Clock, MemoryStore};

use super::exposition::{MetricsFormat, MetricsPage};
use super::families::{self as are, MetricFamily};
use super::process::ProcessStats;
use super::sources::{CertificateStatus, ListenerCounts, MetricSources, QuotaCounts};
use super::{
    AdminRejection, DegradationCause, Metrics, RequestOutcome, ThrottleCommand, Transport, reasons,
};
use crate::fleet::{Membership, Mismatch};
use crate::reload::ReloadStatus;
use crate::saturation::Saturation;

/// So many limits have series of their own, the first ones of the policy. The rest is added up under [`OTHER`], so that a
/// policy with thousands of limits does not flood the database that keeps the series.
pub(crate) const MAX_LIMIT_SERIES: usize = 500;
/// What the limits beyond that are called.
const OTHER: &str = "other";

/// One number of several that are counted together.
type Getter<T> = fn(&T) -> u64;

type Listeners<'a> = &'a [(&'static str, ListenerCounts)];

/// The page.
#[must_use]
pub fn gather<C: Clock>(from: &MetricSources<'_, C>, format: MetricsFormat) -> String {
    let mut page = MetricsPage::new(format);
    let service = from.service;
    let engine = service.engine();
    let now = service.now();
    let metrics = service.metrics();
    write_limits(&mut page, &engine.generation(), from.descriptor_rules);
    write_requests(&mut page, metrics, from.listeners);
    let mut stores = vec![("policy", engine.store())];
    stores.extend(from.throttle_store.map(|store| ("throttle", store)));
    write_stores(&mut page, &stores);
    if let Some(fleet) = service.fleet() {
        write_shared_store(&mut page, fleet);
    }
    let mut degraded = page.family(&are::DEGRADED);
    for cause in DegradationCause::ALL {
        degraded.add(&[cause.name()], metrics.is_degraded(cause, now).into());
    }
    write_saturation(&mut page, service.saturation());
    if let Some(age) = service.decision_age() {
        page.family(&are::DECISION_AGE)
            .add_nanos(&[], age.as_nanos());
    }
    write_listeners(&mut page, from.listeners);
    write_certificate(&mut page, from.certificate);
    write_policy(&mut page, from.generation, from.files.as_ref());
    write_operators(&mut page, &engine.control().operator_state());
    write_fleet(&mut page, from.fleet);
    let (dropped, open) = service.ticket_usage();
    page.family(&are::TICKETS_OPEN).add(&[], open as u64);
    page.family(&are::TICKETS_GIVEN_UP).add(&[], dropped);
    write_quotas(&mut page, &from.quotas);
    let mut rejected = page.family(&are::ADMIN_REJECTED);
    for (why, counter) in AdminRejection::ALL.into_iter().zip(&metrics.rejected) {
        rejected.add(&[why.name()], counter.load(Ordering::Relaxed));
    }
    let suppressed = metrics.suppressed_logs.load(Ordering::Relaxed);
    page.family(&are::LOGS_SUPPRESSED).add(&[], suppressed);
    page.family(&are::LOG_LINES_DROPPED)
        .add(&[], metrics.dropped_log_lines());
    page.family(&are::BUILD)
        .add(&[env!("CARGO_PKG_VERSION")], 1);
    write_process(&mut page, &ProcessStats::current());
    page.finish()
}

/// What limits, rules of Envoy's files and candidates have decided, each under its name; those beyond the bound together.
fn write_limits(
    page: &mut MetricsPage,
    generation: &Generation,
    of_files: &[(Box<str>, LimitTotals)],
) {
    let names = generation.rules().rules().iter().map(|rule| &*rule.name);
    let counted = |index| generation.totals(index).unwrap_or_default();
    let named = names.clone().enumerate();
    let of_policy = named.clone().map(|(index, name)| (name, counted(index)));
    let of_files = of_files.iter().map(|(name, counted)| (&**name, *counted));
    let counted = fold_series(of_policy.chain(of_files), add_totals);
    let mut family = page.family(&are::LIMIT_DECISIONS);
    for (limit, sum) in &counted {
        family
            .add(&[limit, "allowed"], sum.allowed)
            .add(&[limit, "denied"], sum.denied)
            .add(&[limit, "would_deny"], sum.would_deny);
    }
    let single: [(MetricFamily, Getter<LimitTotals>); 4] = [
        (are::LIMIT_NEAR, |sum| sum.near_limit),
        (are::LIMIT_WAITS, |sum| sum.waited),
        (are::LIMIT_STORE_ERRORS, |sum| sum.errors),
        (are::LIMIT_OVERFLOW, |sum| sum.overflow),
    ];
    for (family, value) in &single {
        let mut family = page.family(family);
        for (limit, sum) in &counted {
            family.add(&[limit], value(sum));
        }
    }
    let compared =
        named.filter_map(|(index, name)| Some((name, generation.comparison_totals(index)?)));
    let compared = fold_series(compared, add_comparisons);
    let mut family = page.family(&are::CANDIDATE_COMPARED);
    for (limit, sum) in &compared {
        family.add(&[limit], sum.compared);
    }
    let mut family = page.family(&are::CANDIDATE_DIVERGED);
    for (limit, sum) in &compared {
        family
            .add(&[limit, "would_deny"], sum.would_deny)
            .add(&[limit, "would_allow"], sum.would_allow);
    }
    let mut family = page.family(&are::CANDIDATE_UNKNOWN);
    for (limit, sum) in &compared {
        family.add(&[limit], sum.unknown);
    }
}

/// What has become of calls of the store that a fleet shares. Parts of it are few, at most 64.
fn write_shared_store(page: &mut MetricsPage, fleet: &Fleet) {
    let counted = fleet.totals();
    page.family(&are::SHARED_CALLS)
        .add(&["answered"], counted.answered)
        .add(&["refused"], counted.refused)
        .add(&["busy"], counted.busy)
        .add(&["ambiguous"], counted.ambiguous);
    let is_degraded = fleet.is_degraded().into();
    page.family(&are::SHARED_DEGRADED).add(&[], is_degraded);
    let mut state = page.family(&are::BREAKER);
    for (part, breaker) in fleet.breakers().iter().enumerate() {
        state.add(&[&part.to_string()], (!breaker.is_closed()).into());
    }
    for (family, count) in [
        (are::BREAKER_OPENINGS, counted.openings),
        (are::LOCAL_DECISIONS, counted.fallback),
        (are::DENIALS_REMEMBERED, counted.cached_denials),
        (are::REPLAYED, counted.replayed),
        (are::REPLAY_LOST, counted.replay_dropped),
    ] {
        page.family(&family).add(&[], count);
    }
}

/// The first so many by their names, and the sum of the rest under one. A limit that is itself called so is part of it.
fn fold_series<'a, T: Default>(
    all: impl Iterator<Item = (&'a str, T)>,
    add: fn(&mut T, T),
) -> Vec<(&'a str, T)> {
    let mut listed: Vec<(&str, T)> = Vec::new();
    let mut rest = None;
    for (index, (name, value)) in all.enumerate() {
        if index < MAX_LIMIT_SERIES && name != OTHER {
            listed.push((name, value));
        } else {
            add(rest.get_or_insert_default(), value);
        }
    }
    listed.extend(rest.map(|rest| (OTHER, rest)));
    listed
}

fn add_totals(sum: &mut LimitTotals, more: LimitTotals) {
    sum.allowed = sum.allowed.saturating_add(more.allowed);
    sum.denied = sum.denied.saturating_add(more.denied);
    sum.would_deny = sum.would_deny.saturating_add(more.would_deny);
    sum.waited = sum.waited.saturating_add(more.waited);
    sum.near_limit = sum.near_limit.saturating_add(more.near_limit);
    sum.errors = sum.errors.saturating_add(more.errors);
    sum.overflow = sum.overflow.saturating_add(more.overflow);
}

fn add_comparisons(sum: &mut ComparisonTotals, more: ComparisonTotals) {
    sum.compared = sum.compared.saturating_add(more.compared);
    sum.would_deny = sum.would_deny.saturating_add(more.would_deny);
    sum.would_allow = sum.would_allow.saturating_add(more.would_allow);
    sum.unknown = sum.unknown.saturating_add(more.unknown);
}

/// What was answered, how long it took, and who waits.
fn write_requests(page: &mut MetricsPage, metrics: &Metrics, listeners: Listeners<'_>) {
    let answered = metrics.requests.read();
    let each = |transport: Transport| RequestOutcome::ALL.map(|answered| (transport, answered));
    let mut family = page.family(&are::REQUESTS);
    for ((transport, outcome), count) in Transport::ALL
        .iter()
        .flat_map(|one| each(*one))
        .zip(answered)
    {
        family.add(&[transport.name(), outcome.name()], count);
    }
    let mut family = page.family(&are::REFUSALS);
    for (reason, count) in reasons().zip(metrics.refusals.read()) {
        family.add(&[reason], count);
    }
    let mut family = page.family(&are::DURATION);
    for transport in Transport::ALL {
        if let Some(spans) = metrics.duration_snapshot(transport) {
            family.add_histogram(&[transport.name()], &spans);
        }
    }
    page.family(&are::WAIT)
        .add_histogram(&[], &metrics.waits.read());
    let mut family = page.family(&are::WAITING);
    for (name, counts) in listeners {
        family.add(&[name], counts.waiting);
    }
    let throttled = metrics.throttled.read();
    let mut family = page.family(&are::THROTTLE);
    let each = |command: ThrottleCommand| ["allowed", "denied"].map(|outcome| (command, outcome));
    for ((command, outcome), count) in ThrottleCommand::ALL
        .iter()
        .flat_map(|one| each(*one))
        .zip(throttled)
    {
        family.add(&[command.name(), outcome], count);
    }
}

/// How full stores are, and what they had to do about it.
fn write_stores<C: Clock>(page: &mut MetricsPage, stores: &[(&str, &MemoryStore<C>)]) {
    let all: Vec<_> = stores
        .iter()
        .map(|(name, store)| (*name, store.usage(), store.occupancy()))
        .collect();
    let mut family = page.family(&are::STORE_SLOTS);
    for (name, _, occupancy) in &all {
        family.add(&[name], occupancy.slots);
    }
    let mut family = page.family(&are::STORE_LIVE);
    for (name, _, occupancy) in &all {
        family.add(&[name], occupancy.live);
    }
    let mut family = page.family(&are::STORE_EVICTIONS);
    for (name, usage, _) in &all {
        family.add(&[name], usage.evictions);
    }
    let mut family = page.family(&are::STORE_OVERFLOW);
    for (name, usage, _) in &all {
        family.add(&[name], usage.overflow_decisions);
    }
    let mut family = page.family(&are::STORE_BYTES);
    for (name, usage, _) in &all {
        family
            .add(&[name, "tables"], usage.table_bytes as u64)
            .add(&[name, "collections"], usage.collection_bytes as u64);
    }
}

/// How busy the server is, and what that has led to.
fn write_saturation(page: &mut MetricsPage, saturation: &Saturation) {
    let most = saturation.max_waiting() as u64;
    page.family(&are::MOST_WAITING).add(&[], most);
    page.family(&are::CROWDED_OUT)
        .add(&["refused"], saturation.refused())
        .add(&["let_through"], saturation.let_through());
    let late = saturation.late_micros().saturating_mul(1_000);
    page.family(&are::RUNTIME_LATE).add_nanos(&[], late);
}

fn write_listeners(page: &mut MetricsPage, listeners: Listeners<'_>) {
    let families: [(MetricFamily, Getter<ListenerCounts>); 6] = [
        (are::CONNECTIONS, |counts| counts.open),
        (are::CONNECTIONS_ACCEPTED, |counts| counts.accepted),
        (are::CONNECTIONS_REFUSED, |counts| {
            counts.refused_connections
        }),
        (are::ACCEPT_ERRORS, |counts| counts.accept_errors),
        (are::FAILED_HANDSHAKES, |counts| counts.failed_handshakes),
        (are::PANICS, |counts| counts.panics),
    ];
    for (family, value) in &families {
        let mut family = page.family(family);
        for (name, counts) in listeners {
            family.add(&[name], value(counts));
        }
    }
}

/// Until when the certificate is good, and what became of its files.
fn write_certificate(page: &mut MetricsPage, status: Option<CertificateStatus>) {
    let mut family = page.family(&are::TLS_EXPIRES);
    if let Some(status) = status {
        family.add(&[], status.expires);
    }
    let mut family = page.family(&are::TLS_RELOADS);
    if let Some(status) = status {
        family
            .add(&["loaded"], status.loads)
            .add(&["refused"], status.refusals);
    }
}

/// Which policy is in force, and what became of its file.
fn write_policy(page: &mut MetricsPage, generation: u64, status: Option<&ReloadStatus>) {
    page.family(&are::GENERATION).add(&[], generation);
    // A policy that comes from no file cannot be at odds with one.
    let valid = status.is_none_or(|status| status.valid);
    page.family(&are::POLICY_VALID).add(&[], valid.into());
    let mut family = page.family(&are::POLICY_LOADED_AT);
    if let Some(status) = status {
        family.add_nanos(&[], status.loaded_at.as_nanos());
    }
    let (loads, refusals) =
        status.map_or((generation, 0), |status| (status.loads, status.refusals));
    page.family(&are::RELOADS)
        .add(&["loaded"], loads)
        .add(&["refused"], refusals);
}

/// What operators have said.
fn write_operators(page: &mut MetricsPage, controls: &OperatorState) {
    let switches = || controls.limits.values().chain([&controls.everything]);
    let halted = |halt| {
        switches()
            .filter(|switch| switch.halt == Some(halt))
            .count()
    };
    page.family(&are::SWITCHES)
        .add(&["shadow"], halted(Halt::Shadow) as u64)
        .add(&["off"], halted(Halt::Off) as u64);
    page.family(&are::OVERRIDES)
        .add(&[], controls.overrides.len() as u64);
    page.family(&are::BLOCKS)
        .add(&[], controls.blocks.len() as u64);
}

/// What Envoy was given in advance.
fn write_quotas(page: &mut MetricsPage, counts: &QuotaCounts) {
    page.family(&are::QUOTA_STREAMS).add(&[], counts.streams);
    page.family(&are::QUOTA_BUCKETS).add(&[], counts.buckets);
    page.family(&are::QUOTA_REPORTS).add(&[], counts.reports);
    page.family(&are::QUOTA_ASSIGNMENTS)
        .add(&["changed"], counts.changed)
        .add(&["repeated"], counts.repeated);
    page.family(&are::QUOTA_ABANDONED)
        .add(&[], counts.abandoned);
    page.family(&are::QUOTA_REFUSED).add(&[], counts.refused);
}

/// Who else is there.
fn write_fleet(page: &mut MetricsPage, membership: Option<&Membership>) {
    let seen = membership.map(|membership| (membership, membership.view()));
    let mut family = page.family(&are::FLEET_NODES);
    if let Some((membership, _)) = &seen {
        family.add(&[], membership.fleet_size().count().get().into());
    }
    let mut family = page.family(&are::FLEET_MISMATCH);
    if let Some((_, view)) = &seen {
        for (what, nodes) in Mismatch::ALL.into_iter().zip(view.mismatches) {
            family.add(&[what.name()], nodes as u64);
        }
    }
    let mut family = page.family(&are::FLEET_CONTROLS_VERSION);
    if let Some((_, view)) = &seen {
        family.add(&[], view.controls_version);
    }
    let mut family = page.family(&are::FLEET_CONTROLS_WAITING);
    if let Some((_, view)) = &seen {
        family.add(&[], view.pending_changes as u64);
    }
    let mut family = page.family(&are::FLEET_BEAT_AGE);
    if let Some((_, view)) = &seen {
        family.add_nanos(&[], view.beat_age.as_nanos());
    }
    let mut family = page.family(&are::FLEET_PANICS);
    if let Some((membership, _)) = &seen {
        family.add(&[], membership.panics());
    }
}

fn write_process(page: &mut MetricsPage, seen: &ProcessStats) {
    let nanos = [
        (are::PROCESS_CPU, seen.cpu_nanos),
        (are::PROCESS_STARTED, seen.started_nanos),
    ];
    for (family, value) in &nanos {
        let mut family = page.family(family);
        if let Some(value) = value {
            family.add_nanos(&[], *value);
        }
    }
    let whole = [
        (are::PROCESS_RESIDENT, seen.resident_bytes),
        (are::PROCESS_VIRTUAL, seen.virtual_bytes),
        (are::PROCESS_FDS, seen.open_fds),
        (are::PROCESS_MAX_FDS, seen.max_fds),
        (are::PROCESS_THREADS, seen.threads),
    ];
    for (family, value) in &whole {
        let mut family = page.family(family);
        if let Some(value) = value {
            family.add(&[], *value);
        }
    }
}
