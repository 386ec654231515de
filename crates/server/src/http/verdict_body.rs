//! A verdict as a JSON body.
//!
//! A refusal is the same object, preceded by the members of problem details, so that one parser understands both. Must not
//! know: sockets, what a ticket holds.

use serde::Serialize;
use tollgate_core::{Nanos, Outcome};
use tollgate_engine::{DenialReason, EnforcementMode, LimitState, Verdict};
use tollgate_http::RateLimitStatus;

use crate::http::http1::response_writer::write_number;
use tollgate_service::{role_name, write_problem};

/// The JSON body of one verdict. It is written by hand, because serialising it is most of the cost of a response and the member
/// names are constant.
#[derive(Debug)]
pub(crate) struct VerdictBody<'a> {
    verdict: &'a Verdict,
    ticket: Option<u128>,
}

impl<'a> VerdictBody<'a> {
    /// The body of a verdict, with the id of its ticket if it has one.
    pub(crate) const fn new(verdict: &'a Verdict, ticket: Option<u128>) -> Self {
        Self { verdict, ticket }
    }

    /// Appends the body to `out`. A refusal starts with its problem details; `status` is the HTTP status that is sent.
    pub(crate) fn write(&self, answer: &RateLimitStatus<'_>, status: u16, out: &mut Vec<u8>) {
        let begin = out.len();
        if !self.verdict.is_admitted() {
            write_problem(self.verdict, answer, status, out);
        }
        if out.len() > begin {
            // Replace the closing brace by a comma, so that both parts form one object.
            out.pop();
            out.push(b',');
        } else {
            out.push(b'{');
        }
        self.write_members(&mut JsonWriter(out));
    }

    /// The body alone. The status of a refusal is that of its limit.
    pub(crate) fn to_json(&self, answer: &RateLimitStatus<'_>) -> Vec<u8> {
        let mut out = Vec::with_capacity(USUAL_LEN);
        self.write(answer, self.verdict.status().unwrap_or(200), &mut out);
        out
    }

    fn write_members(&self, json: &mut JsonWriter<'_>) {
        let verdict = self.verdict;
        let (wait, retry) = match verdict.outcome() {
            Outcome::Wait(wait) => (wait.as_millis_ceil(), None),
            Outcome::Deny { retry_after } => (0, Some(retry_after)),
            Outcome::Allow | Outcome::Never => (0, None),
        };
        json.raw(match verdict.is_admitted() {
            true => "\"allowed\":true,\"wait_ms\":",
            false => "\"allowed\":false,\"wait_ms\":",
        });
        json.number(wait);
        json.raw(",\"reason\":");
        json.text_or_null(verdict.reason().map(DenialReason::as_str));
        // The limit that decided, or the one with the smallest remaining fraction.
        let binding = verdict.binding().and_then(|state| verdict.rule(state));
        json.raw(",\"limit\":");
        json.text_or_null(verdict.rule_name().or(binding.map(|rule| &*rule.name)));
        json.raw(",\"retry_after_ms\":");
        json.millis_or_null(retry);
        match self.ticket {
            None => json.raw(",\"ticket\":null"),
            Some(id) => json.raw(&format!(",\"ticket\":\"{id:032x}\"")),
        }
        let degraded = verdict.degraded();
        json.raw(match (degraded.overflow, degraded.store) {
            (false, false) => ",\"degraded\":[],\"generation\":",
            (true, false) => ",\"degraded\":[\"overflow\"],\"generation\":",
            (false, true) => ",\"degraded\":[\"store\"],\"generation\":",
            (true, true) => ",\"degraded\":[\"overflow\",\"store\"],\"generation\":",
        });
        json.number(verdict.generation().number());
        json.raw(",\"limits\":[");
        for (index, state) in verdict.limits().iter().enumerate() {
            json.raw(if index == 0 { "{" } else { ",{" });
            write_limit_state(verdict, state, json);
        }
        json.raw("]}");
    }
}

/// The state of one limit, without the opening brace.
fn write_limit_state(verdict: &Verdict, state: &LimitState, json: &mut JsonWriter<'_>) {
    json.raw("\"name\":");
    json.text(verdict.rule(state).map_or("", |rule| &rule.name));
    json.raw(",\"level\":");
    json.text_or_null(verdict.level(state));
    json.raw(",\"part\":");
    json.text(role_name(state.role()));
    json.raw(match state.enforcement {
        EnforcementMode::Enforced => ",\"mode\":\"enforce\",\"outcome\":",
        EnforcementMode::Shadow => ",\"mode\":\"shadow\",\"outcome\":",
    });
    json.raw(match state.outcome {
        Outcome::Allow => "\"allow\",\"limit\":",
        Outcome::Wait(_) => "\"wait\",\"limit\":",
        Outcome::Deny { .. } => "\"deny\",\"limit\":",
        Outcome::Never => "\"never\",\"limit\":",
    });
    json.number(state.status.limit);
    json.raw(",\"remaining\":");
    json.number(state.status.remaining);
    json.raw(",\"reset_after_ms\":");
    json.number(state.status.reset_after.as_millis_ceil());
    json.raw(",\"retry_after_ms\":");
    json.millis_or_null(state.retry_after());
    json.raw("}");
}

/// A JSON writer.
struct JsonWriter<'a>(&'a mut Vec<u8>);

impl JsonWriter<'_> {
    /// Appends text that is already JSON.
    fn raw(&mut self, json: &str) {
        self.0.extend_from_slice(json.as_bytes());
    }

    fn number(&mut self, number: u64) {
        write_number(number, self.0);
    }

    fn millis_or_null(&mut self, span: Option<Nanos>) {
        match span {
            Some(span) => self.number(span.as_millis_ceil()),
            None => self.raw("null"),
        }
    }

    fn text(&mut self, text: &str) {
        let is_special = |byte: u8| byte < b' ' || byte == b'"' || byte == b'\\';
        if text.bytes().fold(false, |any, byte| any | is_special(byte)) {
            return self.raw(&to_json_string(&text));
        }
        self.raw("\"");
        self.raw(text);
        self.raw("\"");
    }

    fn text_or_null(&mut self, text: Option<&str>) {
        match text {
            Some(text) => self.text(text),
            None => self.raw("null"),
        }
    }
}

/// Most bodies are shorter.
const USUAL_LEN: usize = 1_024;

/// Serialises one of our own types.
pub(crate) fn to_json_string<T: Serialize>(value: &T) -> String {
    // Serialising strings and integers into memory cannot fail.
    serde_json::to_string(value).unwrap_or_else(|_| String::from("{}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped_where_it_has_to_be() {
        for text in ["", "per-key", "a\"b", "a\\b", "a\nb", "é/ü"] {
            let mut out = Vec::new();
            JsonWriter(&mut out).text(text);
            assert_eq!(String::from_utf8(out).unwrap(), to_json_string(&text));
        }
    }
}
