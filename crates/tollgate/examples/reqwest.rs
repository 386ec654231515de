//! Calls a limited server with reqwest. The middleware reads the server's limits and waits, so that all requests succeed.
//!
//! Starts a server of its own; with a URL as argument it calls that one.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use reqwest_middleware::ClientBuilder;
use tokio::net::TcpListener;
use tollgate::client::{PacerMiddleware, PacerSettings};
use tollgate::{Error, Limiter};

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// What a limited server does: it reports its limit, and refuses requests beyond it.
async fn limited(State(limiter): State<Arc<Limiter>>) -> Response {
    let (status, fields) = match limiter.spend("everybody", 1) {
        Ok(admission) => (StatusCode::OK, admission.rate_limit_fields()),
        Err(Error::Denied(denial)) => (StatusCode::TOO_MANY_REQUESTS, denial.rate_limit_fields()),
        Err(error) => return (StatusCode::BAD_REQUEST, error.to_string()).into_response(),
    };
    let mut response = status.into_response();
    for (name, value) in fields.iter() {
        if let Ok(value) = HeaderValue::from_str(&value) {
            response.headers_mut().insert(name, value);
        }
    }
    response
}

async fn call(url: &str) -> Result<(), Failure> {
    let client = ClientBuilder::new(reqwest::Client::new())
        .with(PacerMiddleware::new(PacerSettings::default()))
        .build();
    for request in 1..=30 {
        let status = client.get(url).send().await?.status();
        println!("request {request}: {status}");
    }
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    if let Some(url) = std::env::args().nth(1) {
        return call(&url).await;
    }
    let limiter = Limiter::per_second(10).burst(10).name("all").build()?;
    let router = Router::new()
        .route("/", get(limited))
        .with_state(Arc::new(limiter));
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}/", listener.local_addr()?);
    tokio::select! {
        served = axum::serve(listener, router) => Ok(served?),
        called = call(&url) => called,
    }
}
