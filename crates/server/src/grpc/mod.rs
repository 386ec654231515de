//! The gRPC listener: Envoy's rate limit services, health and reflection, directly on HTTP/2.
//!
//! A gRPC call is a head, one framed message and trailers, which needs no framework. A framework would cost more than the
//! decision. Must not know: sockets, how requests are decided.

mod call;
mod call_buffers;
mod connection;
mod frame;
pub(crate) mod frame_guard;
mod gathered_stream;
mod health;
mod keep_alive;
mod limits;
mod methods;
mod quota_stream;
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

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Notify;
use tollgate_core::Nanos;
use tollgate_engine::Ticket;
use tollgate_store::Clock;

use self::call_buffers::ConnectionBuffers;
use self::connection::serve_connection;
use self::frame::{finish_frame, new_frame};
use self::methods::{GrpcHandler, GrpcMethod, GrpcReply, QuotaStream};
use self::status::{GrpcCode, GrpcStatus};
use crate::listen::counters::{ListenerCounters, increment};
use crate::listen::{
    BufferBudget, ConnectionHandler, DrainOutcome, Listener, Peer, ShutdownSignal, Stream, accept,
};
use tollgate_envoy::EnvoyService;
use tollgate_envoy::protobuf as wire;
use tollgate_envoy::rlqs::RlqsSession;
use tollgate_envoy::rls::RlsError;
use tollgate_envoy::rls::messages::{DescriptorBuffer, EntryBuffer, read_request, write_response};
use tollgate_service::{RequestOutcome, Transport, catch_panic};

/// The gRPC server: the services of an [`EnvoyService`], health and reflection.
pub struct GrpcServer<C> {
    envoy: Arc<EnvoyService<C>>,
    counters: Arc<ListenerCounters>,
    buffers: Arc<BufferBudget>,
    /// Triggers when load balancers should stop sending calls, before the shutdown.
    drain_signal: Option<ShutdownSignal>,
}

impl<C: Clock + 'static> GrpcServer<C> {
    /// A server over these services.
    #[must_use]
    pub fn new(envoy: Arc<EnvoyService<C>>) -> Self {
        Self {
            envoy,
            counters: Arc::default(),
            buffers: Arc::default(),
            drain_signal: None,
        }
    }

    /// Shares this buffer budget with other listeners.
    #[must_use]
    pub fn with_buffers(mut self, buffers: Arc<BufferBudget>) -> Self {
        self.buffers = buffers;
        self
    }

    /// Reports not ready once `drain_signal` triggers.
    #[must_use]
    pub fn with_drain_signal(mut self, drain_signal: ShutdownSignal) -> Self {
        self.drain_signal = Some(drain_signal);
        self
    }

    /// Serves clients of `listener` until `shutdown` completes, then drains calls in progress. Returns for no other reason.
    pub async fn run(
        self: Arc<Self>,
        listener: Listener,
        limits: GrpcLimits,
        shutdown: impl Future<Output = ()>,
    ) -> DrainOutcome {
        let protocol = GrpcProtocol {
            limits,
            server: self,
        };
        accept(listener, Arc::new(protocol), limits.listener, shutdown).await
    }

    /// Serves one connection that another listener has accepted, until the client disconnects or `stopping` triggers.
    pub async fn serve_connection<S>(
        self: Arc<Self>,
        stream: S,
        peer: Peer,
        limits: GrpcLimits,
        stopping: ShutdownSignal,
    ) where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let buffers = ConnectionBuffers::new(&self.buffers, &self.counters);
        serve_connection(stream, self, buffers, limits, peer.progress, stopping).await;
    }

    /// The counters of the listener.
    #[must_use]
    pub const fn counters(&self) -> &Arc<ListenerCounters> {
        &self.counters
    }

    /// Answers the bytes of one `RateLimitRequest` with the bytes of a `RateLimitResponse`, without a connection. For tests,
    /// fuzzing and benchmarks.
    ///
    /// The gRPC status code and message.
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

    async fn should_rate_limit(
        &self,
        message: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(Nanos, Vec<Ticket>), GrpcStatus> {
        let (mut entries, mut descriptors) = (EntryBuffer::new(), DescriptorBuffer::new());
        let request = match read_request(message, &mut entries, &mut descriptors) {
            Ok(request) => request,
            Err(unreadable) => {
                let metrics = self.envoy.service().metrics();
                metrics.record_outcome(Transport::Grpc, RequestOutcome::Failed);
                return Err(GrpcStatus::new(
                    GrpcCode::InvalidArgument,
                    unreadable.to_string(),
                ));
            }
        };
        let response_delay = self
            .envoy
            .should_rate_limit(Transport::Grpc, &request, |response| {
                write_response(response, out);
                (response.wait, response.wait_tickets.take())
            });
        response_delay.await.map_err(|error| match error {
            RlsError::BadRequest(reason) => {
                GrpcStatus::new(GrpcCode::InvalidArgument, reason.to_string())
            }
            error => GrpcStatus::new(GrpcCode::Unavailable, error.to_string()),
        })
    }

    async fn dispatch(
        &self,
        method: GrpcMethod,
        message: &[u8],
        is_stopping: bool,
    ) -> Result<GrpcReply, GrpcStatus> {
        let mut out = new_frame();
        let (mut wait, mut wait_tickets) = (Nanos::ZERO, Vec::new());
        match method {
            GrpcMethod::ShouldRateLimit => {
                (wait, wait_tickets) = self.should_rate_limit(message, &mut out).await?;
            }
            GrpcMethod::HealthCheck | GrpcMethod::HealthList | GrpcMethod::HealthWatch => {
                let is_serving = !is_stopping && self.envoy.service().stalled_for().is_none();
                health::respond(method, message, is_serving, &mut out)?;
            }
            GrpcMethod::Reflect => reflection::respond(message, &mut out)?,
            // Streaming calls do not come here.
            GrpcMethod::StreamQuotas => {
                return Err(GrpcStatus::new(GrpcCode::Internal, "it is a stream"));
            }
        }
        Ok(GrpcReply {
            message: finish_frame(out),
            delay: wait,
            wait_permit: (!wait.is_zero())
                .then(|| self.envoy.service().acquire_wait(wait_tickets, None)),
        })
    }
}

