//! Real servers for tests and measurements: Redis and Valkey in the versions we promise, each its own, on a free loopback
//! port; what they say of themselves; and the script that ours is measured beside.
//!
//! Must not know: what is asked of them.

pub mod article_script;
mod clock_shim;
mod cluster;
pub mod info;
mod node;
mod program;
mod sentinel;
mod server;

pub use crate::peers::python_packages;
pub use clock_shim::ShimmedClock;
pub use cluster::RedisCluster;
pub use node::{RedisNode, until};
pub use program::{ServerProgram, tool};
pub use sentinel::{MASTER, RedisSentinels};
pub use server::RedisServer;
