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

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::process::Command;

    #[tokio::test]
    async fn curl_is_told_when_to_retry() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let app = app().unwrap();
        let app = app.into_make_service_with_connect_info::<SocketAddr>();
        let curls = async {
            let mut last = String::new();
            for _ in 0..6 {
                let curl = Command::new("curl").args(["-si", &url]).output();
                let output = curl.await.expect("install curl: apt-get install curl");
                last = String::from_utf8(output.stdout).unwrap();
            }
            last
        };
        let last = tokio::select! {
            served = axum::serve(listener, app).into_future() => panic!("{served:?}"),
            last = curls => last,
        };
        for expected in [
            "HTTP/1.1 429 Too Many Requests\r\n",
            "content-type: application/problem+json\r\n",
            "ratelimit-policy: \"per-client\";q=5;w=60",
            "retry-after: 12\r\n",
            "\"violated-policies\":[\"per-client\"]",
        ] {
            assert!(last.contains(expected), "{expected} is not in {last}");
        }
    }
}
