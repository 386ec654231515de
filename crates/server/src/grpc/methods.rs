//! What can be called: the methods by their paths, and who answers them.
//!
//! Must not know: HTTP/2, how answers are found.

use std::future::Future;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::Notify;
use tollgate_core::Nanos;

use super::status::{Code, Status};
use crate::listen::Stopping;
use tollgate_service::WaitPermit as Place;

/// The methods that there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
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
pub(crate) const RATE_LIMITS: &str = "envoy.service.ratelimit.v3.RateLimitService";
pub(crate) const QUOTAS: &str = "envoy.service.rate_limit_quota.v3.RateLimitQuotaService";
pub(crate) const HEALTH: &str = "grpc.health.v1.Health";
pub(crate) const REFLECTION: &str = "grpc.reflection.v1.ServerReflection";
pub(crate) const REFLECTION_ALPHA: &str = "grpc.reflection.v1alpha.ServerReflection";

impl Method {
    /// Whether it has many answers.
    pub(crate) const fn is_stream(self) -> bool {
        matches!(self, Self::HealthWatch | Self::Reflect | Self::StreamQuotas)
    }

    /// The method at a path.
    pub(crate) fn at(path: &str) -> Option<Self> {
        let (service, method) = path.strip_prefix('/')?.split_once('/')?;
        Some(match (service, method) {
            (RATE_LIMITS, "ShouldRateLimit") => Self::ShouldRateLimit,
            (QUOTAS, "StreamRateLimitQuotas") => Self::StreamQuotas,
            (HEALTH, "Check") => Self::HealthCheck,
            (HEALTH, "List") => Self::HealthList,
            (HEALTH, "Watch") => Self::HealthWatch,
            (REFLECTION | REFLECTION_ALPHA, "ServerReflectionInfo") => Self::Reflect,
            _ => return None,
        })
    }
}

/// An answer, framed, and how long it is to be held back.
#[derive(Debug)]
pub(crate) struct GrpcReply {
    pub(crate) message: Bytes,
    pub(crate) wait: Nanos,
    /// The place of whoever waits for it, free again when it is sent.
    pub(crate) place: Option<Place>,
}

/// Who answers what is called.
pub(crate) trait GrpcHandler: Send + Sync + 'static {
    /// What is said when the server wants to be asked no more, if it is said before it stops.
    fn leaving(&self) -> Option<&Stopping> {
        None
    }

    /// Begins a stream of quotas.
    fn subscribe(&self) -> Result<Box<dyn QuotaSubscriber>, Status> {
        let message = "quotas are not given out here";
        Err(Status::new(Code::Unimplemented, message))
    }

    /// Whether answers may have to be waited for. Where they need not, each is there when it is first looked at.
    fn waits(&self) -> bool {
        false
    }

    /// Answers one message with one message.
    fn answer(
        &self,
        method: Method,
        message: &[u8],
        is_stopping: bool,
    ) -> impl Future<Output = Result<GrpcReply, Status>> + Send;
}

/// Who is told about quotas, on one stream.
pub(crate) trait QuotaSubscriber: Send {
    /// Takes a message in, or says why it cannot.
    fn hear(&mut self, message: &[u8]) -> Result<(), String>;

    /// Writes the next message that is to be sent now, if there is one. It counts as sent.
    fn due(&mut self, out: &mut Vec<u8>) -> bool;

    /// Says when there may be one.
    fn wake(&self) -> Arc<Notify>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_are_found_by_their_whole_path() {
        let at = Method::at("/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit");
        assert_eq!(at, Some(Method::ShouldRateLimit));
        assert_eq!(
            Method::at("/grpc.health.v1.Health/Check"),
            Some(Method::HealthCheck)
        );
        for wrong in [
            "",
            "/",
            "/grpc.health.v1.Health",
            "/grpc.health.v1.Health/Check/",
            "grpc.health.v1.Health/Check",
            "/envoy.service.ratelimit.v2.RateLimitService/ShouldRateLimit",
        ] {
            assert_eq!(Method::at(wrong), None, "{wrong}");
        }
    }
}
