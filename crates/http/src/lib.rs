//! The words for a decision on the wire: RateLimit fields, `Retry-After`, problem details, and who is asking.
//!
//! Translates what `tollgate-core` answers into text. Must not know: stores, sockets, any HTTP library. A transport hands
//! in where every limit stands ([`Standing`], [`Answer`]) and copies header fields out of a buffer that it keeps
//! ([`Words`]), and it hands in what the network says of a client ([`Clients`]) and gets the address to count.
#![forbid(unsafe_code)]

mod address;
mod answer;
mod dialect;
mod json;
mod name;
mod partition;
mod policy;
mod problem;
mod standing;
mod text;
mod words;
mod write;

#[cfg(test)]
mod tests;

pub use address::{
    AddressKey, AddressSource, Client, Clients, InvalidNetwork, Network, Networks, Source,
    address_key,
};
pub use answer::{Jitter, RateLimitStatus, retry_after};
pub use dialect::{Dialect, Dialects, InvalidDialect};
pub use name::InvalidPolicyName;
pub use partition::PartitionKey;
pub use policy::{InvalidDetail, QuotaPolicy, Scope};
pub use problem::{CONTENT_TYPE, ProblemDetails, ProblemType};
pub use standing::RateLimitItem;
pub use words::{HeaderFields, Merge, Word};
