//! A short run of the fuzz target on fixed inputs, so that every commit tests the target itself and finds cheap failures. Long runs:
//! `cargo xtask extra fuzz`.

use tollgate_testkit::fuzzing::{limit_trace, pseudo_random_bytes};

#[test]
fn no_trace_of_random_bytes_breaks_an_invariant() {
    for seed in 0..20_000 {
        limit_trace(&pseudo_random_bytes(seed, 40 + (seed % 400) as usize));
    }
}