impl<C: Clock + 'static> GrpcHandler for GrpcServer<C> {
    fn drain_signal(&self) -> Option<&ShutdownSignal> {
        self.drain_signal.as_ref()
    }

    fn open_quota_stream(&self) -> Result<Box<dyn QuotaStream>, GrpcStatus> {
        if self.envoy.is_by_files() {
            let message =
                "quotas need a policy, and this server runs envoyproxy/ratelimit configuration";
            return Err(GrpcStatus::new(GrpcCode::Unimplemented, message));
        }
        match RlqsSession::open(Arc::clone(&self.envoy)) {
            Some(session) => Ok(Box::new(session)),
            None => {
                let message = "there are too many quota streams";
                Err(GrpcStatus::new(GrpcCode::ResourceExhausted, message))
            }
        }
    }

    fn has_fleet(&self) -> bool {
        self.envoy.service().fleet().is_some()
    }

    async fn handle(
        &self,
        method: GrpcMethod,
        message: &[u8],
        is_stopping: bool,
    ) -> Result<GrpcReply, GrpcStatus> {
        let is_stopping = is_stopping
            || self
                .drain_signal()
                .is_some_and(ShutdownSignal::is_triggered);
        let answered = catch_panic(self.dispatch(method, message, is_stopping)).await;
        answered.unwrap_or_else(|| {
            increment(&self.counters.panics);
            tracing::error!(?method, "call panicked");
            let message = "internal error while answering this call";
            Err(GrpcStatus::new(GrpcCode::Internal, message))
        })
    }
}

impl<C: Clock> QuotaStream for RlqsSession<C> {
    fn receive_report(&mut self, message: &[u8]) -> Result<(), String> {
        self.handle_message(message)
    }

    fn write_next_assignment(&mut self, out: &mut Vec<u8>) -> bool {
        self.next_message(out)
    }

    fn assignment_notifier(&self) -> Arc<Notify> {
        Arc::clone(self.wake())
    }
}

impl<C> fmt::Debug for GrpcServer<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grpc")
            .field("counters", &self.counters)
            .finish_non_exhaustive()
    }
}

struct GrpcProtocol<C> {
    limits: GrpcLimits,
    server: Arc<GrpcServer<C>>,
}

impl<C: Clock + 'static> ConnectionHandler for GrpcProtocol<C> {
    fn serve(
        &self,
        stream: Stream,
        peer: Peer,
        stopping: ShutdownSignal,
    ) -> impl Future<Output = ()> + Send + 'static {
        let server = Arc::clone(&self.server);
        server.serve_connection(stream, peer, self.limits, stopping)
    }

    fn counters(&self) -> &ListenerCounters {
        &self.server.counters
    }
}
