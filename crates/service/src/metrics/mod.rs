//! The metrics of the service: counters by transport, outcome and duration, and the page that exposes them. The engine
//! counts the decisions of each limit.
//!
//! Counting takes no lock, looks nothing up and allocates nothing: every counter has a fixed index, and every thread its own
//! cache line. Must not know: sockets, who reads the metrics, files other than `/proc`.

mod exposition;
mod families;
mod gateway_series;
mod gather;
mod histogram;
mod limit_series;
mod overload_series;
mod process;
mod sources;

pub use exposition::MetricsFormat;
pub use gather::gather;
pub(crate) use process::process_cpu_nanos;
pub use sources::{
    AddressCounts, CertificateStatus, GatewayCounts, ListenerCounts, MetricSources, QuotaCounts,
    UpstreamCounts,
};

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use tollgate_core::{Nanos, Outcome, Timestamp};
use tollgate_engine::control::UnitAdjustment;
use tollgate_engine::{Degradation, DenialReason, ShardedCounters, Verdict};

use crate::state::StateFileStatus;
use histogram::{Histogram, HistogramSnapshot, LATENCY_BUCKETS, WAIT_BUCKETS};

/// How long a cause of degradation is reported after it last occurred.
const DEGRADED_FOR: Nanos = Nanos::from_secs(10);

/// The transport of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transport {
    /// The HTTP API and forward-auth for gateways.
    Http,
    /// Envoy's gRPC.
    Grpc,
    /// Redis commands.
    Resp,
}

/// The outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RequestOutcome {
    /// Admitted.
    Allowed,
    /// Admitted after a wait.
    Waited,
    /// Denied.
    Denied,
    /// A peek; nothing was charged.
    Peeked,
    /// The request was invalid, or could not be decided.
    Failed,
}

/// A Redis command that brings its own quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ThrottleCommand {
    /// `CL.THROTTLE` of redis-cell.
    Cell,
    /// `THROTTLE` of throttlecrab.
    Crab,
    /// `GCRA`.
    Gcra,
}

/// Why decisions were not exact.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DegradationCause {
    /// The store did not answer.
    Store,
    /// The memory store had no slot for a key.
    Overflow,
    /// This server was overloaded.
    Saturation,
}

/// The service's counters.
#[derive(Debug)]
pub struct Metrics {
    /// Outcomes by transport: all outcomes of the first transport, then of the next.
    requests: ShardedCounters<15>,
    durations: [Histogram<17>; 3],
    refusals: ShardedCounters<REASONS>,
    waits: Histogram<11>,
    /// Allowed and denied commands, by command.
    throttled: ShardedCounters<6>,
    /// When decisions were last not exact, by cause, in nanoseconds since 1970.
    degraded: [AtomicU64; 3],
    suppressed_logs: AtomicU64,
    untrusted_gateways: AtomicU64,
    /// Operators' charges and refunds.
    adjustments: [AtomicU64; 2],
    /// Counted where the log is written, if it drops lines.
    dropped_log_lines: OnceLock<Arc<AtomicU64>>,
    dropped_access_log_lines: OnceLock<Arc<AtomicU64>>,
    state_file: OnceLock<Arc<StateFileStatus>>,
    /// Requests that the admin listener rejected, by reason.
    rejected: [AtomicU64; 4],
}

/// Why the admin listener rejected a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdminRejection {
    /// It has no token, or a wrong one.
    Token,
    /// Its token does not permit this.
    Forbidden,
    /// A browser sent it from a page of another origin.
    Origin,
    /// Its token is wrong, and too many answers to wrong tokens are delayed.
    Flood,
}

impl Transport {
    /// Every transport.
    pub const ALL: [Self; 3] = [Self::Http, Self::Grpc, Self::Resp];

    /// Its name in metrics and logs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Grpc => "grpc",
            Self::Resp => "resp",
        }
    }
}

impl RequestOutcome {
    const ALL: [Self; 5] = [
        Self::Allowed,
        Self::Waited,
        Self::Denied,
        Self::Peeked,
        Self::Failed,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Waited => "waited",
            Self::Denied => "denied",
            Self::Peeked => "looked",
            Self::Failed => "failed",
        }
    }

    /// The outcome of a request by the limiter's outcome.
    #[must_use]
    pub const fn from_outcome(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Allow => Self::Allowed,
            Outcome::Wait(_) => Self::Waited,
            Outcome::Deny { .. } | Outcome::Never => Self::Denied,
        }
    }
}

impl ThrottleCommand {
    const ALL: [Self; 3] = [Self::Cell, Self::Crab, Self::Gcra];

    const fn name(self) -> &'static str {
        match self {
            Self::Cell => "CL.THROTTLE",
            Self::Crab => "THROTTLE",
            Self::Gcra => "GCRA",
        }
    }
}

