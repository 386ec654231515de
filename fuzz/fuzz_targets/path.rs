//! Any bytes as a path and a host: no panic, bounded readings, and no spelling with other limits.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tollgate_testkit::fuzzing::path::path(bytes));
