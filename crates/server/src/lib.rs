//! The HTTP API: ask it whether a request may proceed, and it answers in the words of the RateLimit draft. Beside
//! it [`resp`], the same for Redis clients, and [`grpc`], for Envoy.
//!
//! [`App`] decides and words the answers, [`listen`] accepts connections. The listener, the clock, the policy and the end
//! of the run are arguments, so tests own all of them. Must not know: command lines, signals, files, how the state is kept.
#![forbid(unsafe_code)]

pub mod admin;
mod app;
mod awaited;
mod counters;
mod decided;
mod demo;
mod denials;
pub mod fleet;
pub mod grpc;
mod http;
mod invalid;
pub mod listen;
mod metrics;
mod redact;
pub mod resp;
mod rlqs;
mod rls;
mod saturation;
mod secret;
mod settling;
mod tickets;
mod words;

pub use app::{App, MOST_RETRY_JITTER};
pub use counters::Counters;
pub use decided::Decided;
pub use demo::demo_policy;
pub use denials::LogDenials;
pub use http::Limits;
pub use invalid::InvalidApp;
pub use metrics::{Answered, Cause, Metrics, Transport};
pub use rlqs::{QuotaBounds, QuotaCounts};
pub use saturation::Saturation;
pub use secret::{InvalidSecret, Secret};
pub use tollgate_http::{Dialects, Networks};
