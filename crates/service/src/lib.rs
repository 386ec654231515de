//! The rate limit service: what every transport of the rate limiter shares.
//!
//! [`RateLimitService`] decides on requests, renders header fields, keeps tickets until they are settled, counts and logs,
//! bounds the queue of waiting requests, reloads the policy and takes part in a fleet. A transport reads a request into
//! [`Attributes`](tollgate_policy::attributes::Attributes), calls [`check`](RateLimitService::check), and writes the response.
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
mod memory_pressure;
pub mod metrics;
mod operator;
mod panic_guard;
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
pub use claims::{ClaimVerifier, PreparedClaims, TokenCounters, TokenRejection};
pub use decision::Refusal;
pub use demo::demo_policy;
pub use denial_log::DenialLogMode;
pub use error::InvalidService;
pub use header_fields::{
    HeaderCache, HeaderRenderer, HeaderSubject, role_name, with_header_fields, write_problem,
};
pub use metrics::{DegradationCause, Metrics, RequestOutcome, Transport};
pub use operator::OperatorActionError;
pub use panic_guard::catch_panic;
pub use saturation::{DEFAULT_MAX_WAITING, Saturation, WaitPermit};
pub use secret::{InvalidSecret, Secret};
pub use service::{MAX_RETRY_JITTER, PolicyExplanation, RateLimitService};
pub use tickets::{TICKET_LIFETIME, TakenTicket};
pub use tollgate_http::HeaderFields;
pub use wait_queue_full::WaitQueueFull;
pub use watchdog::STALLED_AFTER;
