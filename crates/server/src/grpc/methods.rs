//! What can be called: the methods by their paths, and who answers them.
//!
//! Must not know: HTTP/2, how answers are found.

use std::future::Future;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::Notify;
use tollgate_core::Nanos;

use super::status::{GrpcCode, GrpcStatus};
use crate::listen::ShutdownSignal;
use tollgate_service::WaitPermit as Place;

/// The methods that there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GrpcMethod {
    /// May this request proceed?
    ShouldRateLimit,
    /// Is the server, or one of its services, ready?
    HealthCheck,
    /// Which of them are?
    HealthList,
    /// The same as a check, again whenever it changes.
    HealthWatch,
    /// What can be called, for tools that ask.
    Reflect,
    /// How much is used, and how much may be.
    StreamQuotas,
}

/// The names of our services.
pub(crate) const RLS_SERVICE: &str = "envoy.service.ratelimit.v3.RateLimitService";
pub(crate) const RLQS_SERVICE: &str = "envoy.service.rate_limit_quota.v3.RateLimitQuotaService";
pub(crate) const HEALTH_SERVICE: &str = "grpc.health.v1.Health";
pub(crate) const REFLECTION_SERVICE: &str = "grpc.reflection.v1.ServerReflection";
pub(crate) const REFLECTION_V1ALPHA_SERVICE: &str = "grpc.reflection.v1alpha.ServerReflection";

impl GrpcMethod {
    /// Whether it has many answers.
    pub(crate) const fn is_stream(self) -> bool {
        matches!(self, Self::HealthWatch | Self::Reflect | Self::StreamQuotas)
    }

    /// The method at a path.
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

/// An answer, framed, and how long it is to be held back.
#[derive(Debug)]
pub(crate) struct GrpcReply {
    pub(crate) message: Bytes,
    pub(crate) delay: Nanos,
    /// The place of whoever waits for it, free again when it is sent.
    pub(crate) wait_permit: Option<Place>,
}

/// Who answers what is called.
pub(crate) trait GrpcHandler: Send + Sync + 'static {
    /// What is said when the server wants to be asked no more, if it is said before it stops.
    fn drain_signal(&self) -> Option<&ShutdownSignal> {
        None
    }

    /// Begins a stream of quotas.
    fn open_quota_stream(&self) -> Result<Box<dyn QuotaStream>, GrpcStatus> {
        let message = "quotas are not given out here";
        Err(GrpcStatus::new(GrpcCode::Unimplemented, message))
    }

    /// Whether answers may have to be waited for. Where they need not, each is there when it is first looked at.
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

/// Who is told about quotas, on one stream.
pub(crate) trait QuotaStream: Send {
    /// Takes a message in, or says why it cannot.
    fn receive_report(&mut self, message: &[u8]) -> Result<(), String>;

    /// Writes the next message that is to be sent now, if there is one. It counts as sent.
    fn write_next_assignment(&mut self, out: &mut Vec<u8>) -> bool;

    /// Says when there may be one.
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
