//! The services that are compared: one handler, and the layers around it.
//!
//! Must not know: how they are measured.

use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::error_handling::HandleErrorLayer;
use axum::extract::{ConnectInfo, Request};
use axum::http::StatusCode;
use axum::routing::get;
use tollgate_tower::{LimitSpec, TollgateLayer};
use tower::limit::GlobalConcurrencyLimitLayer;
use tower::{BoxError, ServiceBuilder};
use tower_governor::GovernorLayer;
use tower_governor::governor::GovernorConfigBuilder;
use tower_governor::key_extractor::{GlobalKeyExtractor, PeerIpKeyExtractor};

/// A service with a name.
pub(crate) struct Contender {
    pub(crate) name: &'static str,
    pub(crate) build: fn() -> Result<Router, Box<dyn Error>>,
}

/// A layer of tower_governor that sends its header fields. A macro, because its type names types of another crate.
macro_rules! governor {
    ($key:expr) => {
        GovernorLayer::new(
            GovernorConfigBuilder::default()
                .per_nanosecond(1)
                .burst_size(1_000_000_000)
                .key_extractor($key)
                .use_headers()
                .finish()
                .ok_or("the quota of tower_governor is zero")?,
        )
    };
}

/// The bare handler comes first: the others are compared with it.
pub(crate) const CONTENDERS: &[Contender] = &[
    Contender {
        name: "bare",
        build: || Ok(app()),
    },
    Contender {
        name: "tollgate_two_limits",
        build: || tollgate(&[("per-client", "ip"), ("per-key", "header.x-api-key")]),
    },
    Contender {
        name: "tollgate_one_limit",
        build: || tollgate(&[("per-client", "ip")]),
    },
    Contender {
        name: "tollgate_two_limits_no_fields",
        build: || without_fields(&[("per-client", "ip"), ("per-key", "header.x-api-key")]),
    },
    Contender {
        name: "layer_that_does_nothing",
        build: || Ok(app().layer(tower::layer::util::Identity::new())),
    },
    Contender {
        name: "governor_one_limit",
        build: || Ok(app().layer(governor!(PeerIpKeyExtractor))),
    },
    Contender {
        name: "governor_two_limits",
        build: || {
            let inner = app().layer(governor!(PeerIpKeyExtractor));
            Ok(inner.layer(governor!(GlobalKeyExtractor)))
        },
    },
    Contender {
        name: "tower_concurrency_limit",
        build: || Ok(app().layer(GlobalConcurrencyLimitLayer::new(1_000_000))),
    },
    Contender {
        name: "tower_rate_limit_and_buffer",
        build: || {
            let failed = |_: BoxError| async { StatusCode::INTERNAL_SERVER_ERROR };
            let layers = ServiceBuilder::new()
                .layer(HandleErrorLayer::new(failed))
                .buffer(1_024)
                .rate_limit(1_000_000_000, Duration::from_secs(1));
            Ok(app().layer(layers))
        },
    },
];

fn app() -> Router {
    Router::new().route("/items/{id}", get(|| async { "hello" }))
}

fn tollgate(limits: &[(&str, &str)]) -> Result<Router, Box<dyn Error>> {
    let mut layer = TollgateLayer::builder();
    for (name, key) in limits {
        layer = layer.limit(LimitSpec::rate(name, "1000000000/h").key(key));
    }
    Ok(app().layer(layer.build()?))
}

/// The same without header fields.
fn without_fields(limits: &[(&str, &str)]) -> Result<Router, Box<dyn Error>> {
    let mut layer = TollgateLayer::builder().dialects(tollgate_tower::Dialects::NONE);
    for (name, key) in limits {
        layer = layer.limit(LimitSpec::rate(name, "1000000000/h").key(key));
    }
    Ok(app().layer(layer.build()?))
}

/// The request that every contender gets.
pub(crate) fn request() -> Result<Request, Box<dyn Error>> {
    let mut request = Request::get("/items/7")
        .header("host", "api.example")
        .header("x-api-key", "user000000000001")
        .body(Body::empty())?;
    let peer = SocketAddr::from(([192, 0, 2, 7], 4_000));
    request.extensions_mut().insert(ConnectInfo(peer));
    Ok(request)
}