impl DegradationCause {
    const ALL: [Self; 3] = [Self::Store, Self::Overflow, Self::Saturation];

    const fn name(self) -> &'static str {
        match self {
            Self::Store => "store",
            Self::Overflow => "overflow",
            Self::Saturation => "saturation",
        }
    }
}

impl AdminRejection {
    const ALL: [Self; 4] = [Self::Token, Self::Forbidden, Self::Origin, Self::Flood];

    const fn name(self) -> &'static str {
        match self {
            Self::Token => "token",
            Self::Forbidden => "forbidden",
            Self::Origin => "origin",
            Self::Flood => "flood",
        }
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// Counters at zero.
    #[must_use]
    pub fn new() -> Self {
        Self {
            requests: ShardedCounters::new(),
            durations: std::array::from_fn(|_| Histogram::new(&LATENCY_BUCKETS)),
            refusals: ShardedCounters::new(),
            waits: Histogram::new(&WAIT_BUCKETS),
            throttled: ShardedCounters::new(),
            degraded: Default::default(),
            suppressed_logs: AtomicU64::new(0),
            untrusted_gateways: AtomicU64::new(0),
            adjustments: Default::default(),
            dropped_log_lines: OnceLock::new(),
            dropped_access_log_lines: OnceLock::new(),
            state_file: OnceLock::new(),
            rejected: Default::default(),
        }
    }

    /// Exposes a counter of log lines that were dropped. The first one stays.
    pub fn expose_dropped_log_lines(&self, counter: Arc<AtomicU64>) {
        // One process has one log; a second counter would be a bug of the program that starts it.
        let _is_first = self.dropped_log_lines.set(counter).is_ok();
    }

    /// Exposes a counter of access log lines that were dropped. The first one stays.
    pub fn expose_dropped_access_log_lines(&self, counter: Arc<AtomicU64>) {
        let _is_first = self.dropped_access_log_lines.set(counter).is_ok();
    }

    fn dropped_access_log_lines(&self) -> Option<u64> {
        let counter = self.dropped_access_log_lines.get()?;
        Some(counter.load(Ordering::Relaxed))
    }

    /// Exposes the counters of the state file. The first one stays.
    pub fn expose_state_file(&self, status: Arc<StateFileStatus>) {
        let _is_first = self.state_file.set(status).is_ok();
    }

    /// The counters of the state file, if there is one.
    pub fn state_file(&self) -> Option<&StateFileStatus> {
        self.state_file.get().map(|status| &**status)
    }

    fn dropped_log_lines(&self) -> u64 {
        let counter = self.dropped_log_lines.get();
        counter.map_or(0, |counter| counter.load(Ordering::Relaxed))
    }

    /// Counts a verdict of the engine. Every transport calls this once for each verdict that it returns. `now` is called only
    /// if the verdict is degraded.
    #[inline]
    pub fn record_verdict(
        &self,
        transport: Transport,
        verdict: &Verdict,
        is_peek: bool,
        now: impl Fn() -> Timestamp,
    ) {
        if is_peek {
            return self.record_outcome(transport, RequestOutcome::Peeked);
        }
        let outcome = verdict.outcome();
        self.record_outcome(transport, RequestOutcome::from_outcome(outcome));
        if outcome != Outcome::Allow || verdict.degraded() != Degradation::default() {
            self.record_reasons(verdict, now);
        }
    }

    /// Counts why a verdict is not a plain admission.
    #[inline(never)]
    fn record_reasons(&self, verdict: &Verdict, now: impl Fn() -> Timestamp) {
        match verdict.outcome() {
            Outcome::Allow => {}
            Outcome::Wait(wait) => self.waits.observe(wait, 1),
            _ => self.refusals.add(reason_index(verdict.reason()), 1),
        }
        let degraded = verdict.degraded();
        if degraded.store {
            self.record_degradation(DegradationCause::Store, now());
        }
        if degraded.overflow {
            self.record_degradation(DegradationCause::Overflow, now());
        }
    }

    /// Counts a request without a verdict of the engine: an invalid one, or one that Envoy's rules decide.
    #[inline]
    pub fn record_outcome(&self, transport: Transport, answered: RequestOutcome) {
        self.record_outcomes(transport, answered, 1);
    }

    /// The same for several requests.
    #[inline]
    pub fn record_outcomes(&self, transport: Transport, answered: RequestOutcome, times: u64) {
        let first = (transport as usize).wrapping_mul(RequestOutcome::ALL.len());
        self.requests
            .add(first.wrapping_add(answered as usize), times);
    }

    /// Records the duration of requests that were answered together.
    #[inline]
    pub fn observe_duration(&self, transport: Transport, span: Nanos, times: u64) {
        if let Some(histogram) = self.durations.get(transport as usize) {
            histogram.observe(span, times);
        }
    }

