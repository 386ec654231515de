//! Nodes that hear of each other now and then, over a store in memory that may be away.

mod bound;
mod fake_remote;
mod stories;
