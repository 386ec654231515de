//! A verdict as JSON, for callers who want to know everything.
//!
//! A refusal is the same object with the members of problem details before it, so that one reader understands both.
//! Must not know: sockets, tickets' inside.

use serde::Serialize;
use tollgate_core::{Nanos, Outcome};
use tollgate_engine::{DenialReason, EnforcementMode, LimitState, Verdict};
use tollgate_http::RateLimitStatus;

use crate::http::http1::response_writer::write_number;
use tollgate_service::{role_name, write_problem};

/// What is said about one request. Written piece by piece: it is most of what an answer costs, and names with what is
/// around them are known beforehand.
#[derive(Debug)]
pub(crate) struct VerdictBody<'a> {
    verdict: &'a Verdict,
    ticket: Option<u128>,
}

impl<'a> VerdictBody<'a> {
    /// All of a verdict, and the id of its ticket if it has one.
    pub(crate) const fn new(verdict: &'a Verdict, ticket: Option<u128>) -> Self {
        Self { verdict, ticket }
    }

    /// As JSON, behind what `out` holds. A refusal begins with its problem, `status` being the code that is really sent.
    pub(crate) fn write(&self, answer: &RateLimitStatus<'_>, status: u16, out: &mut Vec<u8>) {
        let begin = out.len();
        if !self.verdict.is_admitted() {
            write_problem(self.verdict, answer, status, out);
        }
        if out.len() > begin {
            // The closing brace becomes a comma: what follows goes on with the same object.
            out.pop();
            out.push(b',');
        } else {
            out.push(b'{');
        }
        self.write_members(&mut Json(out));
    }

    /// The same by itself. The status of a refusal is the limit's own.
    pub(crate) fn to_json(&self, answer: &RateLimitStatus<'_>) -> Vec<u8> {
        let mut out = Vec::with_capacity(ROOM);
        self.write(answer, self.verdict.status().unwrap_or(200), &mut out);
        out
    }

    fn write_members(&self, json: &mut Json<'_>) {
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
        // The limit that decided, or the one of which the smallest part is left.
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
            write_stand(verdict, state, json);
        }
        json.raw("]}");
    }
}

/// Where one limit stands, but for the brace that opens it.
fn write_stand(verdict: &Verdict, state: &LimitState, json: &mut Json<'_>) {
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

/// JSON being written.
struct Json<'a>(&'a mut Vec<u8>);

impl Json<'_> {
    /// Text that is JSON already.
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
        if text.bytes().any(is_special) {
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
const ROOM: usize = 1_024;

/// Any of our own types as JSON.
pub(crate) fn to_json_string<T: Serialize>(value: &T) -> String {
    // Serialising strings and integers into memory cannot fail; an empty object would say so if it ever did.
    serde_json::to_string(value).unwrap_or_else(|_| String::from("{}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped_where_it_has_to_be() {
        for text in ["", "per-key", "a\"b", "a\\b", "a\nb", "é/ü"] {
            let mut out = Vec::new();
            Json(&mut out).text(text);
            assert_eq!(String::from_utf8(out).unwrap(), to_json_string(&text));
        }
    }
}
