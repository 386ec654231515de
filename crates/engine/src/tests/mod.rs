//! The engine as a whole.

mod actions;
mod allocation;
mod caller_waits;
mod direct;
mod junk_keys;
mod oracle;
mod quota_info;
mod quotas;
mod read_ahead;
mod reload;
mod responses;
mod shares;
mod simulated_driver;
mod spillover;
mod threads;
mod traces;
mod verdicts;
