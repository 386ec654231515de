//! Numbers as text, both ways, without allocating.
//!
//! Must not know: what they count.

/// A whole number with an optional sign, as `str::parse` reads it. Anything else, or a number too large, is none.
pub(super) fn integer(text: &[u8]) -> Option<i64> {
    // Nothing of at most 18 digits overflows, which is what nearly every number is.
    if !matches!(text.len(), 1..=18) {
        return unusual(text);
    }
    let mut number = 0_i64;
    for byte in text {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return unusual(text);
        }
        number = number.wrapping_mul(10).wrapping_add(i64::from(digit));
    }
    Some(number)
}

#[cold]
fn unusual(text: &[u8]) -> Option<i64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// The digits of a number, with its sign.
#[derive(Debug)]
pub(super) struct Digits {
    bytes: [u8; 20],
    from: usize,
}

impl Digits {
    pub(super) fn of(number: i64) -> Self {
        let mut digits = Self {
            bytes: [0; 20],
            from: 20,
        };
        let mut rest = number.unsigned_abs();
        loop {
            // A remainder of ten is a digit.
            digits.prepend(u8::try_from(rest % 10).unwrap_or(0).wrapping_add(b'0'));
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        if number < 0 {
            digits.prepend(b'-');
        }
        digits
    }

    fn prepend(&mut self, byte: u8) {
        // Nineteen digits and a sign fill it.
        self.from = self.from.saturating_sub(1);
        if let Some(place) = self.bytes.get_mut(self.from) {
            *place = byte;
        }
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        self.bytes.get(self.from..).unwrap_or_default()
    }
}

/// A short line or two, put together before they are appended: appending byte by byte costs more than deciding.
#[derive(Debug)]
pub(super) struct Lines {
    bytes: [u8; 128],
    len: usize,
}

impl Lines {
    pub(super) const fn new() -> Self {
        Self {
            bytes: [0; 128],
            len: 0,
        }
    }

    /// A line that holds a kind and a number. Five of the longest have room; what has none is not put down.
    pub(super) fn number(&mut self, kind: u8, number: i64) {
        self.byte(kind);
        match u8::try_from(number) {
            Ok(small @ 0..=9) => self.byte(small.wrapping_add(b'0')),
            Ok(small @ 10..=99) => {
                self.byte((small / 10).wrapping_add(b'0'));
                self.byte((small % 10).wrapping_add(b'0'));
            }
            _ => Digits::of(number)
                .as_bytes()
                .iter()
                .for_each(|byte| self.byte(*byte)),
        }
        self.byte(b'\r');
        self.byte(b'\n');
    }

    fn byte(&mut self, byte: u8) {
        if let Some(place) = self.bytes.get_mut(self.len) {
            *place = byte;
            self.len = self.len.wrapping_add(1);
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
            assert_eq!(Digits::of(number).as_bytes(), number.to_string().as_bytes());
            let mut lines = Lines::new();
            lines.number(b':', number);
            assert_eq!(lines.as_bytes(), format!(":{number}\r\n").as_bytes());
        }
        let mut lines = Lines::new();
        lines.number(b'*', 5);
        (0..5).for_each(|_| lines.number(b':', i64::MIN));
        assert!(
            lines.as_bytes().ends_with(b"808\r\n"),
            "five of the longest have room"
        );
    }
}
