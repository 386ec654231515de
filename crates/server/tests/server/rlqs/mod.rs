//! Quotas for Envoy: what a client is told on a clock that the test moves, what nobody should send, and real Envoys that
//! share a limit.

mod assigned;
mod client;
mod envoys;
mod hostile;
mod rig;

use std::sync::Arc;

use tollgate_server::grpc::{Grpc, GrpcLimits};
use tollgate_server::{App, QuotaBounds};
use tollgate_store::ManualClock;

use crate::grpc::START;
use crate::harness::policy;
use crate::running::Running;
use client::Client;

/// A server on a clock that stands still.
struct Serving {
    app: Arc<App<Arc<ManualClock>>>,
    clock: Arc<ManualClock>,
    running: Running,
}

/// One that was never there before, so that it may give out everything at once.
fn first() -> QuotaBounds {
    let mut bounds = QuotaBounds::default();
    bounds.is_first = true;
    bounds
}

async fn serving(text: &str, bounds: QuotaBounds) -> Serving {
    let clock = Arc::new(ManualClock::at(START));
    let app = App::new(&policy(text), 1_000, Arc::clone(&clock)).unwrap();
    let app = Arc::new(app.sharing(bounds));
    let grpc = Arc::new(Grpc::new(Arc::clone(app.envoy())));
    let limits = GrpcLimits::default();
    let running = Running::start(|listener, shutdown| grpc.run(listener, limits, shutdown)).await;
    Serving {
        app,
        clock,
        running,
    }
}

impl Serving {
    async fn client(&self) -> Client {
        Client::to(self.running.address).await
    }
}
