//! Health checks of a server that has stopped deciding, on every listener.

use std::sync::Arc;

use tollgate_core::Nanos;
use tollgate_server::grpc::{GrpcLimits, GrpcServer};
use tollgate_server::listen::{LocalEndpoint, Peer};
use tollgate_service::STALLED_AFTER;

use super::serve_admin;
use crate::grpc::client::Client;
use crate::running_server::RunningServer;

const POLICY: &str = "limits: [{ name: api, key: header.x-api-key, rate: 1/h }]";

/// The attack: with a full stderr pipe every thread of the runtime was stuck in a write, no listener decided anything, and
/// `/healthz` of the admin listener, which has a thread of its own, said 200. Now a watchdog decides a synthetic request about
/// once a second, and health checks fail when the last one is more than five seconds old.
#[tokio::test]
async fn health_checks_fail_while_nothing_is_decided_and_recover_afterwards() {
    let admin = serve_admin(POLICY).await;
    let app = &admin.app;
    let grpc = Arc::new(GrpcServer::new(Arc::clone(app.envoy())));
    let limits = GrpcLimits::default();
    let grpc =
        RunningServer::start(|listener, shutdown| grpc.run(listener, limits, shutdown)).await;
    let statuses = async || {
        let mut statuses = Vec::new();
        for path in ["/healthz", "/readyz"] {
            statuses.push(admin.get(path).await.status);
        }
        let address = ([127, 0, 0, 1], 8080).into();
        let peer = Peer::new(Some(address), LocalEndpoint::Tcp(address));
        for path in ["/healthz", "/readyz", "/healthcheck"] {
            let request = hyper::Request::get(path).body(&[][..]).unwrap();
            let response = app.respond(&request, &peer).await;
            statuses.push(response.status().as_u16());
        }
        let mut client = Client::connect(grpc.address).await;
        let health = client.call("/grpc.health.v1.Health/Check", b"").await;
        statuses.push(health.answers[0][1].into());
        statuses
    };
    const HEALTHY: [u16; 6] = [200, 200, 200, 200, 200, 1];
    assert_eq!(statuses().await, HEALTHY, "before the first decision");
    assert!(!admin.get("/metrics").await.body.contains("watchdog_age"));
    app.service().decide_synthetic_request().await;
    admin.clock.advance(STALLED_AFTER);
    assert_eq!(statuses().await, HEALTHY);
    admin.clock.advance(Nanos::from_millis(250));
    assert_eq!(statuses().await, [503, 503, 503, 503, 503, 2]);
    assert_eq!(
        admin.get("/healthz").await.problem(),
        "the server is stalled: it made its last decision 5.250 s ago"
    );
    let metrics = admin.get("/metrics").await.body;
    assert!(metrics.contains("\ntollgate_watchdog_age_seconds 5.25\n"));
    app.service().decide_synthetic_request().await;
    assert_eq!(statuses().await, HEALTHY);
}
