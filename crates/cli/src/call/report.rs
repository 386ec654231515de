//! What `tollgate call` says about responses: their status, and the limits of the server.
//!
//! Servers choose the names of limits, so no control character of theirs reaches the terminal. Must not know: how requests are sent.

use std::fmt::Write as _;

use http::StatusCode;
use tollgate_client::{Nanos, RateLimitInfo};
use tollgate_http::LimitInfo;

/// One line about a response that is not the last.
pub(super) fn refusal(status: StatusCode, info: &RateLimitInfo) -> String {
    let exhausted = info
        .limits
        .iter()
        .filter(|limit| limit.remaining == Some(0));
    let reset = exhausted.filter_map(|limit| limit.reset_after).max();
    let wait = match (info.retry_after, reset) {
        (Some(wait), _) => format!("the server asks to wait {}", seconds(wait)),
        (None, Some(reset)) => format!("the limit resets in {}", seconds(reset)),
        (None, None) => "the server does not say how long to wait".to_owned(),
    };
    match status.canonical_reason() {
        Some(reason) => format!("{} {reason}: {wait}\n", status.as_u16()),
        None => format!("{}: {wait}\n", status.as_u16()),
    }
}

/// The limits that a response reports, as a table. Empty if it reports none.
pub(super) fn limits(info: &RateLimitInfo) -> String {
    if info.limits.is_empty() {
        return String::new();
    }
    let mut rows = vec![["limit", "counts", "quota", "window", "left", "reset"].map(str::to_owned)];
    rows.extend(info.limits.iter().map(row));
    let widths: Vec<usize> = (0..6)
        .map(|column| {
            let cells = rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        })
        .collect();
    let mut text = String::new();
    for row in &rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            // Writing to a String cannot fail.
            let _written = write!(line, "{cell:<width$}  ");
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

fn row(limit: &LimitInfo) -> [String; 6] {
    let number = |number: Option<u64>| number.map_or_else(missing, |number| number.to_string());
    let span = |span: Option<Nanos>| span.map_or_else(missing, seconds);
    let name = limit.name.as_deref().map_or_else(missing, printable);
    [
        name,
        limit.unit.name().to_owned(),
        number(limit.quota),
        span(limit.window),
        number(limit.remaining),
        span(limit.reset_after),
    ]
}

fn missing() -> String {
    "–".to_owned()
}

fn printable(text: &str) -> String {
    text.chars()
        .map(|character| match character.is_control() {
            true => '\u{fffd}',
            false => character,
        })
        .collect()
}

fn seconds(span: Nanos) -> String {
    let millis = span.as_millis_ceil();
    match millis % 1_000 {
        0 => format!("{} s", millis / 1_000),
        rest => format!("{}.{rest:03} s", millis / 1_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_client::{ResponseReader, Timestamp};

    fn read(fields: &[(&str, &str)]) -> RateLimitInfo {
        let mut reader = ResponseReader::new(Timestamp::from_secs(1_700_000_000));
        for (name, value) in fields {
            reader.field(name, value.as_bytes());
        }
        reader.finish()
    }

    #[test]
    fn limits_are_a_table() {
        let info = read(&[
            ("ratelimit-policy", r#""per-user";q=100;w=60"#),
            ("ratelimit", r#""per-user";r=7;t=36"#),
        ]);
        let expected = "limit     counts    quota  window  left  reset\n\
                        per-user  requests  100    60 s    7     36 s\n";
        assert_eq!(limits(&info), expected);
        assert_eq!(limits(&read(&[])), "");
    }

    #[test]
    fn a_refusal_says_how_long_the_server_asks_to_wait() {
        let status = StatusCode::TOO_MANY_REQUESTS;
        let text = refusal(status, &read(&[("retry-after", "36")]));
        assert_eq!(
            text,
            "429 Too Many Requests: the server asks to wait 36 s\n"
        );
        assert!(refusal(status, &read(&[])).contains("does not say"));
        // Anthropic's status has no name: it was shown as unknown.
        let overloaded = StatusCode::from_u16(529).unwrap();
        assert!(refusal(overloaded, &read(&[])).starts_with("529: the server"));
        let github = [("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "36")];
        let text = refusal(StatusCode::FORBIDDEN, &read(&github));
        assert_eq!(text, "403 Forbidden: the limit resets in 36 s\n");
    }

    #[test]
    fn no_control_character_of_a_server_reaches_the_terminal() {
        assert_eq!(printable("a\u{1b}[2Jb\u{9b}c"), "a\u{fffd}[2Jb\u{fffd}c");
    }
}
