//! The header fields of a response as HTTP/1 sends them: one line after another in one buffer.
//!
//! Nearly every response is sent by the fast path, which copies the lines. A map of names and values would be made for each
//! response and read once. Must not know: which fields there are.

use std::ops::Range;

/// Most responses have shorter lines.
const USUAL_LEN: usize = 320;

/// Most responses have fewer fields.
const USUAL_FIELDS: usize = 8;

/// Header fields in wire form, in the order in which they were added.
#[derive(Clone, Debug)]
pub(crate) struct FieldLines {
    lines: Vec<u8>,
    /// Where the value of each field is, so that a field is found without reading lines.
    fields: Vec<(&'static str, Range<usize>)>,
}

impl FieldLines {
    pub(crate) fn new() -> Self {
        Self {
            lines: Vec::with_capacity(USUAL_LEN),
            fields: Vec::with_capacity(USUAL_FIELDS),
        }
    }

    /// Adds a field. `name` is a constant in lowercase. A value that would end the line, or that has other control characters,
    /// is not sent.
    pub(crate) fn push(&mut self, name: &'static str, value: &[u8]) {
        if !is_field_value(value) {
            return;
        }
        let len = name.len().saturating_add(value.len()).saturating_add(4);
        self.lines.reserve(len);
        self.lines.extend_from_slice(name.as_bytes());
        self.lines.extend_from_slice(b": ");
        let start = self.lines.len();
        self.lines.extend_from_slice(value);
        self.fields.push((name, start..self.lines.len()));
        self.lines.extend_from_slice(b"\r\n");
    }

    /// Removes every field with this name.
    pub(crate) fn remove(&mut self, name: &str) {
        if self.values(name).next().is_none() {
            return;
        }
        let mut kept = Self::new();
        for (other, value) in self.iter().filter(|(other, _)| *other != name) {
            kept.push(other, value);
        }
        *self = kept;
    }

    /// The values of the fields with this name.
    pub(crate) fn values<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        let same = self.iter().filter(move |(other, _)| *other == name);
        same.map(|(_, value)| value)
    }

    /// Names and values.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&'static str, &[u8])> {
        let value = |range: &Range<usize>| self.lines.get(range.clone()).unwrap_or_default();
        let fields = self.fields.iter();
        fields.map(move |(name, range)| (*name, value(range)))
    }

    /// All lines, each with its line break.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.lines
    }
}

/// Whether the bytes are a field value as hyper would accept it. Every byte is looked at, because that is faster than a branch
/// for each.
fn is_field_value(value: &[u8]) -> bool {
    let is_bad = |byte: u8| (byte < 0x20 && byte != b'\t') || byte == 0x7f;
    !value.iter().fold(false, |bad, byte| bad | is_bad(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::header::HeaderValue;

    #[test]
    fn fields_are_found_and_removed_by_their_name() {
        let mut lines = FieldLines::new();
        for (name, value) in [("a", "1: 2"), ("ab", ""), ("a", "3")] {
            lines.push(name, value.as_bytes());
        }
        assert_eq!(lines.as_bytes(), b"a: 1: 2\r\nab: \r\na: 3\r\n");
        assert!(lines.values("a").eq([&b"1: 2"[..], b"3"]));
        assert!(lines.values("ab").eq([b""]));
        lines.remove("b");
        lines.remove("a");
        assert_eq!(lines.as_bytes(), b"ab: \r\n");
    }

    #[test]
    fn no_value_ends_its_line() {
        for byte in 0..=u8::MAX {
            let value = [b'a', byte, b'b'];
            let is_valid = HeaderValue::from_bytes(&value).is_ok();
            assert_eq!(is_field_value(&value), is_valid, "{byte}");
            let mut lines = FieldLines::new();
            lines.push("x", &value);
            assert_eq!(lines.iter().count(), usize::from(is_valid), "{byte}");
        }
    }
}
