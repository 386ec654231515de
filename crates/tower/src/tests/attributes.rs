//! What policies see of a request.

use std::net::SocketAddr;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::routing::get as route;
use http::Request;
use tower::ServiceExt as _;

use super::support::{ask, get, layer, statuses};

async fn status(app: &Router, request: Request<Body>) -> u16 {
    app.clone()
        .oneshot(request)
        .await
        .unwrap()
        .status()
        .as_u16()
}

fn request(path: &str) -> Request<Body> {
    Request::get(path).body(Body::empty()).unwrap()
}

#[tokio::test]
async fn a_route_of_axum_is_one_key_whatever_its_parameters() {
    let (layer, _clock) = layer("limits: [{ name: per-route, key: route, rate: 2/min }]");
    let app: Router = Router::new()
        .route("/items/{id}", route(|| async {}))
        .route("/other", route(|| async {}))
        .layer(layer);
    let mut answers = Vec::new();
    for path in ["/items/1", "/items/2", "/items/3", "/other"] {
        answers.push(status(&app, request(path)).await);
    }
    assert_eq!(answers, [200, 200, 429, 200]);
}

/// A nested router sees only the end of the path. A limit on `/api/items` must match all the same.
#[tokio::test]
async fn limits_match_the_whole_path_in_nested_routers() {
    let (layer, _clock) =
        layer("limits: [{ name: items, match: { path: /api/items }, rate: 1/min }]");
    let inner = Router::new()
        .route("/items", route(|| async {}))
        .layer(layer);
    let app = Router::new().nest("/api", inner);
    assert_eq!(status(&app, request("/api/items")).await, 200);
    assert_eq!(status(&app, request("/api/items")).await, 429);
}

/// The spelling rules of forward-auth hold here as well: they are the same code.
#[tokio::test]
async fn other_spellings_of_a_path_do_not_escape() {
    let (layer, _clock) =
        layer("limits: [{ name: login, match: { route: /api/login }, rate: 1/h }]");
    assert_eq!(statuses(&layer, "/api/login", 2).await, [200, 429]);
    for path in [
        "/api//login",
        "/api/./login",
        "/api/%6cogin",
        "/api/x/../login",
        "/api/login/",
    ] {
        assert_eq!(statuses(&layer, path, 1).await, [429], "{path}");
    }
    assert_eq!(statuses(&layer, "/api/logout", 1).await, [200]);
    assert_eq!(statuses(&layer, "/api/%zz", 1).await, [400], "unreadable");
}

#[tokio::test]
async fn different_values_of_one_key_are_refused() {
    let (layer, _clock) = layer(
        "limits: [{ name: per-key, key: [header.x-api-key, query.tenant, cookie.session], rate: 5/min }]",
    );
    let with = |build: fn(http::request::Builder) -> http::request::Builder, path: &str| {
        build(Request::get(path)).body(()).unwrap()
    };
    let twice = with(
        |one| one.header("x-api-key", "a").header("x-api-key", "b"),
        "/",
    );
    assert_eq!(ask(&layer, twice).await.status(), 400);
    assert_eq!(ask(&layer, get("/?tenant=a&tenant=b")).await.status(), 400);
    let cookies = with(|one| one.header("cookie", "session=a; session=b"), "/");
    assert_eq!(ask(&layer, cookies).await.status(), 400);
    let hosts = with(|one| one.header("host", "a.example"), "http://b.example/");
    assert_eq!(ask(&layer, hosts).await.status(), 400);
    let once = with(
        |one| one.header("x-api-key", "a").header("cookie", "session=s"),
        "/?tenant=t",
    );
    assert_eq!(ask(&layer, once).await.status(), 200);
}

#[tokio::test]
async fn the_address_of_axum_is_the_client() {
    let (layer, _clock) = layer("limits: [{ name: per-client, key: ip, rate: 1/min }]");
    let app: Router = Router::new().route("/", route(|| async {})).layer(layer);
    let from = |last: u8| {
        let mut request = request("/");
        let address = SocketAddr::from(([192, 0, 2, last], 4_000));
        request.extensions_mut().insert(ConnectInfo(address));
        request
    };
    let mut answers = Vec::new();
    for last in [1, 1, 2] {
        answers.push(status(&app, from(last)).await);
    }
    assert_eq!(answers, [200, 429, 200]);
}
