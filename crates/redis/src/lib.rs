//! The store contract over one Redis or Valkey node: one script call decides a whole batch, all or nothing.
//!
//! The scripts under `lua/` are ports of `tollgate-core`, and tests hold them to it step by step. They decide whether to
//! admit and what to keep; they return what they saw, and core computes the answer from it: outcome, remaining, times and
//! receipts are rounded in one place whatever the store.
//!
//! Must not know: rules, names of limits, HTTP; clusters and sentinels.
#![forbid(unsafe_code)]

mod failure;
mod link;
mod name;
mod options;
mod script;
mod store;
#[doc(hidden)]
pub mod wire;

pub use name::Secret;
pub use options::{Options, Remembering};
pub use store::RedisStore;
