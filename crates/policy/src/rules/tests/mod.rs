//! Tests of matching and keying, one file per story.
//!
//! Must not know: stores, clocks.

mod allocation;
mod differential;
mod host_spellings;
mod keys;
mod matching;
mod naive;
mod naive_path;
mod reachable_quotas;
mod spellings;
