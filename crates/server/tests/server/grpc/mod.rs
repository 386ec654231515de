//! gRPC over real sockets: replies to Envoy, other services, and hostile clients.

mod any_bytes;
mod calls;
pub(crate) mod client;
mod clients;
mod frame_floods;
mod hostile_clients;
mod policies;
mod services;

use std::sync::Arc;

use tokio::task::JoinHandle;
use tollgate_core::Timestamp;
use tollgate_server::grpc::{GrpcLimits, GrpcServer};
use tollgate_server::listen::DrainOutcome;
use tollgate_server::{HttpApi, ListenerCounters};
use tollgate_store::ManualClock;

use crate::harness::policy;
use crate::running_server::RunningServer;
use client::Client;

pub(crate) const OK: u64 = 1;
pub(crate) const OVER: u64 = 2;

pub(crate) const START: Timestamp = Timestamp::from_secs(1_700_000_000);

/// A gRPC server on a free port with a manual clock.
pub(crate) struct TestGrpcServer {
    pub(crate) address: std::net::SocketAddr,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) counters: Arc<ListenerCounters>,
    running: RunningServer,
}

/// With a policy.
pub(crate) async fn serve_policy(text: &str) -> TestGrpcServer {
    serve_policy_with(text, GrpcLimits::default()).await
}

pub(crate) async fn serve_policy_with(text: &str, limits: GrpcLimits) -> TestGrpcServer {
    let clock = Arc::new(ManualClock::at(START));
    let app = HttpApi::new(&policy(text), 1_000, Arc::clone(&clock)).unwrap();
    serve(app, clock, limits).await
}

/// With a file of envoyproxy/ratelimit.
pub(crate) async fn serve_file(text: &str) -> TestGrpcServer {
    let clock = Arc::new(ManualClock::at(START));
    let files = tollgate_envoy::config::load(&[("edge.yaml", text)]).unwrap();
    let app = HttpApi::from_envoy_policy(files, 1_000, Arc::clone(&clock)).unwrap();
    serve(app, clock, GrpcLimits::default()).await
}

async fn serve(
    app: HttpApi<Arc<ManualClock>>,
    clock: Arc<ManualClock>,
    limits: GrpcLimits,
) -> TestGrpcServer {
    let grpc = Arc::new(GrpcServer::new(Arc::clone(app.envoy())));
    let counters = Arc::clone(grpc.counters());
    let running =
        RunningServer::start(|listener, shutdown| grpc.run(listener, limits, shutdown)).await;
    TestGrpcServer {
        address: running.address,
        clock,
        counters,
        running,
    }
}

impl TestGrpcServer {
    pub(crate) async fn connect(&self) -> Client {
        Client::connect(self.address).await
    }

    /// Starts the shutdown of the server.
    pub(crate) fn start_stopping(self) -> JoinHandle<DrainOutcome> {
        self.running.start_stopping()
    }
}
