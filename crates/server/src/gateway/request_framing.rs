//! Follows the framing of HTTP/1.1 requests in a stream of bytes and refuses ambiguous ones: two lengths, a length beside a
//! coding, a coding other than `chunked`, and lines that end without CR.
//!
//! hyper repairs such requests, and two servers may repair them differently. This file only looks for the ends of lines, so
//! that plain requests cost one scan; hyper checks everything else. Must not know: streams, what a request asks for.

use memchr::memchr;

/// The longest line of the two fields, and the most bytes that are kept of a line that arrives in pieces.
const MAX_LINE_LEN: usize = 64;

const CONTENT_LENGTH: &[u8] = b"content-length";
const TRANSFER_ENCODING: &[u8] = b"transfer-encoding";

/// Where in a request the next byte is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RequestPart {
    /// Before the first line of a head that is not empty.
    Start,
    /// In the head.
    Fields,
    /// In a body with this many bytes left.
    Body(u64),
    /// In the line before a chunk.
    ChunkSize,
    /// In a chunk with this many bytes left.
    Chunk(u64),
    /// In the line end behind a chunk.
    ChunkEnd,
    Trailers,
    /// Everything is refused from here on.
    Refused,
}

/// Follows the requests of one connection.
#[derive(Debug)]
pub(super) struct RequestFraming {
    part: RequestPart,
    length: Option<u64>,
    is_chunked: bool,
    /// The start of a line whose end has not arrived.
    line: [u8; MAX_LINE_LEN],
    /// The length of the whole line so far.
    line_len: usize,
    /// The last byte of the line so far.
    last: u8,
}

/// A line without its LF.
#[derive(Clone, Copy)]
struct Line<'a> {
    /// The line with its CR, or the start of it.
    start: &'a [u8],
    len: usize,
    last: u8,
}

/// The request is ambiguous.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ambiguous;

impl RequestFraming {
    pub(super) const fn new() -> Self {
        Self {
            part: RequestPart::Start,
            length: None,
            is_chunked: false,
            line: [0; MAX_LINE_LEN],
            line_len: 0,
            last: 0,
        }
    }

    /// Whether a request was refused.
    pub(super) const fn is_refused(&self) -> bool {
        matches!(self.part, RequestPart::Refused)
    }

    /// Looks at the next bytes. Returns the position of the line end at which a request is refused.
    pub(super) fn scan(&mut self, bytes: &[u8]) -> Option<usize> {
        let mut position = 0;
        while let Some(rest @ [_, ..]) = bytes.get(position..) {
            match self.part {
                RequestPart::Refused => return Some(position),
                RequestPart::Body(left) | RequestPart::Chunk(left) => {
                    let skipped = usize::try_from(left).map_or(rest.len(), |n| n.min(rest.len()));
                    position = position.saturating_add(skipped);
                    self.skip(left.saturating_sub(skipped as u64));
                }
                _ => {
                    let Some(end) = memchr(b'\n', rest) else {
                        self.keep(rest);
                        return None;
                    };
                    let line = rest.get(..end).unwrap_or_default();
                    if self.end_line(line).is_err() {
                        self.part = RequestPart::Refused;
                        return Some(position.saturating_add(end));
                    }
                    position = position.saturating_add(end).saturating_add(1);
                }
            }
        }
        None
    }

    /// Sets how much is left of the body or the chunk.
    const fn skip(&mut self, left: u64) {
        self.part = match (self.part, left) {
            (RequestPart::Chunk(_), 0) => RequestPart::ChunkEnd,
            (RequestPart::Chunk(_), left) => RequestPart::Chunk(left),
            (_, 0) => RequestPart::Start,
            (_, left) => RequestPart::Body(left),
        };
    }

    /// Keeps the start of a line whose end has not arrived.
    fn keep(&mut self, piece: &[u8]) {
        if let Some(free) = self.line.get_mut(self.line_len.min(MAX_LINE_LEN)..) {
            let len = free.len().min(piece.len());
            if let (Some(free), Some(kept)) = (free.get_mut(..len), piece.get(..len)) {
                free.copy_from_slice(kept);
            }
        }
        self.line_len = self.line_len.saturating_add(piece.len());
        self.last = piece.last().copied().unwrap_or(self.last);
    }

