//! The fields in which proxies tell whom they serve, cut into hops from the right.
//!
//! From the right, because only the right end is written by proxies that are trusted. What stands further left may be an
//! attacker's, and must not change how the right end is read: a quote that is opened there and never closed would
//! swallow everything behind it if the text were read from the left.
//!
//! Must not know: whom to trust.

use std::net::IpAddr;

use super::node_identifier::parse_address;

/// The longest hop that is looked at. `Forwarded` also tells hosts and protocols.
const MAX_LEN: usize = 512;

/// The last hop of an `X-Forwarded-For` line and what is before its comma, if there is one.
pub(super) fn split_last_x_forwarded_for(line: &[u8]) -> (Option<&[u8]>, Option<IpAddr>) {
    let tail = tail(line);
    match tail.iter().rposition(|byte| *byte == b',') {
        Some(comma) => {
            let (before, hop) = split_at_comma(line, tail, comma);
            (Some(before), parse_address(hop))
        }
        // Too long to be a hop, whatever it is.
        None if tail.len() < line.len() => (None, None),
        None => (None, parse_address(line)),
    }
}

/// The last hop of a `Forwarded` line and what is before its comma, if there is one.
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
    // Too long to be a hop. A quote that is left open is refused where the hop is read.
    if tail.len() < line.len() {
        return (None, None);
    }
    (None, parse_for_parameter(line))
}

/// The last part of a line, as much of it as one hop can have.
fn tail(line: &[u8]) -> &[u8] {
    let start = line.len().saturating_sub(MAX_LEN);
    line.get(start..).unwrap_or_default()
}

/// What is before and behind the comma at this place of the tail.
fn split_at_comma<'a>(line: &'a [u8], tail: &'a [u8], comma: usize) -> (&'a [u8], &'a [u8]) {
    let start = line.len().saturating_sub(tail.len());
    let before = line.get(..start.saturating_add(comma)).unwrap_or_default();
    let hop = tail.get(comma.saturating_add(1)..).unwrap_or_default();
    (before, hop)
}

/// Whether an odd number of backslashes is before this place.
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
            // Two of them would let a proxy and us believe different ones.
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

/// A value without its quotes, and what is behind it. Nothing in an address needs a backslash, so none is resolved.
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
