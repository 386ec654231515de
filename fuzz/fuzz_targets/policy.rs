//! Any bytes as a policy: no panic, every problem in its place, and what is accepted reads back equal.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tollgate_testkit::fuzzing::policy::policy(bytes));
