//! Any bytes as what a client of the gateway sends: no panic, no ambiguous request, and heads that are normal.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tollgate_server::gateway::fuzz_request_head(bytes));