    fn end_line(&mut self, piece: &[u8]) -> Result<(), Ambiguous> {
        if self.line_len == 0 {
            return self.read_line(Line {
                start: piece,
                len: piece.len(),
                last: piece.last().copied().unwrap_or(0),
            });
        }
        self.keep(piece);
        let (kept, len, last) = (self.line, self.line_len, self.last);
        self.line_len = 0;
        self.read_line(Line {
            start: kept.get(..len.min(MAX_LINE_LEN)).unwrap_or_default(),
            len,
            last,
        })
    }

    fn read_line(&mut self, line: Line<'_>) -> Result<(), Ambiguous> {
        if line.last != b'\r' {
            return Err(Ambiguous);
        }
        let is_empty = line.len == 1;
        match self.part {
            RequestPart::Start if is_empty => {}
            // The line of the method.
            RequestPart::Start => self.part = RequestPart::Fields,
            RequestPart::Fields if is_empty => self.end_head(),
            RequestPart::Fields => return self.read_field(line),
            RequestPart::ChunkSize => {
                self.part = match chunk_size(line.start)? {
                    0 => RequestPart::Trailers,
                    size => RequestPart::Chunk(size),
                };
            }
            RequestPart::ChunkEnd if is_empty => self.part = RequestPart::ChunkSize,
            RequestPart::Trailers if is_empty => self.part = RequestPart::Start,
            RequestPart::Trailers => {}
            RequestPart::ChunkEnd
            | RequestPart::Body(_)
            | RequestPart::Chunk(_)
            | RequestPart::Refused => return Err(Ambiguous),
        }
        Ok(())
    }

    const fn end_head(&mut self) {
        self.part = match (self.is_chunked, self.length) {
            (true, _) => RequestPart::ChunkSize,
            (false, None | Some(0)) => RequestPart::Start,
            (false, Some(length)) => RequestPart::Body(length),
        };
        (self.is_chunked, self.length) = (false, None);
    }

    fn read_field(&mut self, line: Line<'_>) -> Result<(), Ambiguous> {
        if let Some(value) = line.value_of(CONTENT_LENGTH)? {
            if self.is_chunked || self.length.is_some() {
                return Err(Ambiguous);
            }
            self.length = Some(digits(value)?);
        } else if let Some(value) = line.value_of(TRANSFER_ENCODING)? {
            let is_ambiguous = self.is_chunked || self.length.is_some();
            if is_ambiguous || !value.eq_ignore_ascii_case(b"chunked") {
                return Err(Ambiguous);
            }
            self.is_chunked = true;
        }
        Ok(())
    }
}

impl<'a> Line<'a> {
    /// The value of a field with this name.
    fn value_of(self, name: &[u8]) -> Result<Option<&'a [u8]>, Ambiguous> {
        let Some((start, rest)) = self.start.split_at_checked(name.len()) else {
            return Ok(None);
        };
        let ([b':', value @ ..], true) = (rest, start.eq_ignore_ascii_case(name)) else {
            return Ok(None);
        };
        if self.len > MAX_LINE_LEN {
            return Err(Ambiguous);
        }
        let is_space = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\r');
        let begin = value.iter().position(|byte| !is_space(byte));
        let end = value.iter().rposition(|byte| !is_space(byte));
        Ok(Some(match (begin, end) {
            (Some(begin), Some(end)) => value.get(begin..=end).unwrap_or_default(),
            _ => &[],
        }))
    }
}

fn digits(value: &[u8]) -> Result<u64, Ambiguous> {
    if value.is_empty() {
        return Err(Ambiguous);
    }
    let add = |sum: u64, byte: &u8| {
        let digit = byte.checked_sub(b'0').filter(|digit| *digit < 10);
        let digit = u64::from(digit?);
        sum.checked_mul(10)?.checked_add(digit)
    };
    value.iter().try_fold(0, add).ok_or(Ambiguous)
}

