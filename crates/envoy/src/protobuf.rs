//! Protobuf's wire format: reads fields from a byte slice and writes them to a byte vector.
//!
//! Reading copies and allocates nothing; unknown fields are skipped, as the format requires. Must not know: which messages
//! exist.

use std::fmt;

/// The deepest nesting of groups, which are deprecated.
const MAX_GROUP_DEPTH: u32 = 16;

/// The fields of a message, in the order in which they were sent.
#[derive(Clone, Copy, Debug)]
pub struct MessageFields<'a> {
    rest: &'a [u8],
}

/// The value of a field by its wire type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireValue<'a> {
    /// Integers, booleans and enumerations.
    Number(u64),
    /// Strings, bytes and messages.
    Bytes(&'a [u8]),
    /// A fixed-width number or a group. None of the messages here has such a field.
    Other,
}

/// Why bytes are not a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireError {
    /// The message ends in the middle of a field.
    Truncated,
    /// A varint has more than ten bytes.
    Number,
    /// A field has an invalid number or type.
    Field,
    /// A string is not UTF-8.
    Text(&'static str),
}

impl<'a> MessageFields<'a> {
    /// The fields of these bytes.
    #[must_use]
    pub const fn new(message: &'a [u8]) -> Self {
        Self { rest: message }
    }

    /// The next field, or `None` at the end.
    ///
    /// # Errors
    /// The bytes are not a message.
    pub fn next_field(&mut self) -> Result<Option<(u64, WireValue<'a>)>, WireError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let (number, kind) = self.tag()?;
        let value = match kind {
            0 => WireValue::Number(self.read_varint()?),
            1 => self.skip(8)?,
            2 => WireValue::Bytes(self.bytes()?),
            3 => self.group()?,
            5 => self.skip(4)?,
            _ => return Err(WireError::Field),
        };
        Ok(Some((number, value)))
    }

    fn tag(&mut self) -> Result<(u64, u64), WireError> {
        let tag = self.read_varint()?;
        match (tag >> 3, tag & 7) {
            (1..=0x1fff_ffff, kind) => Ok((tag >> 3, kind)),
            _ => Err(WireError::Field),
        }
    }

    fn read_varint(&mut self) -> Result<u64, WireError> {
        let mut number = 0_u64;
        for (index, byte) in self.rest.iter().enumerate().take(10) {
            let shift = u32::try_from(index).unwrap_or(0).saturating_mul(7);
            // One bit of the tenth byte fits; the others are dropped, as in other implementations.
            number |= u64::from(byte & 0x7f).wrapping_shl(shift);
            if byte & 0x80 == 0 {
                self.rest = self.rest.get(index.saturating_add(1)..).unwrap_or_default();
                return Ok(number);
            }
        }
        Err(if self.rest.len() < 10 {
            WireError::Truncated
        } else {
            WireError::Number
        })
    }

    fn bytes(&mut self) -> Result<&'a [u8], WireError> {
        let length =
            usize::try_from(self.read_varint()?).map_err(|_too_long| WireError::Truncated)?;
        let (bytes, rest) = self
            .rest
            .split_at_checked(length)
            .ok_or(WireError::Truncated)?;
        self.rest = rest;
        Ok(bytes)
    }

    fn skip(&mut self, length: usize) -> Result<WireValue<'a>, WireError> {
        self.rest = self.rest.get(length..).ok_or(WireError::Truncated)?;
        Ok(WireValue::Other)
    }

    /// Skips a group up to its end tag.
    fn group(&mut self) -> Result<WireValue<'a>, WireError> {
        let mut depth = 1_u32;
        while depth > 0 {
            let (_, kind) = self.tag()?;
            match kind {
                0 => drop(self.read_varint()?),
                1 => drop(self.skip(8)?),
                2 => drop(self.bytes()?),
                3 if depth < MAX_GROUP_DEPTH => depth = depth.saturating_add(1),
                4 => depth = depth.saturating_sub(1),
                5 => drop(self.skip(4)?),
                _ => return Err(WireError::Field),
            }
        }
        Ok(WireValue::Other)
    }
}

/// Decodes a string field.
pub fn text<'a>(bytes: &'a [u8], field: &'static str) -> Result<&'a str, WireError> {
    std::str::from_utf8(bytes).map_err(|_not_utf8| WireError::Text(field))
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated => f.write_str("the message ends in the middle of a field"),
            Self::Number => f.write_str("the message has a number of more than ten bytes"),
            Self::Field => f.write_str("the message has a field of no known type"),
            Self::Text(field) => write!(f, "{field}: it is not UTF-8"),
        }
    }
}

/// Appends fields of a message to a buffer.
#[derive(Debug)]
pub struct MessageWriter<'a> {
    out: &'a mut Vec<u8>,
}

impl<'a> MessageWriter<'a> {
    /// A writer that appends to `out`.
    pub const fn new(out: &'a mut Vec<u8>) -> Self {
        Self { out }
    }

    /// A number, unless it is zero, which is the default of a missing field.
    pub fn number(&mut self, field: u32, number: u64) {
        if number != 0 {
            self.varint(u64::from(field) << 3);
            self.varint(number);
        }
    }

    /// A string, unless it is empty.
    pub fn text(&mut self, field: u32, text: &[u8]) {
        if !text.is_empty() {
            self.bytes(field, text);
        }
    }

