//! The HTTP API: ask it whether a request may proceed, and it answers in the words of the RateLimit draft. Beside
//! it [`resp`], the same for Redis clients, and [`grpc`], for Envoy.
//!
//! [`App`] decides and words the answers, [`listen`] accepts connections. The listener, the clock, the policy and the end
//! of the run are arguments, so tests own all of them. Must not know: command lines, signals, files, how the state is kept.
#![forbid(unsafe_code)]

pub mod admin;
mod answers;
mod app;
mod asked;
mod awaited;
mod body;
mod brisk;
mod check;
mod counters;
mod crowded;
mod decided;
mod demo;
mod denials;
pub mod fleet;
mod gateways;
pub mod grpc;
mod http;
mod idle;
mod input;
mod invalid;
mod json;
mod known;
mod limits;
pub mod listen;
mod metrics;
mod openapi;
mod patient;
mod plain;
mod query;
mod redact;
mod reply;
mod report;
pub mod resp;
mod rlqs;
mod rls;
mod routes;
mod saturation;
mod secret;
mod settling;
mod tickets;
mod welcome;
mod wire;
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