/// The size of a chunk. hyper checks what follows the digits.
fn chunk_size(line: &[u8]) -> Result<u64, Ambiguous> {
    let hex = |byte: &u8| char::from(*byte).to_digit(16);
    let digits = line.iter().map_while(hex);
    if digits.clone().next().is_none() {
        return Err(Ambiguous);
    }
    let mut digits = digits;
    digits
        .try_fold(0_u64, |sum, digit| {
            sum.checked_mul(16)?.checked_add(u64::from(digit))
        })
        .ok_or(Ambiguous)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where the bytes are refused, in pieces of every length.
    fn refused_at(text: &str) -> Option<usize> {
        let whole = RequestFraming::new().scan(text.as_bytes());
        for len in 1..text.len() {
            let (mut framing, mut position) = (RequestFraming::new(), 0);
            let mut found = None;
            for piece in text.as_bytes().chunks(len) {
                found = framing.scan(piece).map(|at| position + at);
                if found.is_some() {
                    break;
                }
                position += piece.len();
            }
            assert_eq!(found, whole, "{text:?} in pieces of {len}");
        }
        whole
    }

    const HEAD: &str = "POST / HTTP/1.1\r\nHost: a\r\n";

    #[test]
    fn plain_requests_pass_also_one_behind_another() {
        for body in [
            "\r\n",
            "Content-Length: 0\r\n\r\n",
            "content-length:5 \r\n\r\na\nb\nc",
            "Content-Length: 10\r\n\r\n\r\n\r\n\n\n\n\n\r\n",
            "Transfer-Encoding: chunked\r\n\r\n5\r\na\nb\nc\r\n0\r\n\r\n",
            "transfer-encoding:\tChunked\r\n\r\nA;x=y\r\n\n\n\n\n\n\n\n\n\n\n\r\n000\r\nX-Sum: 1\r\n\r\n",
            "Content-Length-X: 1\r\nContent-Length: 1\r\n\r\nx",
        ] {
            let one = format!("{HEAD}{body}");
            assert_eq!(refused_at(&one), None);
            assert_eq!(refused_at(&format!("\r\n{one}\r\n\r\n{one}{one}")), None);
        }
        let long = "x".repeat(500);
        assert_eq!(refused_at(&format!("{HEAD}X: {long}\r\n\r\n")), None);
    }

    #[test]
    fn ambiguous_requests_are_refused_at_the_line_that_makes_them_so() {
        let long = " ".repeat(MAX_LINE_LEN);
        for (fields, line) in [
            ("Content-Length: 4\r\nContent-Length: 4\r\n\r\n", 3),
            ("Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n", 3),
            ("Transfer-Encoding: chunked\r\nCONTENT-LENGTH: 4\r\n\r\n", 3),
            (
                "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
                3,
            ),
            ("Transfer-Encoding: gzip, chunked\r\n\r\n", 2),
            ("Transfer-Encoding: identity\r\n\r\n", 2),
            ("Transfer-Encoding:\r\n\r\n", 2),
            ("Content-Length: 4,4\r\n\r\n", 2),
            ("Content-Length: +4\r\n\r\n", 2),
            ("Content-Length:\r\n\r\n", 2),
            ("Content-Length: 18446744073709551616\r\n\r\n", 2),
            ("X: y\n\r\n", 2),
            ("\n", 2),
            ("Transfer-Encoding: chunked\r\n\r\nx\r\n", 4),
            ("Transfer-Encoding: chunked\r\n\r\n1\r\nab\r\n", 5),
            ("Transfer-Encoding: chunked\r\n\r\n0\r\nX: y\n", 5),
            ("Transfer-Encoding: chunked\r\n\r\n10000000000000000\r\n", 4),
        ] {
            let text = format!("{HEAD}{fields}");
            let ends: Vec<_> = text.match_indices('\n').map(|(at, _)| at).collect();
            assert_eq!(refused_at(&text), Some(ends[line]), "{fields:?}");
        }
        // Padding cannot hide a field.
        let padded = format!("{HEAD}Content-Length:{long}4\r\n\r\n");
        assert_eq!(refused_at(&padded), Some(padded.len() - 3));
    }
}
