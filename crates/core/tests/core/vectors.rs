//! Core against the test vectors that every store has to pass.
//!
//! Must not know: what the cases are. `testdata/vectors/README.md` describes them.
#![allow(
    clippy::panic,
    reason = "a test that cannot go on should say so loudly, helpers included"
)]

use std::path::Path;

use tollgate_testkit::vectors::{CoreSubject, Suite, run};

/// Fewer cases than this cannot cover an algorithm. The bound also fails a file that has become empty.
const AT_LEAST: usize = 10;

fn passes(file: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/vectors");
    let suite = Suite::load(&folder.join(file), AT_LEAST).unwrap_or_else(|bad| panic!("{bad}"));
    let ran = run(&suite, &mut CoreSubject::default()).unwrap_or_else(|wrong| panic!("{wrong}"));
    assert!(ran >= AT_LEAST, "{file}: {ran} cases ran");
}

#[test]
fn token_bucket_vectors() {
    passes("token_bucket.yaml");
}

#[test]
fn leaky_meter_vectors() {
    passes("leaky_meter.yaml");
}

#[test]
fn leaky_queue_vectors() {
    passes("leaky_queue.yaml");
}

#[test]
fn fixed_window_vectors() {
    passes("fixed_window.yaml");
}

#[test]
fn sliding_log_vectors() {
    passes("sliding_log.yaml");
}

#[test]
fn sliding_counter_vectors() {
    passes("sliding_counter.yaml");
}

#[test]
fn concurrency_vectors() {
    passes("concurrency.yaml");
}

#[test]
fn composition_vectors() {
    passes("composition.yaml");
}

#[test]
fn reservation_vectors() {
    passes("reservation.yaml");
}
