//! The questions: may this request proceed, may these, where does a key stand, and what a gateway asks.
//!
//! Must not know: sockets, how JSON and query strings are read, what a verdict is made of.

use hyper::{Method, StatusCode};
use tollgate_core::Outcome;
use tollgate_engine::{Purpose, Terms, Verdict};
use tollgate_http::Answer;
use tollgate_store::Clock;

use crate::app::App;
use crate::asked::Asked;
use crate::body::Body;
use crate::gateways::{Forwarded, Gateway};
use crate::http::Question;
use crate::input::BadInput;
use crate::json::{parse_question, parse_questions};
use crate::metrics::Transport;
use crate::query::parse_query;
use crate::reply::Reply;
use crate::words::{About, with_words};

impl<C: Clock> App<C> {
    pub(crate) async fn check(&self, question: &Question<'_>) -> Result<Reply, BadInput> {
        let asked = match *question.method {
            Method::POST => posted(question)?,
            _ => parse_query(question.query)?,
        };
        Ok(self.decide(&asked, Purpose::Charge).await)
    }

    /// A check of a request that will be worked on for a while, so looking is not enough.
    pub(crate) async fn acquire(&self, question: &Question<'_>) -> Result<Reply, BadInput> {
        let asked = charged(posted(question)?)?;
        Ok(self.decide(&asked, Purpose::Charge).await)
    }

    pub(crate) async fn reserve(&self, question: &Question<'_>) -> Result<Reply, BadInput> {
        let asked = charged(posted(question)?)?;
        Ok(self.decide(&asked, Purpose::Estimate).await)
    }

    pub(crate) async fn check_batch(&self, question: &Question<'_>) -> Result<Reply, BadInput> {
        no_query(question)?;
        // All of them are understood before any of them is charged.
        let questions = parse_questions(question.body)?;
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
                    Body::new(&decided.verdict, ticket).write(answer, status, &mut body);
                });
            });
            told.await;
        }
        body.extend_from_slice(b"]}");
        Ok(Reply::json(body))
    }

    /// Where everything stands for a key. Charges nothing, and answers 200 whatever it finds.
    pub(crate) async fn status(&self, question: &Question<'_>) -> Result<Reply, BadInput> {
        let asked = parse_query(question.query)?;
        let terms = Terms::of(Purpose::Look, asked.cost);
        let told = self.ask_then(Transport::Http, &asked.known, terms, |decided| {
            self.answering(decided, About::Stand, |answer| {
                let body = Body::new(&decided.verdict, None).to_json(answer);
                self.say(Reply::json(body), answer)
            })
        });
        Ok(told.await)
    }

    /// What a gateway asks about a request that it holds.
    pub(crate) async fn authorize(
        &self,
        gateway: Gateway,
        question: &Question<'_>,
    ) -> Result<Reply, BadInput> {
        if !self.gateways.trust(question.peer.ip()) {
            let detail = format!(
                "{} is not among the gateways whose word is taken; see --trusted-proxies",
                question.peer.ip()
            );
            return Ok(Reply::plain(StatusCode::FORBIDDEN, detail));
        }
        let clients = self.gateways.clients(gateway);
        let request = Forwarded::read(gateway, question.headers, question.peer.ip(), clients)?;
        if self.saturation.is_full() {
            let look = Terms::of(Purpose::Look, None);
            let crowded = self.ask_then(Transport::Http, &request, look, |seen| {
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
        let told = self.ask_then(Transport::Http, &request, terms, |decided| {
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

    async fn decide(&self, asked: &Asked, purpose: Purpose) -> Reply {
        let terms = asked.terms(purpose);
        let told = self.ask_then(Transport::Http, &asked.known, terms, |decided| {
            let ticket = self.keep_ticket(&mut decided.verdict);
            self.answering(decided, About::Request, |answer| {
                let body = Body::new(&decided.verdict, ticket).to_json(answer);
                let reply = match decided.verdict.status() {
                    None => Reply::json(body),
                    Some(status) => Reply::refused(status, body),
                };
                self.say(reply, answer)
            })
        });
        told.await
    }

    /// The reply with the fields that an answer has in the dialects that were chosen.
    pub(crate) fn say(&self, reply: Reply, answer: &Answer<'_>) -> Reply {
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

fn posted(question: &Question<'_>) -> Result<Asked, BadInput> {
    no_query(question)?;
    parse_question(question.body)
}

/// What is asked in two places at once could contradict itself.
fn no_query(question: &Question<'_>) -> Result<(), BadInput> {
    if question.query.is_empty() {
        return Ok(());
    }
    let reason = "with POST everything is said in the body";
    Err(BadInput::new("query", question.query.as_bytes(), reason))
}

fn charged(asked: Asked) -> Result<Asked, BadInput> {
    if asked.is_peek() {
        let reason = "what is only looked at cannot be held; see /v1/check";
        return Err(BadInput::new("peek", b"true", reason));
    }
    Ok(asked)
}
