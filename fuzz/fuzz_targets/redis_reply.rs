//! Any bytes as the replies of a Redis server: no panic, and each reply is the one that the client library reads.
#![no_main]

#[path = "../../crates/redis/tests/redis/any_reply.rs"]
mod any_reply;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| any_reply::any_reply(bytes));
