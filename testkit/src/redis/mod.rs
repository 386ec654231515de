//! Real servers for tests and measurements: Redis and Valkey in the versions we promise, each its own, on a free loopback
//! port; what they say of themselves; and the script that ours is measured beside.
//!
//! Must not know: what is asked of them.

pub mod article;
pub mod info;
mod program;
mod server;
mod shim;

pub use crate::peers::python_packages;
pub use program::{Kind, tool};
pub use server::Server;
pub use shim::Clock;
