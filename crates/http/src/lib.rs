//! HTTP rate limit semantics: `RateLimit` header fields, `Retry-After`, problem details, and client addresses.
//!
//! Turns outcomes of `tollgate-core` into text, and responses of any server into [`RateLimitInfo`] ([`ResponseReader`]). A transport passes the status of every limit ([`RateLimitItem`],
//! [`RateLimitStatus`]) and gets header fields in a reusable buffer ([`HeaderFields`]). It passes the connection's peer and a
//! forwarding header and gets the client's address ([`ClientAddressResolver`]). Must not know: stores, sockets, any HTTP
//! library.
#![forbid(unsafe_code)]
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod address;
mod dialect;
mod digits;
mod header_fields;
mod json;
mod partition;
mod policy_name;
mod problem_details;
mod quota_policy;
mod rate_limit_info;
mod rate_limit_item;
mod rate_limit_status;
mod read;
mod text;
mod write;

#[cfg(test)]
mod tests;

pub use address::{
    AddressKey, AddressSource, ClientAddress, ClientAddressResolver, ForwardedHeader,
    InvalidNetwork, Network, TrustedProxies, address_key,
};
pub use dialect::{Dialect, Dialects, InvalidDialect};
pub use digits::{EIGHT_DIGITS, eight_digits, padded_digits};
pub use header_fields::{HeaderField, HeaderFields, Merge};
pub use partition::PartitionKey;
pub use policy_name::InvalidPolicyName;
pub use problem_details::{CONTENT_TYPE, ProblemDetails, ProblemType};
pub use quota_policy::{InvalidDetail, QuotaPolicy, Scope};
pub use rate_limit_info::{LimitInfo, LimitUnit, RateLimitInfo, RefusalReason};
pub use rate_limit_item::RateLimitItem;
pub use rate_limit_status::{Jitter, RateLimitStatus, retry_after};
pub use read::ResponseReader;
pub use write::limit_template::LimitTemplate;
