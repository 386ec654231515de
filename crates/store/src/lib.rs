//! State and time: what decisions are made on.
//!
//! [`contract`] says what every store can be asked and answers, [`lending`] what a lender can; [`Clock`] says when it is;
//! [`Key`] whose quota it is. [`Memory`] keeps bounded state in this process; a [`RemoteStore`] keeps it for many, and a
//! [`register`] says who those are. Must not know: names of limits, HTTP, what a key means.

mod clock;
pub mod contract;
mod error;
mod failure;
mod key;
pub mod lending;
pub mod memory;
pub mod register;
mod remote;

pub use clock::{Clock, ManualClock, SystemClock};
pub use contract::{LimitId, Note, Op, QuotaCheck, Ruled, Store, StoreReply};
pub use error::InvalidSize;
pub use failure::{ErrorKind, StoreError};
pub use key::{KeyTooLong, MAX_KEY_LEN, StoreKey};
pub use lending::Lender;
pub use memory::{MAX_KEYS, Memory, Occupancy, SnapshotError, Usage};
pub use remote::{RemoteStore, StoreFuture};
