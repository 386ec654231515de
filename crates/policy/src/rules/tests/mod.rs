//! Tests of matching and keying, one file per story.
//!
//! Must not know: stores, clocks.

mod allocation;
mod differential;
mod keys;
mod matching;
mod naive;
mod reachable_quotas;
