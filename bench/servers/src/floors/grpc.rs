//! The floor under gRPC: bare tonic, which reads the same message and answers with the same one.
//!
//! Must not know: what is asked.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use prost::Message as _;
use tonic::codegen::{Body, Service, StdError, http};
use tonic::server::{Grpc, NamedService, UnaryService};
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;

use super::rls::{RateLimitRequest, RateLimitResponse};

#[derive(Clone)]
struct Floor {
    answer: RateLimitResponse,
}

pub(super) async fn serve(address: SocketAddr, answer: &[u8]) -> Result<(), String> {
    let answer = RateLimitResponse::decode(answer).map_err(|error| error.to_string())?;
    let server = tonic::transport::Server::builder().add_service(Floor { answer });
    let serving = tokio::spawn(server.serve(address));
    let served = serving.await.map_err(|error| error.to_string())?;
    served.map_err(|error| error.to_string())
}

impl UnaryService<RateLimitRequest> for Floor {
    type Response = RateLimitResponse;
    type Future = Ready<Result<Response<RateLimitResponse>, Status>>;

    fn call(&mut self, request: Request<RateLimitRequest>) -> Self::Future {
        drop(request);
        ready(Ok(Response::new(self.answer.clone())))
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
