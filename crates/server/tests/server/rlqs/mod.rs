//! RLQS: assignments on a clock that the test moves, hostile clients, and real Envoys that share a limit.

mod assignments;
mod client;
mod harness;
mod hostile_clients;
mod with_envoy;

use std::sync::Arc;

use tollgate_server::grpc::{GrpcLimits, GrpcServer};
use tollgate_server::{HttpApi, QuotaBounds};
use tollgate_store::ManualClock;

use crate::grpc::START;
use crate::harness::policy;
use crate::running_server::RunningServer;
use client::RlqsClient;

/// A server with a manual clock.
struct TestRlqsServer {
    app: Arc<HttpApi<Arc<ManualClock>>>,
    clock: Arc<ManualClock>,
    running: RunningServer,
}

/// The first start of a server, which may assign everything immediately.
fn first_start() -> QuotaBounds {
    let mut bounds = QuotaBounds::default();
    bounds.is_first_process = true;
    bounds
}

async fn serve_policy(text: &str, bounds: QuotaBounds) -> TestRlqsServer {
    let clock = Arc::new(ManualClock::at(START));
    let app = HttpApi::new(&policy(text), 1_000, Arc::clone(&clock)).unwrap();
    let app = Arc::new(app.with_quota_bounds(bounds));
    let grpc = Arc::new(GrpcServer::new(Arc::clone(app.envoy())));
    let limits = GrpcLimits::default();
    let running =
        RunningServer::start(|listener, shutdown| grpc.run(listener, limits, shutdown)).await;
    TestRlqsServer {
        app,
        clock,
        running,
    }
}

impl TestRlqsServer {
    async fn client(&self) -> RlqsClient {
        RlqsClient::connect(self.running.address).await
    }
}
