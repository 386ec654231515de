//! Splits `X-Forwarded-For` and `Forwarded` into hops, from the right.
//!
//! Only the right end is written by trusted proxies. The left end may be forged and must not change how the right end is
//! parsed: read from the left, an opening quote that is never closed would swallow every hop after it.
//!
//! Must not know: which proxies are trusted.

use std::net::IpAddr;

use super::node_identifier::parse_address;

/// The longest hop in bytes. A hop of `Forwarded` also has a host and a protocol.
const MAX_LEN: usize = 512;

/// The address of the last hop of an `X-Forwarded-For` line, and the text before its comma, if there is one.
pub(super) fn split_last_x_forwarded_for(line: &[u8]) -> (Option<&[u8]>, Option<IpAddr>) {
    let tail = tail(line);
    match tail.iter().rposition(|byte| *byte == b',') {
        Some(comma) => {
            let (before, hop) = split_at_comma(line, tail, comma);
            (Some(before), parse_address(hop))
        }
        // No comma within the longest hop.
        None if tail.len() < line.len() => (None, None),
        None => (None, parse_address(line)),
    }
}

/// The address of the last hop of a `Forwarded` line, and the text before its comma, if there is one.
pub(super) fn split_last_forwarded(line: &[u8]) -> (Option<&[u8]>, Option<IpAddr>) {
    let tail = tail(line);
    let mut in_quotes = false;
    for (index, byte) in tail.iter().enumerate().rev() {
        match byte {
            b'"' if !in_quotes => in_quotes = true,
            b'"' => in_quotes = is_escaped(tail, index),
            b',' if !in_quotes => {
                let (before, hop) = split_at_comma(line, tail, index);
                return (Some(before), parse_for_parameter(hop));
            }
            _ => {}
        }
    }
    // No comma within the longest hop. `parse_for_parameter` refuses a quote that is not closed.
    if tail.len() < line.len() {
        return (None, None);
    }
    (None, parse_for_parameter(line))
}

/// The end of a line: at most [`MAX_LEN`] bytes.
fn tail(line: &[u8]) -> &[u8] {
    let start = line.len().saturating_sub(MAX_LEN);
    line.get(start..).unwrap_or_default()
}

/// Splits a line at the comma at this index of its tail.
fn split_at_comma<'a>(line: &'a [u8], tail: &'a [u8], comma: usize) -> (&'a [u8], &'a [u8]) {
    let start = line.len().saturating_sub(tail.len());
    let before = line.get(..start.saturating_add(comma)).unwrap_or_default();
    let hop = tail.get(comma.saturating_add(1)..).unwrap_or_default();
    (before, hop)
}

/// Whether an odd number of backslashes precedes this index.
fn is_escaped(text: &[u8], index: usize) -> bool {
    let before = text.get(..index).unwrap_or_default();
    let backslashes = before.iter().rev().take_while(|byte| **byte == b'\\');
    backslashes.count() % 2 == 1
}

/// The address in the one `for` of a hop: `for=192.0.2.43;proto=http`, `for="[2001:db8::17]:4711"`.
fn parse_for_parameter(hop: &[u8]) -> Option<IpAddr> {
    let mut found = None;
    let mut rest = hop.trim_ascii();
    while !rest.is_empty() {
        if let Some(next) = rest.strip_prefix(b";") {
            rest = next.trim_ascii_start();
            continue;
        }
        let equals = rest.iter().position(|byte| *byte == b'=')?;
        let (name, value) = (rest.get(..equals)?, rest.get(equals.saturating_add(1)..)?);
        let (value, after) = split_value(value)?;
        if name.eq_ignore_ascii_case(b"for") {
            // With two of them, a proxy and this server could read different addresses.
            if found.is_some() {
                return None;
            }
            found = Some(parse_address(value)?);
        }
        rest = after.trim_ascii_start();
        if !rest.is_empty() && !rest.starts_with(b";") {
            return None;
        }
    }
    found
}

/// A value without its quotes, and the text after it. No address needs a backslash, so escapes are not resolved.
fn split_value(text: &[u8]) -> Option<(&[u8], &[u8])> {
    if let Some(quoted) = text.strip_prefix(b"\"") {
        let closing = |(index, byte): (usize, &u8)| *byte == b'"' && !is_escaped(quoted, index);
        let end = quoted.iter().enumerate().position(closing)?;
        return Some((quoted.get(..end)?, quoted.get(end.saturating_add(1)..)?));
    }
    let is_end = |byte: &u8| *byte == b';' || *byte == b'"' || byte.is_ascii_whitespace();
    let end = text.iter().position(is_end).unwrap_or(text.len());
    text.split_at_checked(end)
}
