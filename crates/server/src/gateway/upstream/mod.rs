//! An upstream: its addresses, which of them gets a request, and when a request is sent again.
//!
//! Must not know: routes, clients, limits.

mod balancer;
mod body;
mod body_decoder;
mod connector;
mod endpoint;
mod failure;
mod health;
mod http1;
mod hyper_exchange;
mod message;
mod plain_exchange;
mod request_head;
mod response_deadline;
mod response_head;
mod stream;

pub(super) use body::{UpstreamBody, UpstreamBodyError};
pub(super) use connector::HttpVersions;
pub(super) use endpoint::Endpoint;
pub(super) use failure::{BODY_TOO_LONG, FailureKind};
pub(super) use http1::Http1Connection;

use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hyper::body::Body as _;
use hyper::header::{HOST, HeaderValue};
use hyper::{Request, Response, StatusCode};
use tokio::time::Instant;
use tollgate_core::{Nanos, Timestamp};
use tollgate_overload::RetryBudget;
use tollgate_policy::model::{HealthCheckSpec, UpstreamProtocol, UpstreamSpec};
use tollgate_service::metrics::UpstreamCounts;

use self::balancer::{SharedRandom, choose};
use self::connector::{Connector, client_config};
use self::endpoint::{OpenConnection, PoolBounds};
use self::response_deadline::ResponseDeadline;
use super::access_log::ExchangeRecord;
use super::request_body::RequestBody;
use super::stream_tasks::StreamTasks;
use crate::listen::counters::increment;
use crate::listen::{InvalidTls, TransferTimer};

/// An upstream.
pub(super) struct Upstream {
    spec: UpstreamSpec,
    endpoints: Box<[Arc<Endpoint>]>,
    random: SharedRandom,
    budget: RetryBudget,
    /// When the next health check is due, in nanoseconds since 1970.
    next_check: AtomicU64,
    counters: UpstreamCounters,
}

/// What an upstream has counted.
#[derive(Debug, Default)]
struct UpstreamCounters {
    requests: AtomicU64,
    failures: AtomicU64,
    retries: AtomicU64,
}

impl Upstream {
    /// Reads the TLS files and prepares the addresses. Nothing is connected.
    pub(super) fn new(spec: &UpstreamSpec, tasks: &StreamTasks) -> Result<Self, InvalidTls> {
        let mut addresses = spec.addresses.iter();
        let has_tls = addresses.any(|one| one.address.protocol == UpstreamProtocol::Https);
        let tls = has_tls.then(|| client_config(&spec.tls)).transpose()?;
        let bounds = PoolBounds {
            max_connections: spec.max_connections,
            max_idle: usize::try_from(spec.max_idle_connections).unwrap_or(usize::MAX),
            keepalive_timeout: duration(spec.keepalive_timeout),
        };
        let endpoint = |one: &tollgate_policy::model::WeightedAddress| {
            let name = spec.tls.server_name.as_deref();
            let connect_timeout = duration(spec.connect_timeout);
            let connector =
                Connector::new(one.address.clone(), tls.as_ref(), name, connect_timeout)?;
            Ok(Arc::new(Endpoint::new(
                connector,
                one.weight,
                bounds,
                tasks.clone(),
            )))
        };
        Ok(Self {
            endpoints: spec
                .addresses
                .iter()
                .map(endpoint)
                .collect::<Result<_, InvalidTls>>()?,
            random: SharedRandom::new(RandomState::new().hash_one(&*spec.name.value)),
            budget: RetryBudget::from_hundredths_of_percent(spec.retry_budget.hundredths()),
            next_check: AtomicU64::new(0),
            counters: UpstreamCounters::default(),
            spec: spec.clone(),
        })
    }

    pub(super) const fn spec(&self) -> &UpstreamSpec {
        &self.spec
    }

    pub(super) fn endpoints(&self) -> &[Arc<Endpoint>] {
        &self.endpoints
    }

    /// Whether an address may speak HTTP/2.
    pub(super) fn can_have_http2(&self) -> bool {
        let mut addresses = self.spec.addresses.iter();
        addresses.any(|one| one.address.protocol != UpstreamProtocol::Http)
    }

    /// What has been counted.
    pub(super) fn counts(&self, now: Timestamp) -> UpstreamCounts {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        UpstreamCounts {
            name: self.spec.name.value.clone(),
            requests: load(&self.counters.requests),
            failures: load(&self.counters.failures),
            retries: load(&self.counters.retries),
            addresses: self.endpoints.iter().map(|one| one.counts(now)).collect(),
        }
    }

    /// The timer of a body, and the deadline of the whole exchange.
    pub(super) fn idle_timer(&self, deadline: Option<Instant>) -> TransferTimer {
        TransferTimer::new(duration(self.spec.idle_timeout), deadline)
    }

