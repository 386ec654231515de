//! The words for a decision on the wire: RateLimit fields, `Retry-After`, problem details, and who is asking.
//!
//! Translates what `tollgate-core` answers into text. Must not know: stores, sockets, any HTTP library. A transport hands
//! in where every limit stands ([`Standing`], [`Answer`]) and copies header fields out of a buffer that it keeps
//! ([`Words`]), and it hands in what the network says of a client ([`Clients`]) and gets the address to count.
#![forbid(unsafe_code)]
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod address;
mod dialect;
mod header_fields;
mod json;
mod partition;
mod policy_name;
mod problem_details;
mod quota_policy;
mod rate_limit_item;
mod rate_limit_status;
mod text;
mod write;

#[cfg(test)]
mod tests;

pub use address::{
    AddressKey, AddressSource, ClientAddress, ClientAddressResolver, ForwardedHeader,
    InvalidNetwork, Network, TrustedProxies, address_key,
};
pub use dialect::{Dialect, Dialects, InvalidDialect};
pub use header_fields::{HeaderField, HeaderFields, Merge};
pub use partition::PartitionKey;
pub use policy_name::InvalidPolicyName;
pub use problem_details::{CONTENT_TYPE, ProblemDetails, ProblemType};
pub use quota_policy::{InvalidDetail, QuotaPolicy, Scope};
pub use rate_limit_item::RateLimitItem;
pub use rate_limit_status::{Jitter, RateLimitStatus, retry_after};
