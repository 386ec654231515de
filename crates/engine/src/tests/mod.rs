//! The engine as a whole.

mod actions;
mod allocation;
mod answers;
mod oracle;
mod quota_info;
mod quotas;
mod responses;
mod simulated_driver;
mod swap;
mod threads;
mod traces;
