//! The questions: may this request proceed, may these, where does a key stand, and what a gateway asks.
//!
//! Must not know: sockets, how JSON and query strings are read, what a verdict is made of.

use hyper::{Method, StatusCode};
use tollgate_core::Outcome;
use tollgate_engine::{Purpose, Terms, Verdict};
use tollgate_http::Answer;
use tollgate_store::Clock;

use crate::app::App;
use crate::http::HttpRequest;
use crate::http::bad_input::BadInput;
use crate::http::check_request::CheckRequest;
use crate::http::forward_auth::{ForwardedRequest, Gateway};
use crate::http::json::{parse_check_request, parse_check_requests};
use crate::http::query::parse_query;
use crate::http::response::HttpResponse;
use crate::http::verdict_body::VerdictBody;
use crate::metrics::Transport;
use crate::words::{About, with_words};

impl<C: Clock> App<C> {
    pub(crate) async fn check(&self, request: &HttpRequest<'_>) -> Result<HttpResponse, BadInput> {
        let asked = match *request.method {
            Method::POST => posted(request)?,
            _ => parse_query(request.query)?,
        };
        Ok(self.decide(&asked, Purpose::Charge).await)
    }

    /// A check of a request that will be worked on for a while, so looking is not enough.
    pub(crate) async fn acquire(
        &self,
        request: &HttpRequest<'_>,
    ) -> Result<HttpResponse, BadInput> {
        let asked = charged(posted(request)?)?;
        Ok(self.decide(&asked, Purpose::Charge).await)
    }

    pub(crate) async fn reserve(
        &self,
        request: &HttpRequest<'_>,
    ) -> Result<HttpResponse, BadInput> {
        let asked = charged(posted(request)?)?;
        Ok(self.decide(&asked, Purpose::Estimate).await)
    }

    pub(crate) async fn check_batch(
        &self,
        request: &HttpRequest<'_>,
    ) -> Result<HttpResponse, BadInput> {
        no_query(request)?;
        // All of them are understood before any of them is charged.
        let questions = parse_check_requests(request.body)?;
        let mut body = Vec::from(br#"{"answers":["#);
        for (index, asked) in questions.iter().enumerate() {
            let terms = asked.terms(Purpose::Charge);
            if index > 0 {
                body.push(b',');
            }
            let told = self.ask_then(Transport::Http, &asked.known, terms, |decided| {
                let ticket = self.keep_ticket(&mut decided.verdict);
                self.answering(decided, About::Request, |answer| {
                    let status = decided.verdict.status().unwrap_or(200);
                    VerdictBody::new(&decided.verdict, ticket).write(answer, status, &mut body);
                });
            });
            told.await;
        }
        body.extend_from_slice(b"]}");
        Ok(HttpResponse::json(body))
    }

    /// Where everything stands for a key. Charges nothing, and answers 200 whatever it finds.
    pub(crate) async fn status(&self, request: &HttpRequest<'_>) -> Result<HttpResponse, BadInput> {
        let asked = parse_query(request.query)?;
        let terms = Terms::of(Purpose::Look, asked.cost);
        let told = self.ask_then(Transport::Http, &asked.known, terms, |decided| {
            self.answering(decided, About::Stand, |answer| {
                let body = VerdictBody::new(&decided.verdict, None).to_json(answer);
                self.say(HttpResponse::json(body), answer)
            })
        });
        Ok(told.await)
    }

    /// What a gateway asks about a request that it holds.
    pub(crate) async fn authorize(
        &self,
        gateway: Gateway,
        request: &HttpRequest<'_>,
    ) -> Result<HttpResponse, BadInput> {
        if !self.gateways.trust(request.peer.ip()) {
            let detail = format!(
                "{} is not among the gateways whose word is taken; see --trusted-proxies",
                request.peer.ip()
            );
            return Ok(HttpResponse::plain(StatusCode::FORBIDDEN, detail));
        }
        let clients = self.gateways.clients(gateway);
        let forwarded =
            ForwardedRequest::read(gateway, request.headers, request.peer.ip(), clients)?;
        if self.saturation.is_full() {
            let look = Terms::of(Purpose::Look, None);
            let crowded = self.ask_then(Transport::Http, &forwarded, look, |seen| {
                match seen.verdict.outcome() {
                    Outcome::Wait(wait) => Some(self.crowd_out(gateway, seen, wait)),
                    _ => None,
                }
            });
            if let Some(reply) = crowded.await {
                return Ok(reply);
            }
        }
        let terms = Terms::of(Purpose::Charge, None);
        let told = self.ask_then(Transport::Http, &forwarded, terms, |decided| {
            let ticket = self.keep_ticket(&mut decided.verdict);
            self.answering(decided, About::Request, |answer| {
                let reply = gateway.reply(&decided.verdict, ticket, answer);
                self.say(reply, answer)
            })
        });
        let reply = told.await;
        Ok(match reply.wait().is_zero() {
            true => reply,
            false => reply.at(self.saturation.enter()),
        })
    }

    async fn decide(&self, asked: &CheckRequest, purpose: Purpose) -> HttpResponse {
        let terms = asked.terms(purpose);
        let told = self.ask_then(Transport::Http, &asked.known, terms, |decided| {
            let ticket = self.keep_ticket(&mut decided.verdict);
            self.answering(decided, About::Request, |answer| {
                let body = VerdictBody::new(&decided.verdict, ticket).to_json(answer);
                let reply = match decided.verdict.status() {
                    None => HttpResponse::json(body),
                    Some(status) => HttpResponse::refused(status, body),
                };
                self.say(reply, answer)
            })
        });
        told.await
    }

    /// The reply with the fields that an answer has in the dialects that were chosen.
    pub(crate) fn say(&self, reply: HttpResponse, answer: &Answer<'_>) -> HttpResponse {
        with_words(|words| {
            answer.write(self.wording.dialects(), words);
            reply.saying(words)
        })
    }

    pub(crate) fn keep_ticket(&self, verdict: &mut Verdict) -> Option<u128> {
        let ticket = verdict.take_ticket()?;
        Some(self.tickets.keep(ticket, self.engine.store().now()))
    }
}

fn posted(request: &HttpRequest<'_>) -> Result<CheckRequest, BadInput> {
    no_query(request)?;
    parse_check_request(request.body)
}

/// What is asked in two places at once could contradict itself.
fn no_query(request: &HttpRequest<'_>) -> Result<(), BadInput> {
    if request.query.is_empty() {
        return Ok(());
    }
    let reason = "with POST everything is said in the body";
    Err(BadInput::new("query", request.query.as_bytes(), reason))
}

fn charged(asked: CheckRequest) -> Result<CheckRequest, BadInput> {
    if asked.is_peek() {
        let reason = "what is only looked at cannot be held; see /v1/check";
        return Err(BadInput::new("peek", b"true", reason));
    }
    Ok(asked)
}
