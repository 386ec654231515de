//! What a policy says becomes what the engine asks: quotas in core's terms, meters with their identities, and who
//! gets which.
//!
//! Must not know: files, stores, clocks.

mod problem;
pub mod quota;
