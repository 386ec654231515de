//! JSON strings, escaped while they are written into a buffer that the caller keeps.
//!
//! Must not know: what is said.

use std::fmt::{self, Display, Write};

/// The text as a JSON string, quotes included.
pub(crate) fn push_string(out: &mut Vec<u8>, text: impl Display) {
    out.push(b'"');
    // Writing into memory cannot fail; the `Result` belongs to the trait.
    write!(Escaping(out), "{text}").unwrap_or_default();
    out.push(b'"');
}

struct Escaping<'a>(&'a mut Vec<u8>);

impl Write for Escaping<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            match byte {
                b'"' | b'\\' => self.0.extend([b'\\', byte]),
                b'\n' => self.0.extend(*b"\\n"),
                b'\r' => self.0.extend(*b"\\r"),
                b'\t' => self.0.extend(*b"\\t"),
                0..=0x1f => {
                    self.0.extend(*b"\\u00");
                    let hex = |digit: u8| {
                        if digit < 10 {
                            b'0' + digit
                        } else {
                            b'a' + digit - 10
                        }
                    };
                    self.0.extend([hex(byte >> 4), hex(byte & 15)]);
                }
                _ => self.0.push(byte),
            }
        }
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
