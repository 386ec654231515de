//! Envoy's quotas (`rate_limit_quota.v3`): clients report what they use, and are told how much of a limit is theirs.
//!
//! Read it from `shares`, which keeps the promise: what all clients may be running on at any instant adds up to no more
//! than the limit, whatever is late or lost within the grace. `table` knows the clients and their buckets, `limits` what
//! the policy says of a bucket, `strategy` and `message` how an assignment is put. All of it belongs to one process, and
//! what it does not know after a start it waits for. Must not know: sockets, HTTP/2.

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
