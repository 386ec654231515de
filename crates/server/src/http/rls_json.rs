//! `/json`: Envoy's rate limit request as JSON, for clients without gRPC.
//!
//! Must not know: how the request is parsed or decided.

use hyper::StatusCode;
use tollgate_envoy::rls::RlsJsonResponse;
use tollgate_store::Clock;

use crate::http::http_api::HttpApi;
use crate::http::response::HttpResponse;

impl<C: Clock + 'static> HttpApi<C> {
    pub(crate) async fn answer_rls_json(&self, body: &[u8]) -> HttpResponse {
        match self.envoy.should_rate_limit_json(body).await {
            Ok((RlsJsonResponse::Decided { status, body, wait }, tickets)) => {
                let response = HttpResponse::json(body).with_status(status);
                match wait.is_zero() {
                    true => response,
                    false => response
                        .with_delay(wait)
                        .with_wait_permit(self.service.acquire_wait(tickets, None)),
                }
            }
            Ok((RlsJsonResponse::Failed(refusal, detail), _)) => {
                HttpResponse::refusal(refusal, detail)
            }
            Err(reason) => HttpResponse::status_problem(StatusCode::BAD_REQUEST, reason),
        }
    }
}
