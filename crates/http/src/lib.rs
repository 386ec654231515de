//! The words for a decision on the wire: RateLimit fields, `Retry-After`, problem details, and who is asking.
//!
//! Translates what `tollgate-core` answers into strings. Must not know: stores, sockets, any HTTP library. A transport
//! copies these strings into its own header and body types.
#![forbid(unsafe_code)]

mod address;
mod fields;
mod problem;

pub use address::address_key;
pub use fields::{InvalidPolicyName, Policy, retry_after};
pub use problem::{CONTENT_TYPE, Problem};
