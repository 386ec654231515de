//! Envoy's rate limit quota service (RLQS, `rate_limit_quota.v3`): clients report their usage and are assigned shares of limits.
//!
//! `shares` keeps the guarantee: at any time the shares that clients may use add up to no more than the limit, as long as
//! messages arrive within the grace period. `table` tracks clients and their buckets, `limits` finds the limits of a bucket,
//! `strategy` and `message` encode assignments. All state belongs to one process, which waits after a start until earlier
//! assignments have expired. Must not know: sockets, HTTP/2.

mod bounds;
mod client;
mod demand;
mod limits;
mod message;
mod pools;
mod session;
mod shares;
mod strategy;
mod table;
#[cfg(test)]
mod tests;

pub use bounds::QuotaBounds;
pub use session::RlqsSession;
pub(crate) use session::SharedQuotaTable;
pub use tollgate_service::metrics::QuotaCounts;
