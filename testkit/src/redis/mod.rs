//! Real servers for tests: Redis and Valkey in the versions we promise, each test its own, on a free loopback port.
//!
//! Must not know: what is asked of them.

mod program;
mod server;
mod shim;

pub use program::Kind;
pub use server::Server;
pub use shim::Clock;
