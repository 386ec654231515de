//! The endpoints that decide: check, batch, acquire, reserve, status and forward-auth.
//!
//! Must not know: sockets, how JSON and query strings are parsed, what a verdict consists of.

use hyper::Method;
use tollgate_core::Outcome;
use tollgate_engine::{CheckMode, CheckOptions};
use tollgate_http::RateLimitStatus;
use tollgate_store::Clock;

use crate::http::HttpRequest;
use crate::http::bad_input::BadInput;
use crate::http::check_request::CheckRequest;
use crate::http::forward_auth::{Gateway, parse_forwarded};
use crate::http::http_api::HttpApi;
use crate::http::json::{parse_check_request, parse_check_requests};
use crate::http::query::parse_query;
use crate::http::response::HttpResponse;
use crate::http::verdict_body::VerdictBody;
use tollgate_service::{HeaderSubject, Transport, with_header_fields};

impl<C: Clock + 'static> HttpApi<C> {
    pub(crate) async fn check(&self, request: &HttpRequest<'_>) -> Result<HttpResponse, BadInput> {
        let parsed = match *request.method {
            Method::POST => parse_body(request)?,
            _ => parse_query(request.query)?,
        };
        Ok(self.decide(&parsed, CheckMode::Charge).await)
    }

    /// A check whose limits are held while the request is in progress, so a peek is rejected.
    pub(crate) async fn acquire(
        &self,
        request: &HttpRequest<'_>,
    ) -> Result<HttpResponse, BadInput> {
        let parsed = reject_peek(parse_body(request)?)?;
        Ok(self.decide(&parsed, CheckMode::Charge).await)
    }

    pub(crate) async fn reserve(
        &self,
        request: &HttpRequest<'_>,
    ) -> Result<HttpResponse, BadInput> {
        let parsed = reject_peek(parse_body(request)?)?;
        Ok(self.decide(&parsed, CheckMode::Reserve).await)
    }

    pub(crate) async fn check_batch(
        &self,
        request: &HttpRequest<'_>,
    ) -> Result<HttpResponse, BadInput> {
        reject_query(request)?;
        // All requests are parsed before the first one is charged.
        let requests = parse_check_requests(request.body)?;
        let mut body = Vec::from(br#"{"answers":["#);
        for (index, parsed) in requests.iter().enumerate() {
            if index > 0 {
                body.push(b',');
            }
            let options = parsed.options(CheckMode::Charge);
            let mut verdict = self
                .service
                .check(Transport::Http, &parsed.attributes, options)
                .await;
            let ticket = self.service.issue_ticket(&mut verdict);
            self.service
                .with_rate_limit_status(&verdict, HeaderSubject::Request, |answer| {
                    let status = verdict.status().unwrap_or(200);
                    VerdictBody::new(&verdict, ticket).write(answer, status, &mut body);
                });
        }
        body.extend_from_slice(b"]}");
        Ok(HttpResponse::json(body))
    }

    /// The status of every limit for a key. It charges nothing and always answers 200.
    pub(crate) async fn status(&self, request: &HttpRequest<'_>) -> Result<HttpResponse, BadInput> {
        let parsed = parse_query(request.query)?;
        let options = parsed.options(CheckMode::Peek);
        let verdict = self
            .service
            .check(Transport::Http, &parsed.attributes, options)
            .await;
        Ok(self
            .service
            .with_rate_limit_status(&verdict, HeaderSubject::Status, |answer| {
                let body = VerdictBody::new(&verdict, None).to_json(answer);
                self.with_rate_limit_fields(HttpResponse::json(body), answer)
            }))
    }

    /// Decides about the request that a gateway holds.
    pub(crate) async fn authorize(
        &self,
        gateway: Gateway,
        request: &HttpRequest<'_>,
    ) -> Result<HttpResponse, BadInput> {
        let peer = request.peer.ip();
        if !self.gateways.is_trusted(peer) {
            self.metrics().record_untrusted_gateway();
            let now = self.service.now();
            self.gateways.untrusted.record(gateway, peer, now);
            return Ok(gateway.respond_untrusted(peer));
        }
        let clients = self.gateways.client_source(gateway);
        let mut forwarded = parse_forwarded(gateway, request.headers, request.peer.ip(), clients)?;
        let generation = self.service.engine().generation();
        forwarded.resolve_duplicates(generation.rules().duplicate_rules());
        if self.saturation().is_full() {
            let peek = CheckOptions::new(CheckMode::Peek);
            let peeked = self.service.check(Transport::Http, &forwarded, peek).await;
            if matches!(peeked.outcome(), Outcome::Wait(_)) {
                return Ok(self.answer_queue_full(gateway, &peeked));
            }
        }
        let mut verdict = self
            .service
            .check(Transport::Http, &forwarded, CheckOptions::default())
            .await;
        let ticket = self.service.issue_ticket(&mut verdict);
        let wait_ticket = verdict.take_wait_ticket();
        let reply =
            self.service
                .with_rate_limit_status(&verdict, HeaderSubject::Request, |answer| {
                    let reply = gateway.respond(&verdict, ticket, answer);
                    self.with_rate_limit_fields(reply, answer)
                });
        Ok(match reply.delay().is_zero() {
            true => reply,
            false => reply.with_wait_permit(self.service.acquire_wait(wait_ticket, ticket)),
        })
    }

    async fn decide(&self, parsed: &CheckRequest, mode: CheckMode) -> HttpResponse {
        let mut verdict = self
            .service
            .check(Transport::Http, &parsed.attributes, parsed.options(mode))
            .await;
        let ticket = self.service.issue_ticket(&mut verdict);
        self.service
            .with_rate_limit_status(&verdict, HeaderSubject::Request, |answer| {
                let body = VerdictBody::new(&verdict, ticket).to_json(answer);
                let reply = match verdict.status() {
                    None => HttpResponse::json(body),
                    Some(status) => HttpResponse::problem_body(status, body),
                };
                self.with_rate_limit_fields(reply, answer)
            })
    }

    /// Adds the rate limit fields of the configured dialects to a response.
    pub(crate) fn with_rate_limit_fields(
        &self,
        reply: HttpResponse,
        answer: &RateLimitStatus<'_>,
    ) -> HttpResponse {
        with_header_fields(|fields| {
            answer.write(self.service.headers().dialects(), fields);
            reply.with_header_fields(fields)
        })
    }
}

fn parse_body(request: &HttpRequest<'_>) -> Result<CheckRequest, BadInput> {
    reject_query(request)?;
    parse_check_request(request.body)
}

/// A query string and a body could contradict each other.
fn reject_query(request: &HttpRequest<'_>) -> Result<(), BadInput> {
    if request.query.is_empty() {
        return Ok(());
    }
    let reason = "with POST all parameters belong in the body";
    Err(BadInput::new("query", request.query.as_bytes(), reason))
}

fn reject_peek(parsed: CheckRequest) -> Result<CheckRequest, BadInput> {
    if parsed.is_peek() {
        let reason = "a peek cannot hold a lease; use /v1/check";
        return Err(BadInput::new("peek", b"true", reason));
    }
    Ok(parsed)
}
