//! The questions: may this request proceed, may these, where does a key stand, and what a gateway asks.
//!
//! Must not know: sockets, how JSON and query strings are read, what a verdict is made of.

use hyper::{Method, StatusCode};
use serde::Serialize;
use tollgate_engine::Verdict;
use tollgate_store::Clock;

use crate::app::App;
use crate::asked::Asked;
use crate::body::{Body, json};
use crate::gateways::{Forwarded, Gateway};
use crate::http::Question;
use crate::input::BadInput;
use crate::json::{parse_question, parse_questions};
use crate::query::parse_query;
use crate::reply::Reply;
use crate::words::add_fields;

/// How an admitted request is charged.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Charge {
    /// At its cost.
    Cost,
    /// At an estimate that is settled later.
    Estimate,
}

impl<C: Clock> App<C> {
    pub(crate) fn check(&self, question: &Question<'_>) -> Result<Reply, BadInput> {
        let asked = match *question.method {
            Method::POST => posted(question)?,
            _ => parse_query(question.query)?,
        };
        Ok(self.decide(&asked, Charge::Cost))
    }

    /// A check of a request that will be worked on for a while, so looking is not enough.
    pub(crate) fn acquire(&self, question: &Question<'_>) -> Result<Reply, BadInput> {
        Ok(self.decide(&charged(posted(question)?)?, Charge::Cost))
    }

    pub(crate) fn reserve(&self, question: &Question<'_>) -> Result<Reply, BadInput> {
        Ok(self.decide(&charged(posted(question)?)?, Charge::Estimate))
    }

    pub(crate) fn check_batch(&self, question: &Question<'_>) -> Result<Reply, BadInput> {
        no_query(question)?;
        // All of them are understood before any of them is charged.
        let questions = parse_questions(question.body)?;
        let mut verdicts = Vec::with_capacity(questions.len());
        for asked in &questions {
            let mut verdict = self.verdict(asked, Charge::Cost);
            let ticket = self.keep_ticket(&mut verdict);
            verdicts.push((verdict, ticket));
        }
        let answers = verdicts
            .iter()
            .map(|(verdict, ticket)| Body::new(verdict, *ticket))
            .collect();
        Ok(Reply::json(json(&Answers { answers })))
    }

    /// Where everything stands for a key. Charges nothing, and answers 200 whatever it finds.
    pub(crate) fn status(&self, question: &Question<'_>) -> Result<Reply, BadInput> {
        let asked = parse_query(question.query)?;
        let verdict = match asked.cost {
            Some(cost) => self.engine.peek_at(&asked.known, cost),
            None => self.engine.peek(&asked.known),
        };
        let reply = Reply::json(Body::new(&verdict, None).to_json());
        Ok(add_fields(reply, &verdict))
    }

    /// What a gateway asks about a request that it holds.
    pub(crate) fn authorize(
        &self,
        gateway: Gateway,
        question: &Question<'_>,
    ) -> Result<Reply, BadInput> {
        if !self.trusted.includes(question.peer.ip()) {
            let detail = format!(
                "{} is not among the gateways whose word is taken; see --trusted-proxies",
                question.peer.ip()
            );
            return Ok(Reply::plain(StatusCode::FORBIDDEN, detail));
        }
        let request = Forwarded::read(gateway, question.headers, &self.trusted)?;
        let mut verdict = self.engine.decide(&request);
        let ticket = self.keep_ticket(&mut verdict);
        Ok(gateway.answer(&verdict, ticket))
    }

    fn decide(&self, asked: &Asked, charge: Charge) -> Reply {
        let mut verdict = self.verdict(asked, charge);
        let ticket = self.keep_ticket(&mut verdict);
        let body = Body::new(&verdict, ticket).to_json();
        let reply = match verdict.status() {
            None => Reply::json(body),
            Some(status) => Reply::refused(status, body),
        };
        add_fields(reply, &verdict)
    }

    fn verdict(&self, asked: &Asked, charge: Charge) -> Verdict {
        let Asked { known, cost, .. } = asked;
        match (asked.is_peek(), charge, *cost) {
            (true, _, None) => self.engine.peek(known),
            (true, _, Some(cost)) => self.engine.peek_at(known, cost),
            (false, Charge::Estimate, cost) => self.engine.reserve(known, cost),
            (false, Charge::Cost, None) => self.engine.decide(known),
            (false, Charge::Cost, Some(cost)) => self.engine.decide_at(known, cost),
        }
    }

    fn keep_ticket(&self, verdict: &mut Verdict) -> Option<u128> {
        let ticket = verdict.take_ticket()?;
        Some(self.tickets.keep(ticket, self.engine.store().now()))
    }
}

/// The answers to several questions, in their order.
#[derive(Serialize)]
struct Answers<'a> {
    answers: Vec<Body<'a>>,
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
