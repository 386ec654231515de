//! The floor under a node of a fleet: bare tonic, which makes one call of the store before it answers with the same message.
//!
//! The call is one that our server made, through the same client and as many connections; only the key is another for every
//! caller. What we cost beyond it is ours. Must not know: what is asked, what the call does.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use prost::Message as _;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, RedisResult};
use tonic::codegen::{Body, Service, StdError, http};
use tonic::server::{Grpc, NamedService, UnaryService};
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;

use super::rls::{RateLimitRequest, RateLimitResponse};

/// As many as a node has.
const CONNECTIONS: usize = 3;

#[derive(Clone)]
struct Floor {
    answer: RateLimitResponse,
    connections: Arc<[MultiplexedConnection]>,
    /// The words of the call, of which the fourth is the key.
    call: Arc<[Vec<u8>]>,
}

pub(super) async fn serve(
    address: SocketAddr,
    answer: &[u8],
    store: &str,
    call: Vec<Vec<u8>>,
) -> Result<(), String> {
    let answer = RateLimitResponse::decode(answer).map_err(|error| error.to_string())?;
    let connections = connect(store).await.map_err(|error| error.to_string())?;
    let floor = Floor {
        answer,
        connections: connections.into(),
        call: call.into(),
    };
    let server = tonic::transport::Server::builder().add_service(floor);
    let serving = tokio::spawn(server.serve(address));
    let served = serving.await.map_err(|error| error.to_string())?;
    served.map_err(|error| error.to_string())
}

async fn connect(store: &str) -> RedisResult<Vec<MultiplexedConnection>> {
    let client = redis::Client::open(format!("redis://{store}"))?;
    // As the client comes, its timeout included; but nobody waits for room to write in.
    let config = AsyncConnectionConfig::new()
        .set_response_timeout(Some(std::time::Duration::from_secs(5)))
        .set_pipeline_buffer_size(4_096);
    let mut connections = Vec::new();
    for _ in 0..CONNECTIONS {
        connections.push(
            client
                .get_multiplexed_async_connection_with_config(&config)
                .await?,
        );
    }
    Ok(connections)
}

impl Floor {
    /// Makes the call for somebody.
    async fn call(&self, who: &[u8]) -> Result<(), Status> {
        let sum: usize = who.iter().map(|byte| usize::from(*byte)).sum();
        let mut connection = self.connections[sum % self.connections.len()].clone();
        let mut call = redis::Cmd::new();
        for (index, word) in self.call.iter().enumerate() {
            if index == 3 {
                call.arg(key_of(word, who));
            } else {
                call.arg(word.as_slice());
            }
        }
        let reply: RedisResult<Vec<i64>> = call.query_async(&mut connection).await;
        match reply {
            Ok(reply) if reply.get(2) == Some(&1) => Ok(()),
            other => Err(Status::unavailable(format!("{other:?}"))),
        }
    }
}

/// A key of the same length in which somebody's name stands where the digest was.
fn key_of(word: &[u8], who: &[u8]) -> Vec<u8> {
    let mut key = word.to_vec();
    let end = key
        .iter()
        .position(|byte| *byte == b'}')
        .unwrap_or(key.len());
    let start = end.saturating_sub(who.len()).max(5);
    for (place, byte) in key[start..end].iter_mut().zip(who.iter().rev()) {
        *place = *byte;
    }
    key
}

impl UnaryService<RateLimitRequest> for Floor {
    type Response = RateLimitResponse;
    type Future = Pin<Box<dyn Future<Output = Result<Response<RateLimitResponse>, Status>> + Send>>;

    fn call(&mut self, request: Request<RateLimitRequest>) -> Self::Future {
        let floor = self.clone();
        Box::pin(async move {
            let request = request.into_inner();
            let entry = request
                .descriptors
                .first()
                .and_then(|one| one.entries.first());
            let who = entry.map_or(&[][..], |entry| entry.value.as_bytes());
            Floor::call(&floor, who).await?;
            Ok(Response::new(floor.answer))
        })
    }
}

impl NamedService for Floor {
    const NAME: &'static str = "envoy.service.ratelimit.v3.RateLimitService";
}

impl<B> Service<http::Request<B>> for Floor
where
    B: Body + Send + 'static,
    B::Error: Into<StdError> + Send + 'static,
{
    type Response = http::Response<tonic::body::Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        let floor = self.clone();
        Box::pin(async move {
            let mut grpc = Grpc::new(ProstCodec::default());
            Ok(grpc.unary(floor, request).await)
        })
    }
}
