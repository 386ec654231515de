//! An axum service with two limits: `cargo run -p tollgate-tower --features axum --example axum`, then
//! `curl -i http://127.0.0.1:3000/` six times.

use std::net::SocketAddr;

use axum::Router;
use axum::routing::get;
use tokio::net::TcpListener;
use tollgate_tower::{InvalidLayer, LimitSpec, TollgateLayer};

fn app() -> Result<Router, InvalidLayer> {
    let layer = TollgateLayer::builder()
        .limit(LimitSpec::rate("per-client", "5/min").key("ip"))
        .limit(LimitSpec::concurrency("everyone", 100))
        .build()?;
    let app = Router::new().route("/", get(|| async { "hello\n" }));
    Ok(app.layer(layer))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().nth(1);
    let address = address.as_deref().unwrap_or("127.0.0.1:3000");
    let listener = TcpListener::bind(address).await?;
    println!("listening on {}", listener.local_addr()?);
    // With the addresses of connections: the limit counts by them.
    let app = app()?.into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, app).await?;
    Ok(())
}
