//! A gRPC service with a limit for each method and client: `cargo run -p tollgate-tower --features tonic --example tonic`.
//!
//! The method and its messages are written by hand, so that the example needs no code generator. It serves
//! `/demo.Greeter/SayHello`, from text to text.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::task::{Context, Poll};

use bytes::{Buf as _, BufMut as _};
use http::{Request, Response};
use tokio::net::TcpListener;
use tollgate_tower::{InvalidLayer, LimitSpec, TollgateLayer};
use tonic::Status;
use tonic::body::Body;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::server::{Grpc, NamedService, UnaryService};
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;

fn layer() -> Result<TollgateLayer, InvalidLayer> {
    TollgateLayer::builder()
        .limit(
            LimitSpec::rate("per-method", "5/min")
                .key("route")
                .key("ip"),
        )
        .grpc_methods(["/demo.Greeter/SayHello"])
        .build()
}

/// Messages of one string field: `message Text { string text = 1; }`, shorter than 128 bytes.
#[derive(Clone, Copy, Default)]
struct TextCodec;

impl Codec for TextCodec {
    type Encode = String;
    type Decode = String;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        *self
    }

    fn decoder(&mut self) -> Self {
        *self
    }
}

impl Encoder for TextCodec {
    type Item = String;
    type Error = Status;

    fn encode(&mut self, text: String, out: &mut EncodeBuf<'_>) -> Result<(), Status> {
        let len = u8::try_from(text.len()).ok().filter(|len| *len < 128);
        let len = len.ok_or_else(|| Status::out_of_range("the text is too long"))?;
        out.put_slice(&[0x0a, len]);
        out.put_slice(text.as_bytes());
        Ok(())
    }
}

impl Decoder for TextCodec {
    type Item = String;
    type Error = Status;

    fn decode(&mut self, message: &mut DecodeBuf<'_>) -> Result<Option<String>, Status> {
        let bytes = message.copy_to_bytes(message.remaining());
        let text = bytes.get(2..).unwrap_or_default();
        Ok(Some(String::from_utf8_lossy(text).into_owned()))
    }
}

/// The method `SayHello`.
struct SayHello;

impl UnaryService<String> for SayHello {
    type Response = String;
    type Future = Ready<Result<tonic::Response<String>, Status>>;

    fn call(&mut self, request: tonic::Request<String>) -> Self::Future {
        let text = format!("hello {}", request.into_inner());
        ready(Ok(tonic::Response::new(text)))
    }
}

/// The service, as a code generator would write it.
#[derive(Clone)]
struct Greeter;

impl NamedService for Greeter {
    const NAME: &'static str = "demo.Greeter";
}

impl tower_service::Service<Request<Body>> for Greeter {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future =
        std::pin::Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        Box::pin(async move { Ok(Grpc::new(TextCodec).unary(SayHello, request).await) })
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().nth(1);
    let address = address.as_deref().unwrap_or("127.0.0.1:50051");
    let listener = TcpListener::bind(address).await?;
    println!("listening on {}", listener.local_addr()?);
    Server::builder()
        .layer(layer()?)
        .add_service(Greeter)
        .serve_with_incoming(TcpIncoming::from(listener))
        .await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::process::Command;
    use tollgate_testkit::peers::python_packages;

    /// Calls until it is denied, and prints the code and the type of the detail.
    const CLIENT: &str = r#"
import sys, grpc
channel = grpc.insecure_channel(sys.argv[1])
call = channel.unary_unary("/demo.Greeter/SayHello", lambda t: b"\n" + bytes([len(t)]) + t, lambda b: b[2:])
for number in range(6):
    try:
        print(call(b"ada", timeout=10).decode())
    except grpc.RpcError as error:
        details = dict(error.trailing_metadata())["grpc-status-details-bin"]
        print(error.code().name, b"google.rpc.RetryInfo" in details, error.details())
"#;

    #[tokio::test]
    async fn grpcio_is_denied_with_retry_info() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let server = Server::builder()
            .layer(layer().unwrap())
            .add_service(Greeter)
            .serve_with_incoming(TcpIncoming::from(listener));
        let client = Command::new("python3")
            .args(["-c", CLIENT, &address])
            .env("PYTHONPATH", python_packages("grpc", "grpcio==1.85.1"))
            .output();
        let output = tokio::select! {
            served = server => panic!("{served:?}"),
            output = client => output.unwrap(),
        };
        let printed = String::from_utf8(output.stdout).unwrap();
        let lines: Vec<&str> = printed.lines().collect();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(
            lines.get(..5),
            Some(&["hello ada"; 5][..]),
            "{printed}{errors}"
        );
        let denied = "RESOURCE_EXHAUSTED True the limit \"per-method\" has no room for this now";
        assert!(lines[5].starts_with(denied), "{printed}");
    }
}
