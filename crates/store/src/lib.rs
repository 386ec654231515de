//! State and time: what decisions are made on.
//!
//! [`contract`] says what every store can be asked and answers; [`Clock`] says when it is; [`Key`] whose quota it is.
//! [`Buckets`] holds a first, bounded state in memory. Must not know: names of limits, HTTP, what a key means.

mod buckets;
mod clock;
pub mod contract;
mod error;
mod failure;
mod fingerprint;
mod group;
mod key;
pub mod memory;

pub use buckets::{Buckets, Decision};
pub use clock::{Clock, ManualClock, SystemClock};
pub use contract::{Answer, Check, LimitId, Note, Op, Ruled, Store};
pub use error::InvalidSize;
pub use failure::{ErrorKind, StoreError};
pub use key::{Key, KeyTooLong, MAX_KEY_LEN};
pub use memory::{MAX_KEYS, Memory, Usage};
