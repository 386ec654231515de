//! State and time: what decisions are made on.
//!
//! [`contract`] says what every store can be asked and answers, [`lending`] what a lender can; [`Clock`] says when it is;
//! [`Key`] whose quota it is. [`Memory`] keeps bounded state in this process; a [`RemoteStore`] keeps it for many, and a
//! [`register`] says who those are. Must not know: names of limits, HTTP, what a key means.
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod clock;
pub mod contract;
mod invalid_size;
mod key;
pub mod memory;
pub mod quota_lease;
pub mod register;
mod remote;
mod store_error;

pub use clock::{Clock, ManualClock, SystemClock};
pub use contract::{IdentifiedLimit, LimitId, Op, QuotaCheck, ReplyNote, Store, StoreReply};
pub use invalid_size::InvalidSize;
pub use key::{KeyTooLong, MAX_KEY_LEN, StoreKey};
pub use memory::{MAX_KEYS, MemoryStore, Occupancy, SnapshotError, StoreUsage};
pub use quota_lease::Lender;
pub use remote::{RemoteStore, StoreFuture};
pub use store_error::{StoreError, StoreErrorKind};
