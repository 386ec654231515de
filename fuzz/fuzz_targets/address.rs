//! Any bytes as what a client writes into the fields of proxies: no panic, and the client stays who it is.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tollgate_testkit::fuzzing::address::address(bytes));
