//! Any bytes as a snapshot of a store: no panic, bounded memory, and what is accepted decides and is saved.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tollgate_testkit::fuzzing::snapshot::snapshot(bytes));
