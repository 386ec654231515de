//! gRPC over real sockets: the answers that Envoy gets, what others ask, and what nobody should send.

mod any_bytes;
mod calls;
pub(crate) mod client;
mod clients;
mod hostile;
mod policies;
mod services;

use std::sync::Arc;

use tokio::task::JoinHandle;
use tollgate_core::Timestamp;
use tollgate_server::App;
use tollgate_server::grpc::{Grpc, GrpcLimits};
use tollgate_server::listen::Ended;
use tollgate_store::ManualClock;

use crate::harness::policy;
use crate::running::Running;
use client::Client;

pub(crate) const OK: u64 = 1;
pub(crate) const OVER: u64 = 2;

pub(crate) const START: Timestamp = Timestamp::from_secs(1_700_000_000);

/// A server that speaks gRPC on a free port, on a clock that stands still.
pub(crate) struct Serving {
    pub(crate) address: std::net::SocketAddr,
    pub(crate) clock: Arc<ManualClock>,
    running: Running,
}

/// By a policy of ours.
pub(crate) async fn by_policy(text: &str) -> Serving {
    by_policy_within(text, GrpcLimits::default()).await
}

pub(crate) async fn by_policy_within(text: &str, limits: GrpcLimits) -> Serving {
    let clock = Arc::new(ManualClock::at(START));
    let app = App::new(&policy(text), 1_000, Arc::clone(&clock)).unwrap();
    serve(app, clock, limits).await
}

/// By a file of envoyproxy/ratelimit.
pub(crate) async fn by_file(text: &str) -> Serving {
    let clock = Arc::new(ManualClock::at(START));
    let files = tollgate_envoy::config::load(&[("edge.yaml", text)]).unwrap();
    let app = App::by_envoys_files(files, 1_000, Arc::clone(&clock)).unwrap();
    serve(app, clock, GrpcLimits::default()).await
}

async fn serve(app: App<Arc<ManualClock>>, clock: Arc<ManualClock>, limits: GrpcLimits) -> Serving {
    let grpc = Arc::new(Grpc::new(Arc::clone(app.envoy())));
    let running = Running::start(|listener, shutdown| grpc.run(listener, limits, shutdown)).await;
    Serving {
        address: running.address,
        clock,
        running,
    }
}

impl Serving {
    pub(crate) async fn connect(&self) -> Client {
        Client::to(self.address).await
    }

    /// Tells the server to stop.
    pub(crate) fn begin_to_stop(self) -> JoinHandle<Ended> {
        self.running.begin_to_stop()
    }
}
