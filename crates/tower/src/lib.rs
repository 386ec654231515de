//! A tower layer that limits requests by a policy, for axum, hyper and tonic.
//!
#![doc = include_str!("docs/guide.md")]
#![forbid(unsafe_code)]
#![warn(clippy::print_stdout, clippy::print_stderr)]

// A translation of HTTP onto `tollgate-service`. It makes no decisions. Must not know: stores, algorithms, sockets.

mod body;
mod builder;
mod decision_info;
mod future;
mod grpc;
mod layer;
mod layer_state;
mod limit_spec;
mod overload;
mod permit;
mod refusal;
mod request;
mod response_fields;
mod service;
mod sync;
#[cfg(test)]
mod tests;
mod upgrade;

pub use body::ResponseBody;
pub use builder::{InvalidLayer, TollgateLayerBuilder};
pub use decision_info::DecisionInfo;
pub use future::ResponseFuture;
pub use layer::TollgateLayer;
pub use limit_spec::LimitSpec;
pub use permit::RequestPermit;
pub use request::PeerAddress;
pub use service::TollgateService;
pub use tollgate_service::{
    ClientAddressResolver, Clock, Dialects, ForwardedHeader, InvalidNetwork, InvalidPolicy,
    InvalidService, ManualClock, Network, RateLimitService, Secret, SystemClock, Timestamp,
};
