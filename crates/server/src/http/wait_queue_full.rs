//! The response to a gateway whose request would have to wait while the wait queue is full.
//!
//! Must not know: sockets, which limit decides.

use tollgate_core::Nanos;
use tollgate_engine::Verdict;
use tollgate_service::{HeaderSubject, WaitQueueFull};
use tollgate_store::Clock;

use crate::http::forward_auth::Gateway;
use crate::http::http_api::HttpApi;
use crate::http::response::HttpResponse;

impl<C: Clock + 'static> HttpApi<C> {
    /// The response about a request that a peek found would have to wait. Nothing is charged.
    pub(crate) fn answer_queue_full(&self, gateway: Gateway, peeked: &Verdict) -> HttpResponse {
        self.service.record_saturation();
        match self.service.decide_without_wait(peeked) {
            WaitQueueFull::Refused(refusal) => gateway.respond_queue_full(refusal),
            WaitQueueFull::LetThrough => {
                self.service
                    .with_rate_limit_status(peeked, HeaderSubject::Request, |answer| {
                        let response = gateway.respond(peeked, None, answer);
                        self.with_rate_limit_fields(response.with_delay(Nanos::ZERO), answer)
                    })
            }
        }
    }
}
