//! An axum handler that answers 429 with `Retry-After` and the `RateLimit` fields. Sends two requests to itself and ends.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tollgate::{Error, Limiter};

type Failure = Box<dyn std::error::Error + Send + Sync>;

async fn hello(State(limiter): State<Arc<Limiter>>, headers: HeaderMap) -> Response {
    // In production use a verified key. A client may write anything into a header.
    let key = headers
        .get("x-api-key")
        .map_or(&b"anonymous"[..], HeaderValue::as_bytes);
    // The fields come from the limiter, so they cannot state another quota than it enforces.
    let (fields, mut response) = match limiter.spend(key, 1) {
        Ok(admission) => (admission.rate_limit_fields(), "hello\n".into_response()),
        Err(Error::Denied(denial)) => {
            let response = (StatusCode::TOO_MANY_REQUESTS, format!("{denial}\n"));
            (denial.rate_limit_fields(), response.into_response())
        }
        // The key is too long, which is an error of the client and not a denial.
        Err(error) => return (StatusCode::BAD_REQUEST, format!("{error}\n")).into_response(),
    };
    for (name, value) in fields.iter() {
        if let Ok(value) = HeaderValue::from_str(&value) {
            response.headers_mut().insert(name, value);
        }
    }
    response
}

/// Sends one request and returns the response.
async fn request(address: std::net::SocketAddr) -> Result<String, Failure> {
    let mut stream = TcpStream::connect(address).await?;
    let text = "GET / HTTP/1.1\r\nhost: example\r\nx-api-key: alice\r\nconnection: close\r\n\r\n";
    stream.write_all(text.as_bytes()).await?;
    let mut response = String::new();
    stream.read_to_string(&mut response).await?;
    Ok(response)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let limiter = Limiter::per_minute(1).name("per-key").build()?;
    let router = Router::new()
        .route("/", get(hello))
        .with_state(Arc::new(limiter));
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let client = async {
        let first = request(address).await?;
        let second = request(address).await?;
        println!("{first}\n{second}");
        assert!(first.starts_with("HTTP/1.1 200") && first.contains("ratelimit: \"per-key\";r=0;"));
        assert!(second.starts_with("HTTP/1.1 429") && second.contains("retry-after: "));
        Ok(())
    };
    tokio::select! {
        served = axum::serve(listener, router) => Ok(served?),
        result = client => result,
    }
}
