//! Writes a response as HTTP/1.1 bytes, exactly as hyper does.
//!
//! Must not know: endpoints.

use std::cell::Cell;
use std::time::Duration;

use hyper::StatusCode;
use tokio::time::Instant;

use crate::http::response::HttpResponse;

/// The length of an HTTP date.
const DATE_LEN: usize = 29;

/// Appends a response, head and body.
pub(crate) fn write_response(reply: &HttpResponse, now: Instant, out: &mut Vec<u8>) {
    let (status, body) = (reply.status(), reply.body());
    if status == StatusCode::OK {
        out.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
    } else {
        out.extend_from_slice(b"HTTP/1.1 ");
        out.extend_from_slice(status.as_str().as_bytes());
        out.push(b' ');
        let reason = status.canonical_reason().unwrap_or("<none>");
        out.extend_from_slice(reason.as_bytes());
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(reply.fields().as_bytes());
    // A 204 must not have a `Content-Length`.
    if status != StatusCode::NO_CONTENT {
        out.extend_from_slice(b"content-length: ");
        write_number(u64::try_from(body.len()).unwrap_or(u64::MAX), out);
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(b"date: ");
    write_date(now, out);
    out.extend_from_slice(b"\r\n\r\n");
    out.extend_from_slice(body);
}

/// Appends the current date.
pub(crate) fn write_date(now: Instant, out: &mut Vec<u8>) {
    out.extend_from_slice(&cached_date(now));
}

/// Appends a number in decimal.
pub(crate) fn write_number(mut number: u64, out: &mut Vec<u8>) {
    let mut digits = [0; 20];
    let mut from = digits.len();
    loop {
        from = from.saturating_sub(1);
        if let Some(place) = digits.get_mut(from) {
            // A remainder of ten is a digit.
            *place = b'0'.wrapping_add(u8::try_from(number % 10).unwrap_or(0));
        }
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(digits.get(from..).unwrap_or_default());
}

/// The current date. Each thread formats it once a second.
fn cached_date(now: Instant) -> [u8; DATE_LEN] {
    thread_local! {
        static LAST: Cell<Option<(Instant, [u8; DATE_LEN])>> = const { Cell::new(None) };
    }
    match LAST.get() {
        Some((until, date)) if now < until => date,
        _ => {
            let (date, ends_in) = current_date();
            LAST.set(Some((now + ends_in, date)));
            date
        }
    }
}

#[expect(
    clippy::disallowed_types,
    reason = "the Date header uses the system time; no decision depends on it"
)]
fn current_date() -> ([u8; DATE_LEN], Duration) {
    let now = std::time::SystemTime::now();
    let since = now.duration_since(std::time::SystemTime::UNIX_EPOCH);
    let subsec_nanos = since.map_or(0, |since| since.subsec_nanos());
    let mut date = [b' '; DATE_LEN];
    let text = httpdate::fmt_http_date(now);
    for (place, byte) in date.iter_mut().zip(text.bytes()) {
        *place = byte;
    }
    let ends_in = Duration::from_nanos(u64::from(1_000_000_000_u32.saturating_sub(subsec_nanos)));
    (date, ends_in)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_written_as_hyper_writes_it() {
        for (reply, status) in [
            (
                HttpResponse::problem_body(429, "{}"),
                "429 Too Many Requests",
            ),
            (HttpResponse::json("{}"), "200 OK"),
        ] {
            let reply = reply.with_header("x-a", "1");
            let mut out = Vec::new();
            write_response(&reply, Instant::now(), &mut out);
            let text = String::from_utf8(out).unwrap();
            let (text, rest) = text.split_once("date: ").unwrap();
            let (line, fields) = text.split_once("\r\n").unwrap();
            assert_eq!(line, format!("HTTP/1.1 {status}"));
            assert!(fields.starts_with("content-type: application/"), "{fields}");
            let rest_of_fields = "cache-control: no-store\r\nx-a: 1\r\ncontent-length: 2\r\n";
            assert!(fields.ends_with(rest_of_fields), "{fields}");
            let (date, body) = rest.split_once("\r\n\r\n").unwrap();
            assert!(httpdate::parse_http_date(date).is_ok(), "{date}");
            assert_eq!(body, "{}");
        }
    }

    #[test]
    fn no_content_has_no_length() {
        let mut out = Vec::new();
        let reply = HttpResponse::empty(StatusCode::NO_CONTENT);
        write_response(&reply, Instant::now(), &mut out);
        let text = String::from_utf8(out).unwrap();
        assert!(text.starts_with("HTTP/1.1 204 No Content\r\ncache-control: no-store\r\ndate: "));
    }

    #[test]
    fn numbers_are_written_as_the_standard_library_writes_them() {
        for number in [0, 9, 10, 4_096, u64::MAX] {
            let mut out = Vec::new();
            write_number(number, &mut out);
            assert_eq!(out, number.to_string().as_bytes());
        }
    }

    #[test]
    fn a_date_is_written_anew_when_its_second_is_over() {
        let (date, ends_in) = current_date();
        assert_eq!(date.len(), DATE_LEN);
        assert!(ends_in <= Duration::from_secs(1));
    }
}