    /// When an exchange that begins now must have ended.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let total = self.spec.total_timeout?;
        Some(Instant::now() + duration(total))
    }

    pub(super) fn idle_timeout(&self) -> Duration {
        duration(self.spec.idle_timeout)
    }

    /// Sends a request, again where that is safe, and returns the response and the address that sent it.
    pub(super) async fn send(
        &self,
        mut request: Request<RequestBody>,
        versions: HttpVersions,
        deadline: Option<Instant>,
        record: Option<&ExchangeRecord>,
        now: impl Fn() -> Timestamp,
    ) -> Result<Response<UpstreamBody>, FailureKind> {
        increment(&self.counters.requests);
        self.budget.record_request();
        // A request that was sent may have been executed: only one that has the same effect twice is sent again.
        let is_replayable = self.spec.retries > 0
            && request.method().is_idempotent()
            && request.body().is_end_stream();
        let upload = request.body().progress().cloned();
        let timeout = duration(self.spec.first_byte_timeout);
        let first_byte = ResponseDeadline::new(timeout, deadline, upload);
        let mut tried: Option<&Arc<Endpoint>> = None;
        for attempt in 0_u32.. {
            let is_available = |one: &Arc<Endpoint>| one.health.is_available(now());
            let chosen = choose(&self.endpoints, is_available, tried, &self.random);
            let Some(endpoint) = chosen else { break };
            tried = Some(endpoint);
            if let Some(record) = record {
                record.start_attempt(endpoint.label(), now());
            }
            let timer = self.idle_timer(deadline);
            let exchange = endpoint.exchange(request, versions, &first_byte, timer);
            let error = match exchange.await {
                Ok(mut response) => {
                    if let Some(record) = record {
                        record.set_response(response.status(), now());
                    }
                    match response.status().as_u16() {
                        502..=504 => self.record_failure(endpoint, now()),
                        _ => endpoint.health.record_success(),
                    }
                    // An upgraded connection is not for other requests.
                    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
                        response.body_mut().release_if_complete();
                    }
                    return Ok(response);
                }
                Err(error) => error,
            };
            if !error.is_stale && error.failure.is_by_upstream() {
                self.record_failure(endpoint, now());
            }
            tracing::debug!(upstream = %self.spec.name.value, address = endpoint.label(), error = %error.failure, "request failed");
            let is_final = matches!(error.failure, FailureKind::Timeout)
                || error.is_sent && (error.failure.is_by_client() || !is_replayable);
            let next = error.request.filter(|_| !is_final);
            let Some(next) = next.filter(|_| attempt < self.spec.retries && self.budget.take())
            else {
                increment(&self.counters.failures);
                return Err(error.failure);
            };
            increment(&self.counters.retries);
            request = next;
        }
        Err(FailureKind::TooManyConnections)
    }

    fn record_failure(&self, endpoint: &Arc<Endpoint>, now: Timestamp) {
        let ejection = self.spec.ejection;
        if !endpoint.health.record_failure(ejection) {
            return;
        }
        let mut others = self
            .endpoints
            .iter()
            .filter(|one| !Arc::ptr_eq(one, endpoint));
        // The last one that is available stays, so that ejection never empties the upstream.
        if others.any(|one| one.health.is_available(now)) {
            endpoint.health.eject(now, ejection.duration);
            tracing::warn!(upstream = %self.spec.name.value, address = endpoint.label(), "upstream address ejected");
        }
    }

    /// Closes idle connections that have expired.
    pub(super) fn close_expired(&self) {
        self.endpoints
            .iter()
            .for_each(|endpoint| endpoint.close_expired());
    }

    /// The health check, if one is due. The next one is due an interval later.
    pub(super) fn due_check(&self, now: Timestamp) -> Option<&HealthCheckSpec> {
        let check = self.spec.health_check.as_ref()?;
        let (due, now) = (self.next_check.load(Ordering::Relaxed), now.as_nanos());
        let next = now.saturating_add(check.interval.as_nanos());
        // A clock that goes back must not postpone checks.
        if due > now && due <= next {
            return None;
        }
        self.next_check.store(next, Ordering::Relaxed);
        Some(check)
    }

    /// Checks the health of one address.
    pub(super) async fn check_health(&self, endpoint: &Arc<Endpoint>, check: &HealthCheckSpec) {
        let host = match &endpoint.label().split_once("://") {
            Some((_, authority)) => HeaderValue::from_str(authority).ok(),
            None => None,
        };
        let mut request = Request::new(RequestBody::Empty);
        *request.uri_mut() = check.path.parse().unwrap_or_default();
        let host = host.unwrap_or_else(|| HeaderValue::from_static("localhost"));
        request.headers_mut().insert(HOST, host);
        let deadline = ResponseDeadline::new(duration(check.timeout), None, None);
        let timer = self.idle_timer(None);
        let exchange = endpoint.exchange(request, HttpVersions::Any, &deadline, timer);
        let is_success = match exchange.await {
            Ok(mut response) => {
                response.body_mut().release_if_complete();
                response.status().is_success()
            }
            _ => false,
        };
        if let Some(is_healthy) = endpoint.health.record_check(is_success, check) {
            let (upstream, address) = (&self.spec.name.value, endpoint.label());
            tracing::warn!(%upstream, address, is_healthy, "upstream health changed");
        }
    }
}

pub(super) const fn duration(time: Nanos) -> Duration {
    Duration::from_nanos(time.as_nanos())
}

impl std::fmt::Debug for Upstream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Upstream")
            .field("name", &self.spec.name.value)
            .finish_non_exhaustive()
    }
}