    /// Bytes, even if empty: an element of a repeated field, or a member of a `oneof`.
    pub fn bytes(&mut self, field: u32, bytes: &[u8]) {
        self.varint(u64::from(field) << 3 | 2);
        self.varint(bytes.len() as u64);
        self.out.extend_from_slice(bytes);
    }

    /// A double, even if it is zero.
    pub fn double(&mut self, field: u32, number: f64) {
        self.varint(u64::from(field) << 3 | 1);
        self.out.extend_from_slice(&number.to_le_bytes());
    }

    /// A boolean or an enumeration, even if it is zero: a member of a `oneof`.
    pub fn oneof_number(&mut self, field: u32, number: u64) {
        self.varint(u64::from(field) << 3);
        self.varint(number);
    }

    /// A nested message.
    pub fn message(&mut self, field: u32, write: impl FnOnce(&mut MessageWriter<'_>)) {
        self.varint(u64::from(field) << 3 | 2);
        // Most messages are shorter than 128 bytes, so one byte is reserved for the length. A longer one is moved.
        let at = self.out.len();
        self.out.push(0);
        write(&mut MessageWriter { out: self.out });
        let length = self.out.len().saturating_sub(at).saturating_sub(1);
        if let Ok(short @ 0..0x80) = u8::try_from(length) {
            if let Some(byte) = self.out.get_mut(at) {
                *byte = short;
            }
            return;
        }
        let (digits, count) = encode_varint(length as u64);
        let digits = digits.get(..count).unwrap_or_default();
        drop(self.out.splice(at..=at, digits.iter().copied()));
    }

    fn varint(&mut self, number: u64) {
        if let Ok(small @ 0..0x80) = u8::try_from(number) {
            return self.out.push(small);
        }
        let (digits, count) = encode_varint(number);
        self.out
            .extend_from_slice(digits.get(..count).unwrap_or_default());
    }
}

/// Encodes a varint: seven bits per byte, lowest first.
fn encode_varint(mut number: u64) -> ([u8; 10], usize) {
    let mut digits = [0; 10];
    let mut count = 0;
    for byte in &mut digits {
        count += 1;
        let low = u8::try_from(number & 0x7f).unwrap_or(0);
        number >>= 7;
        if number == 0 {
            *byte = low;
            break;
        }
        *byte = low | 0x80;
    }
    (digits, count)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(bytes: &[u8]) -> Result<Vec<(u64, WireValue<'_>)>, WireError> {
        let mut fields = MessageFields::new(bytes);
        let mut all = Vec::new();
        while let Some(field) = fields.next_field()? {
            all.push(field);
        }
        Ok(all)
    }

    #[test]
    fn written_fields_are_read_back() {
        let mut out = Vec::new();
        let mut writer = MessageWriter::new(&mut out);
        for number in [1, 127, 128, 16_384, u64::MAX] {
            writer.number(3, number);
        }
        writer.number(3, 0);
        writer.text(4, b"");
        writer.bytes(5, b"");
        let long = [b'x'; 300];
        writer.message(6, |inner| {
            inner.text(1, &long);
            inner.message(2, |_empty| {});
        });
        writer.oneof_number(536_870_911, 0);
        let read = fields(&out).unwrap();
        let numbers: Vec<_> = read.iter().take(5).map(|field| field.1).collect();
        let expected = [1, 127, 128, 16_384, u64::MAX].map(WireValue::Number);
        assert_eq!(numbers, expected);
        assert_eq!(read[5], (5, WireValue::Bytes(b"")));
        let WireValue::Bytes(inner) = read[6].1 else {
            panic!("{read:?}");
        };
        assert_eq!(
            fields(inner).unwrap(),
            [(1, WireValue::Bytes(&long)), (2, WireValue::Bytes(b""))]
        );
        assert_eq!(read[7], (536_870_911, WireValue::Number(0)));
        assert_eq!(read.len(), 8);
    }

    #[test]
    fn unknown_types_are_skipped_and_invalid_ones_refused() {
        let fixed = [0x09, 1, 2, 3, 4, 5, 6, 7, 8, 0x15, 1, 2, 3, 4, 0x18, 7];
        let read = fields(&fixed).unwrap();
        assert_eq!(
            read,
            [
                (1, WireValue::Other),
                (2, WireValue::Other),
                (3, WireValue::Number(7))
            ]
        );
        // A group of field 1 with a number and another group in it, then a number.
        let group = [0x0b, 0x10, 5, 0x1b, 0x1c, 0x0c, 0x20, 9];
        assert_eq!(
            fields(&group).unwrap(),
            [(1, WireValue::Other), (4, WireValue::Number(9))]
        );
        let deep = [0x0b; 100];
        let cases: [(&[u8], WireError); 8] = [
            (&[0x08], WireError::Truncated),
            (&[0x0a, 5, 1], WireError::Truncated),
            (&[0x09, 1], WireError::Truncated),
            (&[0x08, 0x80], WireError::Truncated),
            (&[0xff; 11], WireError::Number),
            (&[0x00, 0x00], WireError::Field),
            (&[0x0e], WireError::Field),
            (&deep, WireError::Field),
        ];
        for (bytes, error) in cases {
            assert_eq!(fields(bytes), Err(error), "{bytes:x?}");
        }
    }
}
