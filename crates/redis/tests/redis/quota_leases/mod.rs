//! Slices of a quota, lent by a server: as core's book says, on the server's clock, and wherever the key is.

mod differential;
mod server;
