//! The decisions whose instructions are counted, by name.
//!
//! A case prepares its inputs, then decides `times` times inside [`measured_section`]. Inputs pass through `black_box`
//! on every call, so that nothing is computed ahead of the loop. To add an algorithm: write its functions, name them in
//! [`CASES`], and run `cargo xtask bench instructions --save`.

mod batches;
mod buckets;
mod claims;
pub mod client;
mod collections;
mod connections;
mod engine;
mod fleet;
mod gateway;
mod header_fields;
mod matching;
mod memory;
mod redis;
mod sessions;
mod sockets;
mod tower;
mod transports;
mod windows;

use std::error::Error;
use std::hint::black_box;

use tollgate_core::{Outcome, Timestamp};

use crate::measure::measured_section;

/// Done, or why a quota or a store cannot be built.
pub type CaseRun = Result<(), Box<dyn Error>>;

/// A case runs so many decisions.
pub type Case = fn(u64) -> CaseRun;

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
    ("limit/token_bucket", batches::one_face),
    ("limit/all_of_three", batches::three_limits),
    ("lending/decide_10_loans", batches::lending),
    ("share/allocate_10", batches::shares),
    ("memory/spend_allow", |n| memory::spend(n, 1_000_000_000)),
    ("memory/spend_deny", |n| memory::spend(n, 1)),
    ("memory/ask_one", memory::ask_one),
    ("memory/ask_three_buckets", memory::ask_three_buckets),
    ("memory/ask_eight_buckets", memory::ask_eight_buckets),
    ("memory/spend_eight", memory::spend_eight),
    ("memory/ask_three_kinds", memory::ask_three_kinds),
    ("engine/allow_one", |n| engine::decide(n, 1, 1_000_000_000)),
    ("engine/allow_five", |n| engine::decide(n, 5, 1_000_000_000)),
    ("engine/pipeline_16", engine::decide_pipeline),
    ("engine/allow_candidate", engine::decide_with_candidate),
    ("engine/deny_one", |n| engine::decide(n, 1, 1)),
    ("engine/deny_five", |n| engine::decide(n, 5, 1)),
    ("claims/cached_token", claims::cached),
    ("claims/unknown_token_rs256", claims::unknown),
    ("redis/decide_one", |n| redis::decide(n, 1)),
    ("redis/decide_16", |n| redis::decide(n, 16)),
    ("fleet/leased_allow", |n| fleet::leased(n, 1_000_000_000)),
    ("fleet/leased_deny", |n| fleet::leased(n, 1)),
    ("fleet/async_allow", fleet::reconciled),
    ("fleet/without_store", fleet::without_store),
    ("serve/resp_throttle", |n| transports::throttle(n, 1)),
    ("serve/resp_throttle_16", |n| transports::throttle(n, 16)),
    ("serve/resp_check", |n| transports::resp_check(n, 1)),
    ("serve/http_check", |n| {
        transports::http_check(n, 1_000_000_000)
    }),
    ("serve/resp_check_16", |n| transports::resp_check(n, 16)),
    ("serve/grpc_rls", transports::grpc_rls),
    ("serve/resp_acquire_release", sessions::acquire_release),
    ("serve/rlqs_report", sessions::rlqs_report),
    ("serve/metrics_page", sessions::metrics_page),
    ("serve/http_check_denied", |n| transports::http_check(n, 1)),
    ("tower/bare", tower::bare),
    ("tower/two_limits", tower::two_limits),
    ("client/bare", client::bare),
    ("client/layer", client::layer),
    ("tower/constant_503", tower::constant_503),
    ("tower/shed", tower::shed),
    ("connection/http_check", |n| {
        connections::http_check(n, 1_000_000_000, "")
    }),
    ("connection/http_check_denied", |n| {
        connections::http_check(n, 1, "")
    }),
    ("connection/http_check_minimal", |n| {
        connections::http_check(n, 1_000_000_000, "prefer: return=minimal\r\n")
    }),
    ("connection/http_batch_10", connections::http_batch),
    ("connection/http_pipeline_10", connections::http_pipeline),
    ("connection/http_check_get", connections::http_check_get),
    ("connection/http_status", connections::http_status),
    ("connection/http_rls_json", connections::http_rls_json),
    ("connection/http_health", connections::http_health),
    ("connection/forward_auth_nginx", |n| {
        connections::forward_auth(n, "nginx", "original")
    }),
    ("connection/forward_auth_traefik", |n| {
        connections::forward_auth(n, "traefik", "forwarded")
    }),
    ("connection/forward_auth_caddy", |n| {
        connections::forward_auth(n, "caddy", "forwarded")
    }),
    ("connection/forward_auth_haproxy", |n| {
        connections::forward_auth(n, "haproxy", "forwarded")
    }),
    ("connection/grpc_health", connections::grpc_health),
    ("connection/grpc_rls", |n| connections::grpc_rls(n, 1, 1)),
    ("connection/grpc_rls_4_limits", |n| {
        connections::grpc_rls(n, 4, 1)
    }),
    ("connection/grpc_rls_4_calls", |n| {
        connections::grpc_rls(n, 1, 4)
    }),
    ("gateway/proxied", gateway::proxied),
    ("gateway/rejected", gateway::rejected),
    ("gateway/rejected_10k_keys", gateway::rejected_many_keys),
    ("gateway/constant_refusal", gateway::constant_refusal),
    ("gateway/shed", gateway::shed),
    ("match/route_10", |n| {
        matching::find(n, 10, matching::MatchBy::Route)
    }),
    ("match/route_100", |n| {
        matching::find(n, 100, matching::MatchBy::Route)
    }),
    ("match/route_10k", |n| {
        matching::find(n, 10_000, matching::MatchBy::Route)
    }),
    ("match/header_10", |n| {
        matching::find(n, 10, matching::MatchBy::Header)
    }),
    ("match/header_100", |n| {
        matching::find(n, 100, matching::MatchBy::Header)
    }),
    ("match/header_10k", |n| {
        matching::find(n, 10_000, matching::MatchBy::Header)
    }),
    ("match/network_10", |n| {
        matching::find(n, 10, matching::MatchBy::Network)
    }),
    ("match/network_100", |n| {
        matching::find(n, 100, matching::MatchBy::Network)
    }),
    ("match/network_10k", |n| {
        matching::find(n, 10_000, matching::MatchBy::Network)
    }),
    ("match/glob_10", |n| {
        matching::find(n, 10, matching::MatchBy::Glob)
    }),
    ("match/glob_100", |n| {
        matching::find(n, 100, matching::MatchBy::Glob)
    }),
    ("match/glob_10k", |n| {
        matching::find(n, 10_000, matching::MatchBy::Glob)
    }),
    ("match/presence_10", |n| {
        matching::find(n, 10, matching::MatchBy::Presence)
    }),
    ("match/presence_100", |n| {
        matching::find(n, 100, matching::MatchBy::Presence)
    }),
    ("match/presence_10k", |n| {
        matching::find(n, 10_000, matching::MatchBy::Presence)
    }),
    ("match/mixed_10", |n| {
        matching::find(n, 10, matching::MatchBy::Mixed)
    }),
    ("match/mixed_100", |n| {
        matching::find(n, 100, matching::MatchBy::Mixed)
    }),
    ("match/mixed_10k", |n| {
        matching::find(n, 10_000, matching::MatchBy::Mixed)
    }),
    ("match/key", matching::key),
    ("words/draft_11_of_one", |n| {
        header_fields::fields(n, "draft-11", 1, Outcome::Allow)
    }),
    ("words/draft_11_of_four", |n| {
        header_fields::fields(n, "draft-11", 4, Outcome::Allow)
    }),
    ("words/draft_11_denied", header_fields::denied_fields),
    ("words/github_of_four", |n| {
        header_fields::fields(n, "github", 4, Outcome::Allow)
    }),
    ("words/problem", header_fields::problem),
    ("words/address", header_fields::address),
];

const NOW: Timestamp = Timestamp::from_secs(1_700_000_000);

/// What the loop itself costs: three inputs in, one word out, no decision.
fn harness(times: u64) -> CaseRun {
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
            let ran = case(2);
            assert!(ran.is_ok(), "{name}: {ran:?}");
            assert!(
                !name.contains(char::is_whitespace),
                "{name} is a word in bench/instructions.txt"
            );
        }
    }
}
