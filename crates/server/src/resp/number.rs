//! Parses and writes decimal numbers without allocating.
//!
//! Must not know: what the numbers mean.

use tollgate_http::{EIGHT_DIGITS, eight_digits, padded_digits};

/// Parses an integer with an optional sign, as `str::parse` does.
pub(super) fn parse_integer(text: &[u8]) -> Option<i64> {
    // Up to 18 digits cannot overflow. Nearly all numbers are that short.
    if !matches!(text.len(), 1..=18) {
        return parse_integer_slow(text);
    }
    let mut number = 0_i64;
    for byte in text {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return parse_integer_slow(text);
        }
        number = number.wrapping_mul(10).wrapping_add(i64::from(digit));
    }
    Some(number)
}

#[cold]
fn parse_integer_slow(text: &[u8]) -> Option<i64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// A few short lines, assembled before they are appended: appending byte by byte costs more than the decision.
#[derive(Debug)]
pub(super) struct LineBuffer<const LEN: usize> {
    bytes: [u8; LEN],
    len: usize,
}

/// The buffer capacity: the given count of numbers of the greatest length, the bytes of text, and the unused bytes of the last piece.
pub(super) const fn lines_len(numbers: usize, text: usize) -> usize {
    // A type byte, a sign, 19 digits and a line break.
    numbers
        .saturating_mul(23)
        .saturating_add(text)
        .saturating_add(8)
}

impl<const LEN: usize> LineBuffer<LEN> {
    pub(super) const fn new() -> Self {
        Self {
            bytes: [0; LEN],
            len: 0,
        }
    }

    /// Appends text of a constant length. Text beyond the capacity is dropped.
    #[inline]
    pub(super) fn push_text<const N: usize>(&mut self, text: &[u8; N]) {
        self.push(*text, N);
    }

    /// Appends a line with a type byte and a number. Lines beyond the capacity are dropped; see [`lines_len`].
    pub(super) fn push_number(&mut self, type_byte: u8, number: i64) {
        if let Ok(digit @ 0..=9) = u8::try_from(number) {
            return self.push([type_byte, digit.wrapping_add(b'0'), b'\r', b'\n'], 4);
        }
        self.push([type_byte], 1);
        if number < 0 {
            self.push([b'-'], 1);
        }
        self.push_digits(number.unsigned_abs());
        self.push(*b"\r\n", 2);
    }

    /// Eight digits at a time, the first ones without leading zeros.
    fn push_digits(&mut self, number: u64) {
        if number < EIGHT_DIGITS {
            let (digits, count) = eight_digits(number);
            return self.push(digits, count);
        }
        self.push_digits(number / EIGHT_DIGITS);
        self.push(padded_digits(number % EIGHT_DIGITS), 8);
    }

    /// Appends the first `count` bytes of a piece. The constant length makes it a single store.
    fn push<const N: usize>(&mut self, piece: [u8; N], count: usize) {
        let free = self.bytes.get_mut(self.len..).unwrap_or_default();
        if let Some(place) = free.first_chunk_mut() {
            *place = piece;
            self.len = self.len.wrapping_add(count);
        }
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_the_standard_library_reads_them() {
        let texts = [
            "0",
            "7",
            "42",
            "-1",
            "+5",
            "007",
            "999999999999999999",
            "1000000000000000000",
            "9223372036854775807",
            "-9223372036854775808",
            "9223372036854775808",
            "",
            "-",
            "+",
            "1.5",
            " 1",
            "1 ",
            "0x1",
            "१",
        ];
        for text in texts {
            assert_eq!(
                parse_integer(text.as_bytes()),
                text.parse().ok(),
                "{text:?}"
            );
        }
        assert_eq!(parse_integer(b"\xff"), None);
    }

    #[test]
    fn numbers_are_written_as_the_standard_library_writes_them() {
        for number in [
            0,
            9,
            10,
            -1,
            -9,
            -10,
            99,
            100,
            101,
            1_000,
            10_000,
            10_010,
            99_999,
            1_234_567,
            10_000_000,
            99_999_999,
            100_000_000,
            1_234_567_890,
            1_000_000_000_000_000,
            10_000_000_000_000_000,
            10_000_000_100_000_001,
            -10_000_000_000_000_000,
            i64::MAX,
            i64::MIN,
        ] {
            let mut lines = LineBuffer::<{ lines_len(1, 0) }>::new();
            lines.push_number(b':', number);
            assert_eq!(lines.as_bytes(), format!(":{number}\r\n").as_bytes());
        }
        let mut lines = LineBuffer::<{ lines_len(5, 4) }>::new();
        lines.push_text(b"abc\n");
        (0..5).for_each(|_| lines.push_number(b':', i64::MIN));
        assert_eq!(lines.as_bytes().len(), 4 + 5 * 23, "all have room");
        lines.push_number(b':', i64::MIN);
        assert!(lines.as_bytes().len() <= lines_len(5, 4), "and no more");
    }
}
