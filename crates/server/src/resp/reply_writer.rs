//! Writes replies in both protocol versions. RESP2 has no maps and nulls, so it gets a flat array and a null bulk string.
//!
//! Must not know: what replies mean.

use std::fmt::{self, Write as _};

use super::number::{LineBuffer, lines_len};

/// The most bytes of a client's argument that an error repeats.
const MAX_ECHO_LEN: usize = 64;

/// Writes one reply.
#[derive(Debug)]
pub(crate) struct ReplyWriter<'a> {
    out: &'a mut Vec<u8>,
    is_resp3: bool,
}

impl<'a> ReplyWriter<'a> {
    pub(crate) const fn new(out: &'a mut Vec<u8>, is_resp3: bool) -> Self {
        Self { out, is_resp3 }
    }

    /// Whether replies are in the newer version of the protocol.
    pub(super) const fn is_resp3(&self) -> bool {
        self.is_resp3
    }

    pub(crate) fn ok(&mut self) {
        self.simple("OK");
    }

    /// A simple string. It must not contain a line break.
    pub(crate) fn simple(&mut self, text: &str) {
        self.out.push(b'+');
        self.out.extend_from_slice(text.as_bytes());
        self.write_crlf();
    }

    /// An error. Its first word is the error code. Line breaks become spaces.
    pub(crate) fn error(&mut self, text: fmt::Arguments<'_>) {
        self.out.push(b'-');
        // Writing into memory cannot fail.
        let _cannot_fail = SingleLineWriter(self.out).write_fmt(text).is_ok();
        self.write_crlf();
    }

    pub(crate) fn integer(&mut self, number: i64) {
        self.number(b':', number);
    }

    /// An integer, capped at the largest signed one.
    pub(crate) fn unsigned(&mut self, number: u64) {
        self.integer(i64::try_from(number).unwrap_or(i64::MAX));
    }

    pub(crate) fn bulk(&mut self, bytes: &[u8]) {
        self.write_length(b'$', bytes.len());
        self.out.extend_from_slice(bytes);
        self.write_crlf();
    }

    /// A verbatim string in RESP3, a bulk string in RESP2.
    pub(crate) fn verbatim(&mut self, text: &str) {
        if !self.is_resp3 {
            return self.bulk(text.as_bytes());
        }
        self.write_length(b'=', text.len().saturating_add(4));
        self.out.extend_from_slice(b"txt:");
        self.out.extend_from_slice(text.as_bytes());
        self.write_crlf();
    }

    pub(crate) fn null(&mut self) {
        let null: &[u8] = if self.is_resp3 { b"_" } else { b"$-1" };
        self.out.extend_from_slice(null);
        self.write_crlf();
    }

    /// Starts an array of `len` replies.
    pub(crate) fn array(&mut self, len: usize) {
        self.write_length(b'*', len);
    }

    /// Starts a set of `len` replies.
    pub(crate) fn set(&mut self, len: usize) {
        self.write_length(if self.is_resp3 { b'~' } else { b'*' }, len);
    }

    /// Starts a map of `len` pairs of replies.
    pub(crate) fn map(&mut self, len: usize) {
        if self.is_resp3 {
            self.write_length(b'%', len);
        } else {
            self.write_length(b'*', len.saturating_mul(2));
        }
    }

    /// The five numbers of a throttle command.
    #[inline]
    pub(crate) fn throttle_numbers(&mut self, numbers: [i64; 5]) {
        let mut lines = LineBuffer::<{ lines_len(5, 4) }>::new();
        lines.push_text(b"*5\r\n");
        for number in numbers {
            lines.push_number(b':', number);
        }
        self.lines(&lines);
    }

    /// Replies that are encoded already, the same in both versions of the protocol.
    #[inline]
    pub(super) fn lines<const LEN: usize>(&mut self, lines: &LineBuffer<LEN>) {
        self.out.extend_from_slice(lines.as_bytes());
    }

    fn write_length(&mut self, type_byte: u8, len: usize) {
        self.number(type_byte, i64::try_from(len).unwrap_or(i64::MAX));
    }

    fn number(&mut self, type_byte: u8, number: i64) {
        let mut lines = LineBuffer::<{ lines_len(1, 0) }>::new();
        lines.push_number(type_byte, number);
        self.lines(&lines);
    }

    fn write_crlf(&mut self) {
        self.out.extend_from_slice(b"\r\n");
    }
}

/// A client's input, truncated and printable, for error messages.
pub(crate) struct EchoedInput<'a>(pub(crate) &'a [u8]);

impl fmt::Display for EchoedInput<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for byte in self.0.iter().take(MAX_ECHO_LEN) {
            f.write_char(match byte {
                b' '..=b'~' => char::from(*byte),
                _ => '?',
            })?;
        }
        if self.0.len() > MAX_ECHO_LEN {
            f.write_str("...")?;
        }
        Ok(())
    }
}

/// Replaces line breaks by spaces.
struct SingleLineWriter<'a>(&'a mut Vec<u8>);

impl fmt::Write for SingleLineWriter<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let clean = |byte| match byte {
            b'\r' | b'\n' => b' ',
            other => other,
        };
        self.0.extend(text.bytes().map(clean));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(is_resp3: bool, write: impl Fn(&mut ReplyWriter<'_>)) -> String {
        let mut out = Vec::new();
        write(&mut ReplyWriter::new(&mut out, is_resp3));
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn both_protocol_versions_have_their_own_encoding() {
        type Case = (fn(&mut ReplyWriter<'_>), &'static str, &'static str);
        let cases: [Case; 9] = [
            (|r| r.ok(), "+OK\r\n", "+OK\r\n"),
            (|r| r.integer(-12), ":-12\r\n", ":-12\r\n"),
            (
                |r| r.unsigned(u64::MAX),
                ":9223372036854775807\r\n",
                ":9223372036854775807\r\n",
            ),
            (
                |r| r.bulk(b"a\r\nb"),
                "$4\r\na\r\nb\r\n",
                "$4\r\na\r\nb\r\n",
            ),
            (|r| r.verbatim("hi"), "$2\r\nhi\r\n", "=6\r\ntxt:hi\r\n"),
            (|r| r.null(), "$-1\r\n", "_\r\n"),
            (|r| r.array(2), "*2\r\n", "*2\r\n"),
            (|r| r.set(2), "*2\r\n", "~2\r\n"),
            (|r| r.map(2), "*4\r\n", "%2\r\n"),
        ];
        for (write, two, three) in cases {
            assert_eq!(written(false, write), two);
            assert_eq!(written(true, write), three);
        }
    }

    #[test]
    fn an_error_stays_on_one_line() {
        let bytes: Vec<u8> = (0..=255).collect();
        let text = written(false, |reply| {
            reply.error(format_args!("ERR a\r\n+b '{}'", EchoedInput(&bytes)));
        });
        assert_eq!(text.matches("\r\n").count(), 1, "{text}");
        assert!(
            text.starts_with("-ERR a  +b '????") && text.ends_with("...'\r\n"),
            "{text}"
        );
    }
}
