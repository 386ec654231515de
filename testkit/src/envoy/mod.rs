//! A real Envoy for tests, in the versions we promise; its bootstrap from an example with other ports; and the upstream
//! behind it.
//!
//! Must not know: what its filters ask, and whom.

mod admin;
mod bootstrap;
mod server;
mod upstream;

pub use bootstrap::with_ports;
pub use server::{Envoy, Version};
pub use upstream::{Upstream, UpstreamReply, UpstreamRequest};
