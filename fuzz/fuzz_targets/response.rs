//! Any bytes as the rate limit fields and the body of a response: no panic, and every bound holds.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tollgate_testkit::fuzzing::response::response(bytes));
