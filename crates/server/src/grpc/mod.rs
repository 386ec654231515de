//! gRPC for Envoy and everybody else: the rate limit service, health and reflection, straight on HTTP/2.
//!
//! A call is a head, one message behind five bytes, and trailers; that is little enough to do without a framework, and a
//! decision costs so little that the framework would be most of it. Must not know: sockets, how anything is decided.

mod call;
mod connection;
mod frame;
mod health;
mod keep_alive;
mod limits;
mod methods;
mod quotas;
mod reflection;
mod schema;
mod status;
mod streams;
#[cfg(test)]
mod tests;

pub use limits::GrpcLimits;

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use tokio::sync::Notify;
use tollgate_core::Nanos;
use tollgate_store::Clock;

use self::connection::live;
use self::frame::{frame, sealed};
use self::methods::{GrpcHandler, GrpcReply, Method, QuotaSubscriber};
use self::status::{Code, Status};
use crate::listen::counters::{ListenerCounters, count};
use crate::listen::{Ended, Listener, Peer, Serve, Stopping, Stream, accept};
use tollgate_envoy::EnvoyService;
use tollgate_envoy::protobuf as wire;
use tollgate_envoy::rlqs::RlqsSession;
use tollgate_envoy::rls::RlsError;
use tollgate_envoy::rls::messages::{Descriptors, Entries, read_request, write_response};
use tollgate_service::{RequestOutcome, Transport, guarded};

/// gRPC for Envoy: the services of an [`EnvoyService`], health and reflection.
pub struct Grpc<C> {
    envoy: Arc<EnvoyService<C>>,
    counters: Arc<ListenerCounters>,
    /// Said when the server wants to be asked no more, before it stops.
    leaving: Option<Stopping>,
}

impl<C: Clock + 'static> Grpc<C> {
    /// Answers what Envoy asks by these services.
    #[must_use]
    pub fn new(envoy: Arc<EnvoyService<C>>) -> Self {
        Self {
            envoy,
            counters: Arc::default(),
            leaving: None,
        }
    }

    /// The same, not ready any more once this is said.
    #[must_use]
    pub fn until(mut self, leaving: Stopping) -> Self {
        self.leaving = Some(leaving);
        self
    }

    /// Serves on `listener` until `shutdown` completes, then lets calls that are under way finish. Never ends for any
    /// other reason.
    pub async fn run(
        self: Arc<Self>,
        listener: Listener,
        limits: GrpcLimits,
        shutdown: impl Future<Output = ()>,
    ) -> Ended {
        let protocol = Protocol {
            limits,
            server: self,
        };
        accept(listener, Arc::new(protocol), limits.bounds, shutdown).await
    }

    /// What went wrong and was survived so far.
    #[must_use]
    pub const fn counters(&self) -> &Arc<ListenerCounters> {
        &self.counters
    }

    /// Answers the bytes of one `RateLimitRequest` with those of a `RateLimitResponse`, without a connection: for tests,
    /// fuzzing and measurements.
    ///
    /// # Errors
    /// The number of gRPC's code and a sentence.
    pub async fn answer_bytes(
        &self,
        message: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), (i32, String)> {
        let answered = self.should_rate_limit(message, out).await;
        answered
            .map(|_wait| ())
            .map_err(|status| (status.code as i32, status.message))
    }

    async fn should_rate_limit(&self, message: &[u8], out: &mut Vec<u8>) -> Result<Nanos, Status> {
        let (mut entries, mut descriptors) = (Entries::new(), Descriptors::new());
        let request = match read_request(message, &mut entries, &mut descriptors) {
            Ok(request) => request,
            Err(unreadable) => {
                let metrics = self.envoy.service().metrics();
                metrics.count_answer(Transport::Grpc, RequestOutcome::Failed);
                return Err(Status::new(Code::InvalidArgument, unreadable.to_string()));
            }
        };
        let decided = self
            .envoy
            .should_rate_limit(Transport::Grpc, &request, |said| {
                write_response(said, out);
                said.wait
            });
        decided.await.map_err(|error| match error {
            RlsError::BadRequest(reason) => Status::new(Code::InvalidArgument, reason.to_string()),
            error => Status::new(Code::Unavailable, error.to_string()),
        })
    }

    async fn reply(
        &self,
        method: Method,
        message: &[u8],
        is_stopping: bool,
    ) -> Result<GrpcReply, Status> {
        let mut out = frame();
        let mut wait = Nanos::ZERO;
        match method {
            Method::ShouldRateLimit => wait = self.should_rate_limit(message, &mut out).await?,
            Method::HealthCheck | Method::HealthList | Method::HealthWatch => {
                health::answer(method, message, is_stopping, &mut out)?;
            }
            Method::Reflect => reflection::answer(message, &mut out)?,
            // It has no one answer, and whoever knows that does not ask for it.
            Method::StreamQuotas => return Err(Status::new(Code::Internal, "it is a stream")),
        }
        Ok(GrpcReply {
            message: sealed(out),
            wait,
            place: (!wait.is_zero()).then(|| self.envoy.service().saturation().enter()),
        })
    }
}

impl<C: Clock + 'static> GrpcHandler for Grpc<C> {
    fn leaving(&self) -> Option<&Stopping> {
        self.leaving.as_ref()
    }

    fn subscribe(&self) -> Result<Box<dyn QuotaSubscriber>, Status> {
        if self.envoy.is_by_files() {
            let message =
                "quotas are given out by a policy, and files of envoyproxy/ratelimit are in force";
            return Err(Status::new(Code::Unimplemented, message));
        }
        match RlqsSession::open(Arc::clone(&self.envoy)) {
            Some(session) => Ok(Box::new(session)),
            None => {
                let message = "there are too many streams of quotas";
                Err(Status::new(Code::ResourceExhausted, message))
            }
        }
    }

    fn waits(&self) -> bool {
        self.envoy.service().fleet().is_some()
    }

    async fn answer(
        &self,
        method: Method,
        message: &[u8],
        is_stopping: bool,
    ) -> Result<GrpcReply, Status> {
        let is_stopping = is_stopping || self.leaving().is_some_and(Stopping::is_said);
        let answered = guarded(self.reply(method, message, is_stopping)).await;
        answered.unwrap_or_else(|| {
            count(&self.counters.panics);
            tracing::error!(?method, "a call panicked");
            let message = "the server failed to answer this call; it is not the call's fault";
            Err(Status::new(Code::Internal, message))
        })
    }
}

impl<C: Clock> QuotaSubscriber for RlqsSession<C> {
    fn hear(&mut self, message: &[u8]) -> Result<(), String> {
        self.hear(message)
    }

    fn due(&mut self, out: &mut Vec<u8>) -> bool {
        self.due(out)
    }

    fn wake(&self) -> Arc<Notify> {
        Arc::clone(self.wake())
    }
}

impl<C> fmt::Debug for Grpc<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grpc")
            .field("counters", &self.counters)
            .finish_non_exhaustive()
    }
}

struct Protocol<C> {
    limits: GrpcLimits,
    server: Arc<Grpc<C>>,
}

impl<C: Clock + 'static> Serve for Protocol<C> {
    fn serve(
        &self,
        stream: Stream,
        _peer: Peer,
        stopping: Stopping,
    ) -> impl Future<Output = ()> + Send + 'static {
        live(stream, Arc::clone(&self.server), self.limits, stopping)
    }

    fn counters(&self) -> &ListenerCounters {
        &self.server.counters
    }
}
