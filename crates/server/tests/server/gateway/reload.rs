//! Routes are reloaded with the policy, and no request is lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::task::JoinSet;
use tollgate_server::TrustedProxies;
use tollgate_server::gateway::{Gateway, GatewayLimits};
use tollgate_server::listen::BufferBudget;
use tollgate_service::reload::ReloadOutcome;
use tollgate_service::{RateLimitService, Secret};
use tollgate_store::SystemClock;

use super::recorder::Recorder;
use super::{OK, exchange, get};
use crate::running_server::RunningServer;

fn text(upstream: &Recorder, number: usize) -> String {
    format!(
        "limits: none\ngateway: {{ upstreams: {{ app: http://{} }}, routes: [{{ upstream: app }}, {{ path: /v{number}, upstream: app }}] }}",
        upstream.address
    )
}

/// A reload storm under load: every request is answered by the old upstream or by the new one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reload_storm_drops_no_request() {
    let (first, second) = (Recorder::start(OK).await, Recorder::start(OK).await);
    let path = std::env::temp_dir().join(format!(
        "tollgate-gateway-reload-{}.yaml",
        std::process::id()
    ));
    std::fs::write(&path, text(&first, 0)).unwrap();
    let service = RateLimitService::from_file(&path, 1_000, SystemClock::new(), Secret::random());
    let service = Arc::new(service.unwrap());
    let reloader = Arc::clone(service.reloader().unwrap());
    let spec = reloader
        .engine()
        .current_policy()
        .1
        .gateway
        .clone()
        .unwrap();
    let buffers = Arc::<BufferBudget>::default();
    let gateway = Gateway::new(service, &spec, TrustedProxies::default(), buffers).unwrap();
    let gateway = Arc::new(gateway);
    let running = RunningServer::start(|listener, stop| {
        gateway.run(listener, GatewayLimits::default(), stop)
    })
    .await;
    let (address, is_over) = (running.address, Arc::<AtomicBool>::default());
    let mut clients = JoinSet::new();
    for _ in 0..4 {
        let is_over = Arc::clone(&is_over);
        clients.spawn(async move {
            let mut count = 0_usize;
            while !is_over.load(Ordering::Relaxed) {
                let response = exchange(address, &get("/", "")).await;
                assert!(response.starts_with("HTTP/1.1 200"), "{response}");
                count += 1;
            }
            count
        });
    }
    for number in 1..=20 {
        let upstream = if number % 2 == 0 { &first } else { &second };
        let before = upstream.requests().len();
        std::fs::write(&path, text(upstream, number)).unwrap();
        let outcome = tokio::task::block_in_place(|| reloader.reload_now());
        assert!(matches!(outcome, ReloadOutcome::Reloaded(_)), "{outcome:?}");
        // The new routes are in use when the other upstream gets requests.
        super::wait_until(|| upstream.requests().len() > before).await;
    }
    is_over.store(true, Ordering::Relaxed);
    let mut total = 0;
    while let Some(count) = clients.join_next().await {
        total += count.unwrap();
    }
    assert_eq!(first.requests().len() + second.requests().len(), total);
    std::fs::remove_file(&path).unwrap();
    running.stop().await;
}
