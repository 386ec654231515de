//! grpcio, the usual gRPC client of Python programs, against a real server.

use std::process::{Command, Stdio};

use tollgate_testkit::redis::python_packages;

use super::serve_policy;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn grpcio_checks_watches_reflects_and_is_admitted_exactly_to_the_limit() {
    let text = "limits: [{ name: per-user, key: descriptor.user, rate: 10/h }]";
    let serving = serve_policy(text).await;
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/server/grpc/grpcio.py");
    let output = Command::new("python3")
        .args([script, &serving.address.to_string()])
        .env("PYTHONPATH", python_packages("grpc", "grpcio==1.85.1"))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let output_text = String::from_utf8_lossy(&output.stdout);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{output_text}{error}");
    assert_eq!(output_text, "fine\n");
}
