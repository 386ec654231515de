//! Any bytes as a token and as a file with keys: no panic, and no claims without the private key.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tollgate_service::fuzz_token(bytes));
