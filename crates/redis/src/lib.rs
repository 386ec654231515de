//! The store contract over Redis or Valkey. One script call decides a whole batch, all or nothing, on a single server,
//! on the primary that sentinels name, in a cluster, or on independent shards.
//!
//! The scripts under `lua/` are ports of `tollgate-core`; tests compare them step by step. A script decides whether to
//! admit and what to store. It returns the state that it saw, and core computes the reply from it. So outcome,
//! remaining units, times and receipts are rounded in one place for every store.
//!
//! Must not know: rules, names of limits, HTTP.
#![forbid(unsafe_code)]
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod address;
mod call_failure;
mod connection;
mod credentials;
mod key_name;
mod lease_broker;
mod multi_slot;
mod options;
mod pool;
mod register;
mod remote_store;
mod script;
mod shared_quota;
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
