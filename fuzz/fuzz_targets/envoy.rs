//! Any bytes as what Envoy asks: no panic, and what is answered is an answer.
#![no_main]

use std::sync::OnceLock;

#[path = "../../crates/server/tests/server/grpc/any_bytes.rs"]
mod any_bytes;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    static BOTH: OnceLock<any_bytes::Both> = OnceLock::new();
    BOTH.get_or_init(any_bytes::Both::new).ask(bytes);
});