    /// Counts Redis commands that bring their own quota.
    #[inline]
    pub fn record_throttle_commands(&self, command: ThrottleCommand, allowed: u64, denied: u64) {
        let first = (command as usize).wrapping_mul(2);
        if allowed > 0 {
            self.throttled.add(first, allowed);
        }
        if denied > 0 {
            self.throttled.add(first.wrapping_add(1), denied);
        }
    }

    /// Records that a decision was not exact.
    pub fn record_degradation(&self, cause: DegradationCause, now: Timestamp) {
        if let Some(last) = self.degraded.get(cause as usize) {
            last.fetch_max(now.as_nanos(), Ordering::Relaxed);
        }
    }

    pub(crate) fn record_suppressed_log(&self) {
        self.suppressed_logs.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a request of a gateway that is not trusted.
    pub fn record_untrusted_gateway(&self) {
        self.untrusted_gateways.fetch_add(1, Ordering::Relaxed);
    }

    /// The number of those.
    #[must_use]
    pub fn untrusted_gateway_requests(&self) -> u64 {
        self.untrusted_gateways.load(Ordering::Relaxed)
    }

    /// Counts a charge or a refund by an operator.
    pub(crate) fn record_adjustment(&self, adjustment: UnitAdjustment) {
        let [charges, refunds] = &self.adjustments;
        let counter = match adjustment {
            UnitAdjustment::Charge(_) => charges,
            UnitAdjustment::Refund(_) => refunds,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a request that the admin listener rejected.
    pub fn record_admin_rejection(&self, why: AdminRejection) {
        if let Some(counter) = self.rejected.get(why as usize) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The number of requests of a transport with this outcome.
    #[must_use]
    pub fn outcome_count(&self, transport: Transport, answered: RequestOutcome) -> u64 {
        let index =
            (transport as usize * RequestOutcome::ALL.len()).saturating_add(answered as usize);
        self.requests.read().get(index).copied().unwrap_or_default()
    }

    fn is_degraded(&self, cause: DegradationCause, now: Timestamp) -> bool {
        let last = self.degraded.get(cause as usize);
        let last = last.map_or(0, |last| last.load(Ordering::Relaxed));
        last > 0 && now.since(Timestamp::from_nanos(last)) < DEGRADED_FOR
    }

    fn duration_snapshot(&self, transport: Transport) -> Option<HistogramSnapshot> {
        self.durations.get(transport as usize).map(Histogram::read)
    }
}

/// Refusals are counted by reason, with one more counter for those without a reason.
const REASONS: usize = DenialReason::ALL.len() + 1;

/// The labels of reasons, in the order of their counters.
fn reasons() -> impl Iterator<Item = &'static str> {
    DenialReason::ALL
        .into_iter()
        .map(DenialReason::as_str)
        .chain(["other"])
}

fn reason_index(reason: Option<DenialReason>) -> usize {
    reason.map_or(DenialReason::ALL.len(), |reason| reason as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_transport_outcome_and_command_has_its_own_counter() {
        let metrics = Metrics::new();
        let mut expected = Vec::new();
        for (index, transport) in Transport::ALL.into_iter().enumerate() {
            for (number, answered) in RequestOutcome::ALL.into_iter().enumerate() {
                let times = (index * 5 + number + 1) as u64;
                metrics.record_outcomes(transport, answered, times);
                expected.push(times);
            }
        }
        assert_eq!(metrics.requests.read().to_vec(), expected);
        assert_eq!(
            metrics.outcome_count(Transport::Resp, RequestOutcome::Failed),
            15
        );
        for command in ThrottleCommand::ALL {
            metrics.record_throttle_commands(command, 1 + command as u64, 10 + command as u64);
        }
        assert_eq!(metrics.throttled.read(), [1, 10, 2, 11, 3, 12]);
    }

    #[test]
    fn reasons_have_the_engines_names() {
        for reason in DenialReason::ALL {
            let label = reasons().nth(reason_index(Some(reason)));
            assert_eq!(label, Some(reason.as_str()));
        }
        assert_eq!(reasons().nth(reason_index(None)), Some("other"));
        assert_eq!(reasons().count(), REASONS);
    }

    #[test]
    fn a_degradation_is_reported_for_ten_seconds() {
        let metrics = Metrics::new();
        let at = Timestamp::from_secs;
        assert!(!metrics.is_degraded(DegradationCause::Store, at(0)));
        metrics.record_degradation(DegradationCause::Store, at(100));
        assert!(metrics.is_degraded(DegradationCause::Store, at(100)));
        assert!(metrics.is_degraded(DegradationCause::Store, at(109)));
        assert!(!metrics.is_degraded(DegradationCause::Store, at(110)));
        assert!(!metrics.is_degraded(DegradationCause::Overflow, at(100)));
    }
}
