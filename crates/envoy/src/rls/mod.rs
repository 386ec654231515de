//! Envoy's rate limit service (RLS): decides whether a request may proceed, by files of envoyproxy/ratelimit or by a policy.
//!
//! [`EnvoyService::should_rate_limit`] is the entry point of gRPC and `/json`. There are two procedures. `by_files.rs` charges every
//! descriptor on its own, also if it is denied, as envoyproxy/ratelimit does. `by_policy.rs` charges all descriptors of a request
//! or none. Must not know: gRPC, sockets, how files are read.

mod by_files;
mod by_policy;
mod descriptor_request;
mod json;
mod limit_status;
pub mod messages;
mod overrides;
mod rls_response;
mod rule_policies;

pub use json::RlsJsonResponse;
pub use rls_response::{RlsLimit, RlsResponse, RlsStatus};

pub(crate) use descriptor_request::DescriptorRequest;
pub(crate) use overrides::override_policy;
pub(crate) use rule_policies::RulePolicies;

use std::fmt;

use tollgate_core::{Nanos, Outcome};
use tollgate_engine::Ticket;
use tollgate_http::{HeaderFields, RateLimitItem};
use tollgate_service::{Refusal, RequestOutcome, Transport};
use tollgate_store::{Clock, StoreError, StoreErrorKind};

use crate::EnvoyService;
use crate::config::{BadRequest, RlsCode, RlsRequest};
use crate::engine::DecideError;

/// Why there is no response.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RlsError {
    /// The request is invalid. Nothing was charged.
    BadRequest(BadRequest),
    /// The store did not answer.
    Store(StoreError),
}

impl<C: Clock> EnvoyService<C> {
    /// Decides on a request, charges it, and calls `inspect` with the response. Without a fleet the future is ready at the first
    /// poll.
    ///
    /// # Errors
    /// The request is invalid, or the store did not answer.
    pub async fn should_rate_limit<T>(
        &self,
        transport: Transport,
        request: &RlsRequest<'_>,
        inspect: impl FnOnce(&RlsResponse<'_>) -> T + Send,
    ) -> Result<T, RlsError> {
        let service = self.service();
        let began = service.now();
        let decided = if self.is_by_files() {
            self.decide_by_files(transport, request, inspect).await
        } else {
            self.decide_by_policy(transport, request, inspect).await
        };
        if decided.is_err() {
            service
                .metrics()
                .record_outcome(transport, RequestOutcome::Failed);
        }
        // The HTTP transport measures its own requests.
        if transport == Transport::Grpc {
            let span = service.now().since(began);
            service.metrics().observe_duration(transport, span, 1);
        }
        decided
    }

    /// The same request and response as JSON, with the HTTP status of envoyproxy/ratelimit, and what to cancel if the client does
    /// not wait.
    ///
    /// # Errors
    /// Why the request is invalid.
    pub async fn should_rate_limit_json(
        &self,
        body: &[u8],
    ) -> Result<(RlsJsonResponse, Vec<Ticket>), String> {
        let request_body = json::read_json(body)?;
        let entries = request_body.entries()?;
        let descriptors = request_body.descriptors(&entries)?;
        let request = request_body.request(&descriptors)?;
        let answered = self.should_rate_limit(Transport::Http, &request, |response| {
            let decided = RlsJsonResponse::Decided {
                status: match response.overall {
                    RlsCode::Ok => 200,
                    RlsCode::OverLimit => Refusal::over_limit(None).status,
                },
                body: json::write_json(response),
                wait: response.wait,
            };
            (decided, response.wait_tickets.take())
        });
        answered.await.or_else(|error| match error {
            RlsError::BadRequest(reason) => Err(reason.to_string()),
            RlsError::Store(error) => {
                let refusal = Refusal::store_unavailable();
                let failed = RlsJsonResponse::Failed(refusal, error.to_string());
                Ok((failed, Vec::new()))
            }
        })
    }

    /// Renders the header fields of these limits.
    fn render(&self, outcome: Outcome, items: &[RateLimitItem<'_>], fields: &mut HeaderFields) {
        let service = self.service();
        let headers = service.headers();
        let status = headers.rate_limit_status(outcome, items, || service.now());
        status.write(headers.dialects(), fields);
    }
}

impl From<DecideError> for RlsError {
    fn from(undecided: DecideError) -> Self {
        match undecided {
            DecideError::BadRequest(reason) => Self::BadRequest(reason),
            DecideError::Store(error) => Self::Store(error),
        }
    }
}

impl fmt::Display for RlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BadRequest(reason) => reason.fmt(f),
            Self::Store(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for RlsError {}

/// A limit is `closed` while the shared store is unavailable. Envoy gets an error and does what its configuration says.
fn closed_limit_error() -> RlsError {
    RlsError::Store(StoreError::new(
        StoreErrorKind::Unreachable,
        "a limit is closed while the shared store is unavailable",
    ))
}

/// Whole seconds, rounded up.
fn seconds(span: Nanos) -> u64 {
    span.as_nanos().div_ceil(1_000_000_000)
}
