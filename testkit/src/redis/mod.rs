//! Real servers for tests and measurements: Redis and Valkey in the versions we promise, each its own, on a free loopback
//! port; what they say of themselves; and the script that ours is measured beside.
//!
//! Must not know: what is asked of them.

pub mod article;
mod cluster;
pub mod info;
mod node;
mod program;
mod sentinel;
mod server;
mod shim;

pub use crate::peers::python_packages;
pub use cluster::Cluster;
pub use node::{Node, until};
pub use program::{Kind, tool};
pub use sentinel::{MASTER, Sentinels};
pub use server::Server;
pub use shim::Clock;
