//! Writes JSON strings into a buffer, escaping them on the way.
//!
//! Must not know: what the strings contain.

use std::fmt::{self, Display, Write};

/// Appends a constant or a name as a JSON string, without the machinery of `fmt`.
pub(crate) fn push_str(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    push_escaped(out, text);
    out.push(b'"');
}

/// Appends the text as a JSON string, quotes included.
pub(crate) fn push_string(out: &mut Vec<u8>, text: impl Display) {
    out.push(b'"');
    // Writing into memory cannot fail; the `Result` belongs to the trait.
    write!(JsonEscaper(out), "{text}").unwrap_or_default();
    out.push(b'"');
}

/// Escapes what is formatted.
struct JsonEscaper<'a>(&'a mut Vec<u8>);

impl Write for JsonEscaper<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        push_escaped(self.0, text);
        Ok(())
    }
}

/// Appends the text. Most texts have nothing to escape, and looking at every byte is faster than a branch for each.
fn push_escaped(out: &mut Vec<u8>, text: &str) {
    let is_special = |byte: u8| byte < 0x20 || byte == b'"' || byte == b'\\';
    let has_special = text.bytes().fold(false, |any, byte| any | is_special(byte));
    match has_special {
        false => out.extend_from_slice(text.as_bytes()),
        true => escape(out, text.as_bytes(), is_special),
    }
}

#[cold]
fn escape(out: &mut Vec<u8>, mut rest: &[u8], is_special: impl Fn(u8) -> bool) {
    while let Some(index) = rest.iter().position(|byte| is_special(*byte)) {
        let (plain, special) = rest.split_at_checked(index).unwrap_or_default();
        let Some((byte, behind)) = special.split_first() else {
            break;
        };
        out.extend_from_slice(plain);
        rest = behind;
        match *byte {
            b'"' | b'\\' => out.extend([b'\\', *byte]),
            b'\n' => out.extend(*b"\\n"),
            b'\r' => out.extend(*b"\\r"),
            b'\t' => out.extend(*b"\\t"),
            control => {
                let hex = |digit: u8| b"0123456789abcdef".get(usize::from(digit)).copied();
                let (high, low) = (hex(control >> 4), hex(control & 15));
                out.extend_from_slice(b"\\u00");
                out.extend(high.into_iter().chain(low));
            }
        }
    }
    out.extend_from_slice(rest);
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
        assert_eq!(read, [all.as_str()]);
        let mut again = b"[".to_vec();
        push_str(&mut again, &all);
        again.push(b']');
        assert_eq!(again, out);
    }
}
