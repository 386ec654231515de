//! The store contract over Redis or Valkey: one script call decides a whole batch, all or nothing, on one server, on the
//! one that sentinels name, in a cluster, or on several that share the keys.
//!
//! The scripts under `lua/` are ports of `tollgate-core`, and tests hold them to it step by step. They decide whether to
//! admit and what to keep; they return what they saw, and core computes the answer from it: outcome, remaining, times and
//! receipts are rounded in one place whatever the store.
//!
//! Must not know: rules, names of limits, HTTP.
#![forbid(unsafe_code)]
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod address;
mod call_failure;
mod credentials;
mod key_name;
mod lease_broker;
mod multi_slot;
mod options;
mod pool;
mod register;
mod remote_store;
mod script;
mod store;
mod task;
mod tls;
mod topology;
#[doc(hidden)]
pub mod wire;

pub use credentials::{Credentials, CredentialsProvider, PasswordFile};
pub use key_name::KeyHashSecret;
pub use options::{RedisOptions, ReservationRetention};
pub use register::RedisRegister;
pub use store::RedisStore;
pub use tls::{ClientIdentity, RedisTls};
pub use topology::{ServerWarning, ServerWarningKind};
