//! The rate limit service: what every transport of the rate limiter shares.
//!
//! [`RateLimitService`] decides on requests, renders header fields, keeps tickets until they are settled, counts and logs,
//! bounds the queue of waiting requests, reloads the policy and takes part in a fleet. A transport reads a request into
//! [`Attributes`], calls [`check`](RateLimitService::check), and writes the response.
//! Must not know: sockets, HTTP libraries, protocols, Redis, command lines.
#![forbid(unsafe_code)]
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod abandoned_waits;
mod claims;
mod decision;
mod demo;
mod denial_log;
mod error;
pub mod fleet;
mod header_fields;
mod http_request;
mod memory_pressure;
pub mod metrics;
mod open_request;
mod operator;
mod overload;
mod panic_guard;
mod policy_features;
mod redact;
pub mod reload;
mod saturation;
mod secret;
mod service;
pub mod state;
mod tickets;
mod wait_queue_full;
mod watchdog;

#[doc(hidden)]
pub use claims::fuzz_token;
pub use claims::{ClaimVerifier, KeyFileWatcher, PreparedClaims, TokenCounters, TokenRejection};
pub use decision::Refusal;
pub use demo::demo_policy;
pub use denial_log::DenialLogMode;
pub use error::InvalidService;
pub use header_fields::{
    AdmittedFields, HeaderCache, HeaderRenderer, HeaderSubject, copy_to_shared, role_name,
    with_header_fields, write_problem,
};
pub use http_request::{HttpAttributes, decode_form, find_header, without_port};
pub use metrics::{DegradationCause, Metrics, RequestOutcome, Transport};
pub use open_request::OpenRequest;
pub use operator::OperatorActionError;
pub use overload::{
    CreditOffer, CreditStatus, FleetUsageStatus, OverloadControl, OverloadEntry, OverloadPermit,
    OverloadStatus, OverloadTargetStatus, OverloadTargets, OverloadTicket, OverloadWait, Shed,
    ShedCount, ShedMechanism,
};
pub use panic_guard::catch_panic;
pub use saturation::{DEFAULT_MAX_WAITING, Saturation, WaitPermit};
pub use secret::{InvalidSecret, Secret};
pub use service::{MAX_RETRY_JITTER, PolicyExplanation, RateLimitService};
pub use tickets::{TICKET_LIFETIME, TakenTicket};
// What a transport names of the crates below, so that it needs one crate.
pub use tollgate_core::{Nanos, Outcome, Timestamp};
pub use tollgate_engine::control::{Attribution, Halt, Switch};
pub use tollgate_engine::{CheckMode, CheckOptions, DenialReason, Response, Ticket, Verdict};
pub use tollgate_http::{
    CONTENT_TYPE as PROBLEM_CONTENT_TYPE, ClientAddressResolver, Dialects, ForwardedHeader,
    HeaderFields, InvalidNetwork, Merge, Network, ProblemDetails, ProblemType, TrustedProxies,
};
pub use tollgate_policy::attributes::{Attribute, AttributeFamily, Attributes, Unreadable};
pub use tollgate_policy::load as load_policy;
pub use tollgate_policy::source::{Diagnostics as InvalidPolicy, SourceFormat as PolicyFormat};
pub use tollgate_store::{Clock, ManualClock, SystemClock};
pub use wait_queue_full::WaitQueueFull;
pub use watchdog::STALLED_AFTER;
