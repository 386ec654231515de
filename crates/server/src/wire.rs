//! A response as the bytes of HTTP/1.1, as hyper would write them.
//!
//! Must not know: what is answered.

use std::cell::Cell;
use std::time::Duration;

use hyper::http::response::Parts;
use tokio::time::Instant;

/// A date as HTTP writes it has always so many bytes.
const DATE_LEN: usize = 29;

/// Appends the head of a response with a body of so many bytes.
pub(crate) fn write_head(head: &Parts, body_len: usize, now: Instant, out: &mut Vec<u8>) {
    out.extend_from_slice(b"HTTP/1.1 ");
    out.extend_from_slice(head.status.as_str().as_bytes());
    out.push(b' ');
    let reason = head.status.canonical_reason().unwrap_or("<none>");
    out.extend_from_slice(reason.as_bytes());
    out.extend_from_slice(b"\r\n");
    for (name, value) in &head.headers {
        out.extend_from_slice(name.as_str().as_bytes());
        out.extend_from_slice(b": ");
        out.extend_from_slice(value.as_bytes());
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(b"content-length: ");
    write_number(body_len, out);
    out.extend_from_slice(b"\r\ndate: ");
    out.extend_from_slice(&date(now));
    out.extend_from_slice(b"\r\n\r\n");
}

fn write_number(mut number: usize, out: &mut Vec<u8>) {
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

/// The date, which every thread writes once a second.
fn date(now: Instant) -> [u8; DATE_LEN] {
    thread_local! {
        static LAST: Cell<Option<(Instant, [u8; DATE_LEN])>> = const { Cell::new(None) };
    }
    match LAST.get() {
        Some((until, date)) if now < until => date,
        _ => {
            let (date, ends_in) = read_date();
            LAST.set(Some((now + ends_in, date)));
            date
        }
    }
}

#[expect(
    clippy::disallowed_types,
    reason = "a date is the machine's, whatever clock decides; nothing is decided by it"
)]
fn read_date() -> ([u8; DATE_LEN], Duration) {
    let now = std::time::SystemTime::now();
    let since = now.duration_since(std::time::SystemTime::UNIX_EPOCH);
    let begun = since.map_or(0, |since| since.subsec_nanos());
    let mut date = [b' '; DATE_LEN];
    let text = httpdate::fmt_http_date(now);
    for (place, byte) in date.iter_mut().zip(text.bytes()) {
        *place = byte;
    }
    let ends_in = Duration::from_nanos(u64::from(1_000_000_000_u32.saturating_sub(begun)));
    (date, ends_in)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::Response;

    #[tokio::test]
    async fn a_head_is_written_as_hyper_writes_it() {
        let response = Response::builder()
            .status(429)
            .header("content-type", "a/b")
            .header("x-list", "1")
            .header("x-list", "2")
            .body(())
            .unwrap();
        let mut out = Vec::new();
        write_head(&response.into_parts().0, 1_234, Instant::now(), &mut out);
        let text = String::from_utf8(out).unwrap();
        let (text, date) = text.split_once("date: ").unwrap();
        assert_eq!(
            text,
            "HTTP/1.1 429 Too Many Requests\r\ncontent-type: a/b\r\nx-list: 1\r\nx-list: 2\r\ncontent-length: 1234\r\n"
        );
        let date = date.strip_suffix("\r\n\r\n").unwrap();
        assert!(httpdate::parse_http_date(date).is_ok(), "{date}");
    }

    #[test]
    fn numbers_are_written_as_the_standard_library_writes_them() {
        for number in [0, 9, 10, 4_096, usize::MAX] {
            let mut out = Vec::new();
            write_number(number, &mut out);
            assert_eq!(out, number.to_string().as_bytes());
        }
    }

    #[test]
    fn a_date_is_written_anew_when_its_second_is_over() {
        let (date, ends_in) = read_date();
        assert_eq!(date.len(), DATE_LEN);
        assert!(ends_in <= Duration::from_secs(1));
    }
}
