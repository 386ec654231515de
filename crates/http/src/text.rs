//! Appends numbers and bytes to a buffer as text.
//!
//! By hand, because `fmt` takes several times the instructions of the digits themselves, and a response consists mostly of
//! numbers. Must not know: what the numbers mean.

use tollgate_core::Nanos;

use crate::digits::{EIGHT_DIGITS, eight_digits, padded_digits};

/// The largest Integer of RFC 9651: fifteen digits.
pub(crate) const MAX_INTEGER: u64 = 999_999_999_999_999;

const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Appends a number in decimal, at most [`MAX_INTEGER`]. Other fields have the same bound: a smaller remaining quota is
/// always safe, and some clients parse numbers as floats.
#[inline]
pub(crate) fn push_integer(out: &mut Vec<u8>, number: u64) {
    push_digits(out, rendered_integer(number));
}

/// The number as it is sent.
#[inline]
pub(crate) fn rendered_integer(number: u64) -> u64 {
    number.min(MAX_INTEGER)
}

/// Appends milliseconds as seconds with three decimals.
pub(crate) fn push_millis_as_seconds(out: &mut Vec<u8>, millis: u64) {
    push_digits(out, millis / 1_000);
    out.push(b'.');
    let rest = millis % 1_000;
    for digit in [rest / 100, rest / 10 % 10, rest % 10] {
        out.push(ascii_digit(digit));
    }
}

/// Standard base64 of twelve bytes, which needs no padding.
pub(crate) fn base64(bytes: &[u8; 12]) -> [u8; 16] {
    let mut text = [b'A'; 16];
    let (triples, _) = bytes.as_chunks::<3>();
    let (quads, _) = text.as_chunks_mut::<4>();
    for ([first, second, third], quad) in triples.iter().zip(quads) {
        let word = u32::from_be_bytes([0, *first, *second, *third]);
        for (slot, shift) in quad.iter_mut().zip([18, 12, 6, 0]) {
            let index = usize::try_from((word >> shift) & 63).unwrap_or(0);
            *slot = BASE64.get(index).copied().unwrap_or(b'A');
        }
    }
    text
}

/// A span as whole seconds, rounded up, so that clients never retry too early. The longest span has eleven digits.
pub(crate) const fn seconds(span: Nanos) -> u64 {
    span.as_secs_ceil()
}

/// Appends the digits of a number.
#[inline]
fn push_digits(out: &mut Vec<u8>, number: u64) {
    match number {
        0..10 => out.push(ascii_digit(number)),
        _ => push_many_digits(out, number),
    }
}

/// Eight digits at a time. A constant length is one or two instructions, so eight bytes are written even if fewer count.
#[inline(never)]
fn push_many_digits(out: &mut Vec<u8>, number: u64) {
    // The first eight digits or fewer, and the eight after them.
    let (first, rest) = match number {
        0..EIGHT_DIGITS => (number, None),
        _ => (number / EIGHT_DIGITS, Some(number % EIGHT_DIGITS)),
    };
    if first >= EIGHT_DIGITS {
        // Only numbers with more than sixteen digits.
        push_many_digits(out, first);
    } else {
        let (digits, count) = eight_digits(first);
        let end = out.len().saturating_add(count);
        out.extend_from_slice(&digits);
        out.truncate(end);
    }
    if let Some(rest) = rest {
        out.extend_from_slice(&padded_digits(rest));
    }
}

const fn ascii_digit(digit: u64) -> u8 {
    let [low, ..] = digit.to_le_bytes();
    b'0'.wrapping_add(low)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(push: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        push(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn numbers_are_written_as_the_standard_library_writes_them() {
        let mut number = 1_u64;
        for _ in 0..200 {
            number = number.wrapping_mul(6_364_136_223_846_793_005) ^ (number >> 13);
            for shifted in [number, number >> 20, number >> 40, number >> 60] {
                assert_eq!(text(|out| push_digits(out, shifted)), shifted.to_string());
            }
        }
        for number in [0, 1, 9, 10, 99, 100, 101, 999, 1_000, MAX_INTEGER, u64::MAX] {
            assert_eq!(text(|out| push_digits(out, number)), number.to_string());
        }
        assert_eq!(text(|out| push_integer(out, u64::MAX)), "999999999999999");
    }

    #[test]
    fn seconds_keep_their_three_decimals() {
        for (millis, expected) in [
            (0, "0.000"),
            (7, "0.007"),
            (1_470, "1.470"),
            (64_570, "64.570"),
        ] {
            assert_eq!(text(|out| push_millis_as_seconds(out, millis)), expected);
        }
    }

    #[test]
    fn base64_is_the_standard_one() {
        assert_eq!(&base64(b"Many hands m"), b"TWFueSBoYW5kcyBt");
        assert_eq!(&base64(&[255; 12]), b"////////////////");
        assert_eq!(
            &base64(&[0xfb, 0xef, 0xbe, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
            b"++++AAAAAAAAAAAA"
        );
    }
}
