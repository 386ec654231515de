//! A client that obeys rate limits: it reads the fields of any server, paces itself, and retries within a budget.
//!
//! - [`PacerLayer`]: a tower layer for hyper's clients
//! - [`SharedPacer`]: the same for any other client: acquire a permit, send, report the response
//! - [`Pacer`]: the decisions, without IO and without a clock
#![forbid(unsafe_code)]
#![warn(clippy::print_stdout, clippy::print_stderr)]

// Must not know: policies, engines, stores.

mod error;
mod layer;
mod pacer;
mod random;
mod request;
mod retry;
mod settings;
mod shared_pacer;
#[cfg(test)]
mod tests;
mod timer;

pub use error::PaceError;
pub use layer::{
    ClientError, CloneBody, Deadline, EmptyBody, NoReplay, PacedBody, PacedFuture, PacedService,
    PacerLayer, ReplayBody, Route,
};
pub use pacer::{Acquired, Grant, Pacer, PartitionStatus, WaiterId, WaiterState};
pub use request::{PaceRequest, Priority, RequestCost};
pub use retry::{RetryDecision, ServerRefusal, is_idempotent};
pub use settings::{InvalidPacerSettings, PacerSettings};
pub use shared_pacer::{Acquire, PacePermit, SharedPacer};
pub use tollgate_core::{Nanos, Timestamp};
pub use tollgate_http::{RateLimitInfo, RefusalReason, ResponseReader};
pub use tollgate_store::{Clock, ManualClock, SystemClock};
