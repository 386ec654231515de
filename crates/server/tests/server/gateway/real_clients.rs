//! Clients of other people through the gateway.

use std::process::{Command, Stdio};

use tollgate_testkit::redis::python_packages;

use super::start;
use crate::grpc::serve_policy;

/// grpcio, the gateway, and a gRPC server: unary calls, streams, reflection, errors and the limits behind.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn grpcio_reaches_a_grpc_server_through_the_gateway() {
    let policy = "limits: [{ name: per-user, key: descriptor.user, rate: 10/h }]";
    let upstream = serve_policy(policy).await;
    let text = "limits: none\ngateway: { upstreams: { app: 'h2c://UPSTREAM' }, routes: [{ upstream: app }] }";
    let gateway = start(text, upstream.address).await;
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/server/grpc/grpcio.py");
    let output = Command::new("python3")
        .args([script, &gateway.address.to_string()])
        .env("PYTHONPATH", python_packages("grpc", "grpcio==1.85.1"))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}{error}");
    assert_eq!(said, "fine\n");
}
