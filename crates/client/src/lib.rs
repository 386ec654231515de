//! A client that obeys rate limits: it reads the fields of any server, paces itself, and retries within a budget.
//!
//! - [`PacerLayer`]: a tower layer for hyper's clients
//! - `PacerMiddleware`: the same for reqwest, with the feature `reqwest`
//! - [`SharedPacer`]: the same for any other client: acquire a permit, send, report the response
//! - [`Pacer`]: the decisions, without IO and without a clock
#![forbid(unsafe_code)]
#![warn(clippy::print_stdout, clippy::print_stderr)]

// Must not know: policies, engines, which store processes share.

mod alarm;
mod attempts;
mod error;
mod layer;
#[cfg(feature = "reqwest")]
mod middleware;
mod pacer;
mod random;
mod request;
mod request_facts;
mod retry;
mod settings;
mod shared_pacer;
mod shared_quota;
#[cfg(test)]
mod tests;
mod timer;

pub use error::{ClientError, PaceError};
pub use layer::{
    CloneBody, EmptyBody, NoReplay, PacedBody, PacedFuture, PacedService, PacerLayer, ReplayBody,
};
#[cfg(feature = "reqwest")]
pub use middleware::PacerMiddleware;
pub use pacer::{Acquired, Grant, Pacer, PartitionStatus, WaiterId, WaiterState};
pub use request::{PaceRequest, Priority, RequestCost};
pub use request_facts::{Deadline, Route};
pub use retry::{RetryDecision, ServerRefusal, is_idempotent};
pub use settings::{InvalidPacerSettings, PacerSettings};
pub use shared_pacer::{Acquire, PacePermit, SharedPacer};
pub use tollgate_core::{Nanos, Timestamp};
pub use tollgate_http::{RateLimitInfo, RefusalReason, ResponseReader};
pub use tollgate_store::{Clock, ManualClock, SharedQuotaStore, SystemClock};
