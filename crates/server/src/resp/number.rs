//! Numbers as text, both ways, without allocating.
//!
//! Must not know: what they count.

/// A whole number with an optional sign, as `str::parse` reads it. Anything else, or a number too large, is none.
pub(super) fn integer(text: &[u8]) -> Option<i64> {
    // Nothing of at most 18 digits overflows, which is what nearly every number is.
    if let 1..=18 = text.len()
        && text.iter().all(u8::is_ascii_digit)
    {
        let number = text
            .iter()
            .fold(0_i64, |sum, digit| sum * 10 + i64::from(digit - b'0'));
        return Some(number);
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Writes a whole number.
pub(super) fn write(out: &mut Vec<u8>, number: i64) {
    if let 0..=9 = number
        && let Ok(digit) = u8::try_from(number)
    {
        out.push(b'0' + digit);
        return;
    }
    let mut digits = [0_u8; 20];
    let mut rest = number.unsigned_abs();
    let mut len = 0;
    for place in digits.iter_mut().rev() {
        // A remainder of ten is a digit.
        *place = b'0' + u8::try_from(rest % 10).unwrap_or(0);
        rest /= 10;
        len += 1;
        if rest == 0 {
            break;
        }
    }
    if number < 0 {
        out.push(b'-');
    }
    out.extend_from_slice(digits.get(digits.len() - len..).unwrap_or_default());
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
            assert_eq!(integer(text.as_bytes()), text.parse().ok(), "{text:?}");
        }
        assert_eq!(integer(b"\xff"), None);
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
            1_234_567_890,
            i64::MAX,
            i64::MIN,
        ] {
            let mut out = Vec::new();
            write(&mut out, number);
            assert_eq!(String::from_utf8(out).unwrap(), number.to_string());
        }
    }
}
