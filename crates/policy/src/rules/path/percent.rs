//! Percent-encoding: the bytes of a path, and which of them were escaped.
//!
//! Must not know: what a byte means in a path.

/// One byte of a path after decoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PathByte {
    pub(super) byte: u8,
    pub(super) is_escaped: bool,
}

/// Iterates over bytes and decodes escapes once. A `%` without two hexadecimal digits stands for itself.
pub(super) struct PercentDecoder<'a>(pub(super) &'a [u8]);

impl Iterator for PercentDecoder<'_> {
    type Item = PathByte;

    fn next(&mut self) -> Option<PathByte> {
        if let [b'%', high, low, rest @ ..] = self.0
            && let (Some(high), Some(low)) = (hex_digit(*high), hex_digit(*low))
        {
            self.0 = rest;
            return Some(PathByte {
                byte: high * 16 + low,
                is_escaped: true,
            });
        }
        let (byte, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(PathByte {
            byte: *byte,
            is_escaped: false,
        })
    }
}

/// Decodes the escapes of a glob or template segment, as in paths: all but `%2F` and `%25`, which would change the
/// meaning. Those get upper-case digits.
pub(in super::super) fn decode_escapes(text: &[u8]) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(text.len());
    PercentDecoder(text).for_each(|byte| push_decoded(byte, &mut decoded));
    decoded
}

/// Appends a byte; an escaped slash or percent sign stays escaped.
pub(super) fn push_decoded(PathByte { byte, is_escaped }: PathByte, out: &mut Vec<u8>) {
    match byte {
        b'/' if is_escaped => out.extend_from_slice(b"%2F"),
        b'%' if is_escaped => out.extend_from_slice(b"%25"),
        byte => out.push(byte),
    }
}

pub(super) const fn hex_digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        b'A'..=b'F' => Some(byte - b'A' + 10),
        _ => None,
    }
}
