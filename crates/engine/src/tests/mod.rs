//! The engine as a whole.

mod actions;
mod allocation;
mod answers;
mod oracle;
mod quotas;
mod responses;
mod swap;
mod threads;
mod told;
mod traces;
