//! The HTTP API: ask it whether a request may proceed, and it answers in the words of the RateLimit draft. Beside
//! it [`resp`], the same for Redis clients, and [`grpc`], for Envoy.
//!
//! [`App`] decides and words the answers, [`listen`] accepts connections. The listener, the clock, the policy and the end
//! of the run are arguments, so tests own all of them. Must not know: command lines, signals, files, how the state is kept.
#![forbid(unsafe_code)]

pub mod admin;
pub mod fleet;
pub mod grpc;
mod http;
pub mod listen;
pub mod resp;

pub use http::HttpLimits;
pub use http::http_api::{App, HttpApi};
pub use listen::counters::ListenerCounters;
pub use tollgate_envoy::rlqs::QuotaBounds;
pub use tollgate_http::{Dialects, TrustedProxies};

// What moved to `tollgate-service` keeps its path here until the next release.
pub use tollgate_service::metrics::QuotaCounts;
pub use tollgate_service::{
    DegradationCause, DenialLogMode, InvalidSecret, InvalidService as InvalidApp,
    MAX_RETRY_JITTER as MOST_RETRY_JITTER, Metrics, RequestOutcome as Answered, Saturation, Secret,
    Transport, demo_policy,
};
