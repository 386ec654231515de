//! State and time for decisions.
//!
//! - [`contract`]: checks, replies and the [`Store`] trait
//! - [`quota_lease`]: the contract of leased consistency
//! - [`Clock`], [`StoreKey`]: the current time; the key whose quota is checked
//! - [`MemoryStore`]: bounded state in this process
//! - [`shared_quota`]: quotas that clients of one server share
//! - [`RemoteStore`], [`register`]: state that several nodes share, and the list of those nodes
//!
//! Must not know: names of limits, HTTP, what a key means.
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod clock;
pub mod contract;
mod invalid_size;
mod key;
pub mod memory;
pub mod quota_lease;
pub mod register;
mod remote;
pub mod shared_quota;
mod store_error;

pub use clock::{Clock, ManualClock, SystemClock};
pub use contract::{IdentifiedLimit, LimitId, Op, QuotaCheck, ReplyNote, Store, StoreReply};
pub use invalid_size::InvalidSize;
pub use key::{KeyTooLong, MAX_KEY_LEN, StoreKey};
pub use memory::{LimitUsage, MAX_KEYS, MemoryStore, Occupancy, SnapshotError, StoreUsage};
pub use quota_lease::LeaseBroker;
pub use remote::{RemoteStore, StoreFuture};
pub use shared_quota::SharedQuotaStore;
pub use store_error::{StoreError, StoreErrorKind};
pub use tollgate_core::limit::WhenFull;
