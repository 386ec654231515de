//! The tower layer in two programs that share one Redis.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::Full;
use hyper::{Request, Response};
use tokio::task::{JoinSet, yield_now};
use tokio::time::timeout;
use tollgate_service::fleet::FleetMaintenance;
use tollgate_store::SystemClock;
use tollgate_testkit::redis::{RedisNode, ServerProgram};
use tollgate_tower::{ResponseBody, TollgateLayer};
use tower::{ServiceExt as _, service_fn};

use super::{DEADLINE, FleetServer, start_server};

type LayerResponse = Response<ResponseBody<Full<Bytes>>>;

fn layer(server: &FleetServer) -> TollgateLayer<SystemClock> {
    let service = Arc::clone(server.app.service());
    let layer = TollgateLayer::builder().build_with_service(service);
    layer.unwrap()
}

async fn ask(layer: &TollgateLayer) -> LayerResponse {
    let inner = service_fn(|_: Request<()>| async {
        Ok::<_, Infallible>(Response::new(Full::new(Bytes::from_static(b"hello"))))
    });
    let service = tower::Layer::layer(layer, inner);
    service.oneshot(Request::new(())).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn layers_of_two_programs_share_one_quota() {
    let redis = RedisNode::start(ServerProgram::Redis, &[]);
    let policy = "limits: [{ name: ten, rate: 10/h }]";
    let one = start_server(&redis.url(), policy).await;
    let other = start_server(&redis.url(), policy).await;
    let layers = [layer(&one), layer(&other)];
    let mut admitted = 0;
    for number in 0..40 {
        let response = ask(&layers[number % 2]).await;
        assert!(response.headers().contains_key("ratelimit"));
        admitted += usize::from(response.status() == 200);
    }
    assert_eq!(admitted, 10);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i14_permits_return_to_a_fleet_when_bodies_end() {
    let redis = RedisNode::start(ServerProgram::Redis, &[]);
    let policy = "limits: [{ name: two, concurrency: 2, lease: 1h }]";
    let one = start_server(&redis.url(), policy).await;
    let other = start_server(&redis.url(), policy).await;
    let mut maintenance = JoinSet::new();
    for server in [&one, &other] {
        let service = Arc::clone(server.app.service());
        maintenance.spawn(Arc::new(FleetMaintenance::new(service)).run());
    }
    let layers = [layer(&one), layer(&other)];
    let held = [ask(&layers[0]).await, ask(&layers[1]).await];
    assert!(held.iter().all(|response| response.status() == 200));
    for layer in &layers {
        assert_eq!(ask(layer).await.status(), 429, "both permits are taken");
    }
    drop(held);
    let free = async {
        while ask(&layers[0]).await.status() != 200 {
            yield_now().await;
        }
    };
    timeout(DEADLINE, free).await.unwrap();
}
