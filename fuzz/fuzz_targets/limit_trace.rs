//! Any bytes as a quota and a trace: no panic, no overflow, no broken promise.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tollgate_testkit::fuzzing::limit_trace(bytes));
