//! Writes JSON strings into a buffer, escaping them on the way.
//!
//! Must not know: what the strings contain.

use std::fmt::{self, Display, Write};

/// Appends the text as a JSON string, quotes included.
pub(crate) fn push_string(out: &mut Vec<u8>, text: impl Display) {
    out.push(b'"');
    // Writing into memory cannot fail; the `Result` belongs to the trait.
    write!(JsonEscaper(out), "{text}").unwrap_or_default();
    out.push(b'"');
}

/// The bytes that a JSON string must escape.
#[expect(
    clippy::indexing_slicing,
    reason = "it is computed while compiling, where an index out of bounds is an error"
)]
const SPECIAL: [bool; 256] = {
    let mut special = [false; 256];
    let mut byte = 0;
    while byte < special.len() {
        special[byte] = byte < 0x20 || byte == b'"' as usize || byte == b'\\' as usize;
        byte += 1;
    }
    special
};

struct JsonEscaper<'a>(&'a mut Vec<u8>);

impl Write for JsonEscaper<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut rest = text.as_bytes();
        let is_special = |byte: &u8| SPECIAL.get(usize::from(*byte)) == Some(&true);
        while let Some(index) = rest.iter().position(is_special) {
            let (plain, special) = rest.split_at_checked(index).unwrap_or_default();
            let Some((byte, behind)) = special.split_first() else {
                break;
            };
            self.0.extend_from_slice(plain);
            rest = behind;
            match *byte {
                b'"' | b'\\' => self.0.extend([b'\\', *byte]),
                b'\n' => self.0.extend(*b"\\n"),
                b'\r' => self.0.extend(*b"\\r"),
                b'\t' => self.0.extend(*b"\\t"),
                control => {
                    let hex = |digit: u8| b"0123456789abcdef".get(usize::from(digit)).copied();
                    let (high, low) = (hex(control >> 4), hex(control & 15));
                    self.0.extend_from_slice(b"\\u00");
                    self.0.extend(high.into_iter().chain(low));
                }
            }
        }
        self.0.extend_from_slice(rest);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_character_reads_back() {
        let all: String = ('\0'..'\u{3000}')
            .chain(['\u{10ffff}', '\u{fffe}'])
            .collect();
        let mut out = b"[".to_vec();
        push_string(&mut out, &all);
        out.push(b']');
        assert!(out.iter().all(|byte| *byte >= b' '));
        let read: Vec<String> = serde_json::from_slice(&out).unwrap();
        assert_eq!(read, [all]);
    }
}
