//! Any bytes as what an HTTP client sends: no panic, and the fast path answers as hyper does.
#![no_main]

#[path = "../../crates/server/tests/server/http1/any_bytes.rs"]
mod any_bytes;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| any_bytes::any_bytes(bytes));
