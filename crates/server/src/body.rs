//! A verdict as JSON, for callers who want to know everything.
//!
//! A refusal is the same object with the members of problem details before it, so that one reader understands both.
//! Must not know: sockets, tickets' inside.

use serde::Serialize;
use tollgate_core::{Nanos, Outcome};
use tollgate_engine::{LimitState, Standing, Verdict};
use tollgate_http::Answer;

use crate::words::{part_word, reason_word, write_problem};

/// What is said about one request.
#[derive(Debug, Serialize)]
pub(crate) struct Body<'a> {
    #[serde(skip)]
    verdict: &'a Verdict,
    allowed: bool,
    /// How long the caller has to let the request wait before it goes on.
    wait_ms: u64,
    reason: Option<&'static str>,
    /// The limit that decided, or the one of which the smallest part is left.
    limit: Option<&'a str>,
    retry_after_ms: Option<u64>,
    ticket: Option<String>,
    degraded: Vec<&'static str>,
    generation: u64,
    limits: Vec<Stand<'a>>,
}

/// Where one limit stands.
#[derive(Debug, Serialize)]
struct Stand<'a> {
    name: &'a str,
    level: Option<&'a str>,
    part: &'static str,
    mode: &'static str,
    outcome: &'static str,
    limit: u64,
    remaining: u64,
    reset_after_ms: u64,
    retry_after_ms: Option<u64>,
}

impl<'a> Body<'a> {
    /// All of a verdict, and the id of its ticket if it has one.
    pub(crate) fn new(verdict: &'a Verdict, ticket: Option<u128>) -> Self {
        let degraded = verdict.degraded();
        let words = [(degraded.overflow, "overflow"), (degraded.store, "store")];
        let binding = verdict.binding().and_then(|state| verdict.rule(state));
        let binding = binding.map(|rule| &*rule.name);
        Self {
            verdict,
            allowed: verdict.is_admitted(),
            wait_ms: match verdict.outcome() {
                Outcome::Wait(wait) => wait.as_millis_ceil(),
                _ => 0,
            },
            reason: verdict.reason().map(reason_word),
            limit: verdict.rule_name().or(binding),
            retry_after_ms: match verdict.outcome() {
                Outcome::Deny { retry_after } => Some(retry_after.as_millis_ceil()),
                _ => None,
            },
            ticket: ticket.map(|id| format!("{id:032x}")),
            degraded: words
                .into_iter()
                .filter_map(|(holds, word)| holds.then_some(word))
                .collect(),
            generation: verdict.generation().number(),
            limits: verdict
                .limits()
                .iter()
                .map(|state| stand(verdict, state))
                .collect(),
        }
    }

    /// As JSON, behind what `out` holds. A refusal begins with its problem, `status` being the code that is really sent.
    pub(crate) fn write(&self, answer: &Answer<'_>, status: u16, out: &mut Vec<u8>) {
        let begin = out.len();
        if !self.allowed {
            write_problem(self.verdict, answer, status, out);
        }
        let goes_on = out.len() > begin;
        if goes_on {
            // The closing brace becomes a comma, and the opening one of what follows is left out.
            out.pop();
            out.push(b',');
        }
        let at = out.len();
        // Writing strings and integers into memory cannot fail.
        if serde_json::to_writer(&mut *out, self).is_ok() && goes_on {
            out.remove(at);
        }
    }

    /// The same by itself. The status of a refusal is the limit's own.
    pub(crate) fn to_json(&self, answer: &Answer<'_>) -> Vec<u8> {
        let mut out = Vec::with_capacity(ROOM);
        self.write(answer, self.verdict.status().unwrap_or(200), &mut out);
        out
    }
}

/// Most bodies are shorter.
const ROOM: usize = 1_024;

/// Any of our own types as JSON.
pub(crate) fn json<T: Serialize>(value: &T) -> String {
    // Serialising strings and integers into memory cannot fail; an empty object would say so if it ever did.
    serde_json::to_string(value).unwrap_or_else(|_| String::from("{}"))
}

fn stand<'a>(verdict: &'a Verdict, state: &LimitState) -> Stand<'a> {
    Stand {
        name: verdict.rule(state).map_or("", |rule| &rule.name),
        level: verdict.level(state),
        part: part_word(state.role()),
        mode: match state.standing {
            Standing::Enforced => "enforce",
            Standing::Shadow => "shadow",
        },
        outcome: match state.outcome {
            Outcome::Allow => "allow",
            Outcome::Wait(_) => "wait",
            Outcome::Deny { .. } => "deny",
            Outcome::Never => "never",
        },
        limit: state.status.limit,
        remaining: state.status.remaining,
        reset_after_ms: state.status.reset_after.as_millis_ceil(),
        retry_after_ms: state.retry_after().map(Nanos::as_millis_ceil),
    }
}
