//! Any bytes as a header of the PROXY protocol: no panic, a bounded length, and progress with every read.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tollgate_server::listen::fuzz_proxy_header(bytes));
