//! A layer over a clock that tests move, and requests to services behind it.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use tollgate_service::{ManualClock, Timestamp};
use tower::{Service, ServiceExt as _, service_fn};
use tower_layer::Layer as _;

use crate::{ResponseBody, TollgateLayer, TollgateLayerBuilder};

pub(super) type TestLayer = TollgateLayer<Arc<ManualClock>>;

/// A layer with this policy, and its clock.
pub(super) fn layer(policy: &str) -> (TestLayer, Arc<ManualClock>) {
    layer_with(policy, |builder| builder)
}

/// The same with other settings.
pub(super) fn layer_with(
    policy: &str,
    settings: impl FnOnce(TollgateLayerBuilder) -> TollgateLayerBuilder,
) -> (TestLayer, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::at(Timestamp::from_secs(1_700_000_000)));
    let builder = settings(TollgateLayer::builder().policy(policy));
    let layer = builder.build_with_clock(Arc::clone(&clock)).unwrap();
    (layer, clock)
}

/// A request with a path.
pub(super) fn get(path: &str) -> Request<()> {
    Request::get(path).body(()).unwrap()
}

/// The response of a service behind the layer that answers every request with `text`.
pub(super) async fn ask(
    layer: &TestLayer,
    request: Request<()>,
) -> Response<ResponseBody<Full<Bytes>, Arc<ManualClock>>> {
    let inner = service_fn(|_| async { Ok::<_, Infallible>(text("hello")) });
    layer.layer(inner).oneshot(request).await.unwrap()
}

/// The statuses of so many equal requests, one after the other.
pub(super) async fn statuses(layer: &TestLayer, path: &str, count: usize) -> Vec<u16> {
    let mut statuses = Vec::new();
    for _ in 0..count {
        let response = ask(layer, get(path)).await;
        statuses.push(response.status().as_u16());
        response.collect().await.unwrap();
    }
    statuses
}

pub(super) fn text(text: &'static str) -> Response<Full<Bytes>> {
    Response::new(Full::new(Bytes::from_static(text.as_bytes())))
}

/// The value of a header field.
pub(super) fn field<'a, B>(response: &'a Response<B>, name: &str) -> Option<&'a str> {
    let value = response.headers().get(name)?;
    Some(value.to_str().unwrap())
}

/// A service that is ready.
pub(super) async fn ready<S: Service<Request<()>>>(service: &mut S) -> &mut S {
    match service.ready().await {
        Ok(service) => service,
        Err(_) => panic!("the service failed"),
    }
}
