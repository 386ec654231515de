//! The decisions whose instructions are counted, by name.
//!
//! A case prepares its inputs, then decides `times` times inside [`measured_section`]. Inputs pass through `black_box`
//! on every call, so that nothing is computed ahead of the loop. To add an algorithm: write its functions, name them in
//! [`CASES`], and run `cargo xtask bench instructions --save`.

mod buckets;
mod collections;
mod engine;
mod fleet;
mod matching;
mod memory;
mod serving;
mod together;
mod windows;
mod words;

use std::error::Error;
use std::hint::black_box;

use tollgate_core::{Outcome, Timestamp};

use crate::measure::measured_section;

/// Done, or why a quota or a store cannot be built.
pub type Ran = Result<(), Box<dyn Error>>;

/// A case runs so many decisions.
pub type Case = fn(u64) -> Ran;

/// Every case, by the name under which its count is kept.
pub const CASES: &[(&str, Case)] = &[
    ("harness", harness),
    ("token_bucket/allow", |n| buckets::token(n, 0, 1)),
    ("token_bucket/deny", |n| buckets::token(n, 100, 1)),
    ("token_bucket/never", |n| buckets::token(n, 0, 101)),
    ("token_bucket/peek", |n| buckets::token(n, 50, 0)),
    ("token_bucket/status", buckets::token_status),
    ("token_bucket/allow_blocks", buckets::token_blocks),
    ("token_bucket/refund", buckets::token_refund),
    ("leaky_meter/allow", |n| buckets::leaky_meter(n, 0)),
    ("leaky_queue/wait", |n| buckets::leaky_queue(n, 10)),
    ("leaky_queue/deny", |n| buckets::leaky_queue(n, 21)),
    ("fixed_window/allow", |n| windows::fixed(n, 1)),
    ("fixed_window/deny", |n| windows::fixed(n, 100)),
    ("fixed_window/calendar_month", windows::calendar),
    ("sliding_counter/allow", |n| windows::counter(n, 20)),
    ("sliding_counter/deny", |n| windows::counter(n, 80)),
    ("sliding_counter/status", windows::counter_status),
    ("sliding_log/allow_of_100", |n| collections::log(n, 99)),
    ("sliding_log/deny_of_100", |n| collections::log(n, 100)),
    ("concurrency/acquire_of_100", |n| {
        collections::acquire(n, 99)
    }),
    ("concurrency/deny_of_100", |n| collections::acquire(n, 100)),
    ("sketch/allow", collections::sketch),
    ("limit/token_bucket", together::one_face),
    ("limit/all_of_three", together::three_limits),
    ("lending/decide_10_loans", together::lending),
    ("share/allocate_10", together::shares),
    ("memory/spend_allow", |n| memory::spend(n, 1_000_000_000)),
    ("memory/spend_deny", |n| memory::spend(n, 1)),
    ("memory/ask_one", memory::ask_one),
    ("memory/ask_three_buckets", memory::ask_three_buckets),
    ("memory/ask_eight_buckets", memory::ask_eight_buckets),
    ("memory/spend_eight", memory::spend_eight),
    ("memory/ask_three_kinds", memory::ask_three_kinds),
    ("engine/allow_one", |n| engine::decide(n, 1, 1_000_000_000)),
    ("engine/allow_five", |n| engine::decide(n, 5, 1_000_000_000)),
    ("engine/allow_candidate", engine::decide_with_candidate),
    ("engine/deny_one", |n| engine::decide(n, 1, 1)),
    ("engine/deny_five", |n| engine::decide(n, 5, 1)),
    ("fleet/leased_allow", |n| fleet::leased(n, 1_000_000_000)),
    ("fleet/leased_deny", |n| fleet::leased(n, 1)),
    ("fleet/async_allow", fleet::reconciled),
    ("fleet/without_store", fleet::without_store),
    ("serve/resp_throttle", |n| serving::throttle(n, 1)),
    ("serve/resp_throttle_16", |n| serving::throttle(n, 16)),
    ("serve/resp_check", serving::resp_check),
    ("serve/http_check", |n| {
        serving::http_check(n, 1_000_000_000)
    }),
    ("serve/grpc_rls", serving::grpc_rls),
    ("serve/http_check_denied", |n| serving::http_check(n, 1)),
    ("match/route_10", |n| {
        matching::find(n, 10, matching::By::Route)
    }),
    ("match/route_100", |n| {
        matching::find(n, 100, matching::By::Route)
    }),
    ("match/route_10k", |n| {
        matching::find(n, 10_000, matching::By::Route)
    }),
    ("match/header_10", |n| {
        matching::find(n, 10, matching::By::Header)
    }),
    ("match/header_100", |n| {
        matching::find(n, 100, matching::By::Header)
    }),
    ("match/header_10k", |n| {
        matching::find(n, 10_000, matching::By::Header)
    }),
    ("match/network_10", |n| {
        matching::find(n, 10, matching::By::Network)
    }),
    ("match/network_100", |n| {
        matching::find(n, 100, matching::By::Network)
    }),
    ("match/network_10k", |n| {
        matching::find(n, 10_000, matching::By::Network)
    }),
    ("match/glob_10", |n| {
        matching::find(n, 10, matching::By::Glob)
    }),
    ("match/glob_100", |n| {
        matching::find(n, 100, matching::By::Glob)
    }),
    ("match/glob_10k", |n| {
        matching::find(n, 10_000, matching::By::Glob)
    }),
    ("match/mixed_10", |n| {
        matching::find(n, 10, matching::By::Mixed)
    }),
    ("match/mixed_100", |n| {
        matching::find(n, 100, matching::By::Mixed)
    }),
    ("match/mixed_10k", |n| {
        matching::find(n, 10_000, matching::By::Mixed)
    }),
    ("match/key", matching::key),
    ("words/draft_11_of_one", |n| {
        words::fields(n, "draft-11", 1, Outcome::Allow)
    }),
    ("words/draft_11_of_four", |n| {
        words::fields(n, "draft-11", 4, Outcome::Allow)
    }),
    ("words/draft_11_denied", words::denied_fields),
    ("words/github_of_four", |n| {
        words::fields(n, "github", 4, Outcome::Allow)
    }),
    ("words/problem", words::problem),
    ("words/address", words::address),
];

const NOW: Timestamp = Timestamp::from_secs(1_700_000_000);

/// What the loop itself costs: three inputs in, one word out, no decision.
fn harness(times: u64) -> Ran {
    measured_section(times, || {
        let (state, now, cost) = black_box((0_u64, NOW, 1_u64));
        state ^ now.as_nanos() ^ cost
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_case_runs_and_has_a_name_of_its_own() {
        let names: BTreeSet<&str> = CASES.iter().map(|(name, _)| *name).collect();
        assert_eq!(names.len(), CASES.len());
        for (name, case) in CASES {
            assert!(case(2).is_ok(), "{name}");
            assert!(
                !name.contains(char::is_whitespace),
                "{name} is a word in bench/instructions.txt"
            );
        }
    }
}
