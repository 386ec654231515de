//! The listeners: the HTTP API, [`grpc`] for Envoy, [`resp`] for Redis clients, [`admin`], and the [`gateway`].
//!
//! [`HttpApi`] answers requests, [`listen`] accepts connections. Listeners, clock, policy and shutdown are arguments, so that
//! tests control all of them. Must not know: command lines, signals, files, how state is stored.
#![forbid(unsafe_code)]
#![warn(clippy::print_stdout, clippy::print_stderr)]

pub mod admin;
pub mod fleet;
pub mod gateway;
pub mod grpc;
mod http;
pub mod listen;
pub mod resp;

pub use http::HttpLimits;
pub use http::http_api::{App, HttpApi};
pub use http::prefer::{BodyForm, InvalidBodyForm};
pub use listen::counters::ListenerCounters;
pub use tollgate_envoy::rlqs::QuotaBounds;
pub use tollgate_http::{Dialects, TrustedProxies};

// Names that moved to `tollgate-service`. They stay here until the next release.
pub use tollgate_service::metrics::QuotaCounts;
pub use tollgate_service::{
    DegradationCause, DenialLogMode, InvalidSecret, InvalidService as InvalidApp,
    MAX_RETRY_JITTER as MOST_RETRY_JITTER, Metrics, RequestOutcome as Answered, Saturation, Secret,
    Transport, demo_policy,
};
