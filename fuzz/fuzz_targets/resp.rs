//! Any bytes as what a Redis client sends: no panic, no growth, and the same answers however they are cut into packets.
#![no_main]

#[path = "../../crates/server/tests/server/resp/any_bytes.rs"]
mod any_bytes;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| any_bytes::any_bytes(bytes));
