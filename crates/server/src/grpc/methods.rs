//! The gRPC methods by path, and the trait that answers them.
//!
//! Must not know: HTTP/2, how replies are computed.

use std::future::Future;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::Notify;
use tollgate_core::Nanos;

use super::status::{GrpcCode, GrpcStatus};
use crate::listen::ShutdownSignal;
use tollgate_service::WaitPermit;

/// The methods of all services.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GrpcMethod {
    /// Envoy's rate limit request.
    ShouldRateLimit,
    /// The health of the server or of one service.
    HealthCheck,
    /// The health of all services.
    HealthList,
    /// The health of a service, sent again when it changes.
    HealthWatch,
    /// Server reflection.
    Reflect,
    /// RLQS: usage reports and quota assignments.
    StreamQuotas,
}

/// The full names of the services.
pub(crate) const RLS_SERVICE: &str = "envoy.service.ratelimit.v3.RateLimitService";
pub(crate) const RLQS_SERVICE: &str = "envoy.service.rate_limit_quota.v3.RateLimitQuotaService";
pub(crate) const HEALTH_SERVICE: &str = "grpc.health.v1.Health";
pub(crate) const REFLECTION_SERVICE: &str = "grpc.reflection.v1.ServerReflection";
pub(crate) const REFLECTION_V1ALPHA_SERVICE: &str = "grpc.reflection.v1alpha.ServerReflection";

impl GrpcMethod {
    /// Whether the method streams replies.
    pub(crate) const fn is_stream(self) -> bool {
        matches!(self, Self::HealthWatch | Self::Reflect | Self::StreamQuotas)
    }

    /// The method of a path.
    pub(crate) fn from_path(path: &str) -> Option<Self> {
        let (service, method) = path.strip_prefix('/')?.split_once('/')?;
        Some(match (service, method) {
            (RLS_SERVICE, "ShouldRateLimit") => Self::ShouldRateLimit,
            (RLQS_SERVICE, "StreamRateLimitQuotas") => Self::StreamQuotas,
            (HEALTH_SERVICE, "Check") => Self::HealthCheck,
            (HEALTH_SERVICE, "List") => Self::HealthList,
            (HEALTH_SERVICE, "Watch") => Self::HealthWatch,
            (REFLECTION_SERVICE | REFLECTION_V1ALPHA_SERVICE, "ServerReflectionInfo") => {
                Self::Reflect
            }
            _ => return None,
        })
    }
}

/// A framed reply and its delay.
#[derive(Debug)]
pub(crate) struct GrpcReply {
    pub(crate) message: Bytes,
    pub(crate) delay: Nanos,
    /// The wait permit of a delayed reply, released when it is sent.
    pub(crate) wait_permit: Option<WaitPermit>,
}

/// Answers calls.
pub(crate) trait GrpcHandler: Send + Sync + 'static {
    /// The signal that triggers when load balancers should stop sending calls, before the shutdown.
    fn drain_signal(&self) -> Option<&ShutdownSignal> {
        None
    }

    /// Opens a quota stream.
    fn open_quota_stream(&self) -> Result<Box<dyn QuotaStream>, GrpcStatus> {
        let message = "this server assigns no quotas";
        Err(GrpcStatus::new(GrpcCode::Unimplemented, message))
    }

    /// Whether a fleet decides. Without one every reply is ready at the first poll.
    fn has_fleet(&self) -> bool {
        false
    }

    /// Answers one message with one message.
    fn handle(
        &self,
        method: GrpcMethod,
        message: &[u8],
        is_stopping: bool,
    ) -> impl Future<Output = Result<GrpcReply, GrpcStatus>> + Send;
}

/// One RLQS stream.
pub(crate) trait QuotaStream: Send {
    /// Processes a report. The error explains why it is invalid.
    fn receive_report(&mut self, message: &[u8]) -> Result<(), String>;

    /// Writes the next assignment to send now. Returns false if there is none. It counts as sent.
    fn write_next_assignment(&mut self, out: &mut Vec<u8>) -> bool;

    /// Notifies when an assignment may be ready.
    fn assignment_notifier(&self) -> Arc<Notify>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_are_found_by_their_whole_path() {
        let at =
            GrpcMethod::from_path("/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit");
        assert_eq!(at, Some(GrpcMethod::ShouldRateLimit));
        assert_eq!(
            GrpcMethod::from_path("/grpc.health.v1.Health/Check"),
            Some(GrpcMethod::HealthCheck)
        );
        for wrong in [
            "",
            "/",
            "/grpc.health.v1.Health",
            "/grpc.health.v1.Health/Check/",
            "grpc.health.v1.Health/Check",
            "/envoy.service.ratelimit.v2.RateLimitService/ShouldRateLimit",
        ] {
            assert_eq!(GrpcMethod::from_path(wrong), None, "{wrong}");
        }
    }
}
