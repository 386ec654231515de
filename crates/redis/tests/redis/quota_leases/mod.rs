//! Quota leases on a server: as core decides, on the server's clock, and in every layout.

mod differential;
pub(crate) mod server;
mod unleased;
