//! Normalizes paths, so that no alternative spelling of a path evades a limit.
//!
//! The path ends at `?` or `#`. Escapes are decoded, except `%2F` and `%25`, which would change the meaning; those get
//! upper-case digits. Then empty segments and `.` are removed and `..` removes the segment before it. A trailing slash
//! is kept but ignored by comparisons. Most paths are already normalized and are not copied. Must not know: templates,
//! globs, policies.

/// The maximum length of a normalized path.
pub(super) const PATH_CAPACITY: usize = 8 * 1_024;

/// A normalized path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NormalizedPath<'a> {
    /// Begins with `/`. Ends with `/` only if the raw path did or the path is the root.
    full: &'a [u8],
    /// Whether more segments follow that did not fit.
    pub(super) is_truncated: bool,
}

impl<'a> NormalizedPath<'a> {
    /// Without the trailing slash, unless the path is the root.
    pub(super) fn without_trailing_slash(self) -> &'a [u8] {
        match self.full {
            [bare @ .., b'/'] if !bare.is_empty() => bare,
            full => full,
        }
    }

    /// With the trailing slash, if there is one.
    pub(super) const fn full(self) -> &'a [u8] {
        self.full
    }
}

/// The classes of bytes that matter for normalization.
const SLASH: u8 = 1;
const DOT: u8 = 2;
const ESCAPE: u8 = 4;
const END: u8 = 8;

/// The class of each byte; a table, because every byte of every path is looked up.
#[expect(
    clippy::indexing_slicing,
    reason = "computed by the compiler, which refuses an index that is too large"
)]
const BYTE_CLASSES: [u8; 256] = {
    let mut meanings = [0; 256];
    meanings[b'/' as usize] = SLASH;
    meanings[b'.' as usize] = DOT;
    meanings[b'%' as usize] = ESCAPE;
    meanings[b'?' as usize] = END;
    meanings[b'#' as usize] = END;
    meanings
};

/// The path, if it is already normalized.
pub(super) fn already_normalized(raw: &[u8]) -> Option<NormalizedPath<'_>> {
    if raw.first() != Some(&b'/') {
        return None;
    }
    let mut before = 0;
    for (at, byte) in raw.iter().enumerate() {
        let meaning = BYTE_CLASSES.get(usize::from(*byte)).copied().unwrap_or(0);
        // After a slash, a dot may begin `.`, `..` or a name; `normalize` tells them apart.
        if before & SLASH != 0 && meaning & (SLASH | DOT) != 0 {
            return None;
        }
        if meaning & (ESCAPE | END) != 0 {
            let full = raw.get(..at).filter(|_| meaning == END)?;
            return Some(NormalizedPath {
                full,
                is_truncated: false,
            });
        }
        before = meaning;
    }
    Some(NormalizedPath {
        full: raw,
        is_truncated: false,
    })
}

/// Normalizes any path into the buffer. Segments that do not fit are omitted as a whole and set `is_truncated`; a later
/// `..` may remove them again.
pub(super) fn normalize<'a>(raw: &[u8], buffer: &'a mut [u8; PATH_CAPACITY]) -> NormalizedPath<'a> {
    let end = raw.iter().position(|byte| matches!(byte, b'?' | b'#'));
    let raw = raw.get(..end.unwrap_or(raw.len())).unwrap_or_default();
    let mut len = 0_usize;
    // Segments that did not fit. While there are any, nothing else is written.
    let mut beyond = 0_usize;
    let mut ends_with_slash = true;
    for segment in raw.split(|byte| *byte == b'/') {
        ends_with_slash = true;
        match dot_count(segment) {
            Some(0 | 1) => {}
            Some(_) if beyond > 0 => beyond -= 1,
            Some(_) => {
                let written = buffer.get(..len).unwrap_or_default();
                len = written.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
            }
            None => {
                ends_with_slash = false;
                match write_segment(segment, buffer.get_mut(len..).unwrap_or_default()) {
                    Some(written) if beyond == 0 => len += written,
                    _ => beyond += 1,
                }
            }
        }
    }
    // One byte always stays free for this slash.
    if (ends_with_slash || len == 0)
        && let Some(last) = buffer.get_mut(len)
    {
        *last = b'/';
        len += 1;
    }
    NormalizedPath {
        full: buffer.get(..len).unwrap_or_default(),
        is_truncated: beyond > 0,
    }
}

/// Decodes the escapes of a glob or template segment, as in paths.
pub(super) fn decode_escapes(text: &[u8]) -> Vec<u8> {
    PercentDecoder(text)
        .flat_map(DecodedByte::into_iter)
        .collect()
}

/// The number of dots, if a segment is empty, `.` or `..`.
fn dot_count(segment: &[u8]) -> Option<usize> {
    let mut count = 0;
    for spelled in PercentDecoder(segment) {
        match spelled {
            DecodedByte::Byte(b'.') if count < 2 => count += 1,
            _ => return None,
        }
    }
    Some(count)
}

/// Writes a slash and the segment; `None` if they do not fit with one more byte.
fn write_segment(segment: &[u8], buffer: &mut [u8]) -> Option<usize> {
    let mut len = 0;
    for byte in
        std::iter::once(b'/').chain(PercentDecoder(segment).flat_map(DecodedByte::into_iter))
    {
        *buffer.get_mut(len)? = byte;
        len += 1;
    }
    (len < buffer.len()).then_some(len)
}

/// A decoded byte or a kept escape.
#[derive(Clone, Copy)]
enum DecodedByte {
    Byte(u8),
    /// An escape that is kept, by its second digit.
    Escaped(u8),
}

impl DecodedByte {
    fn into_iter(self) -> impl Iterator<Item = u8> {
        let (bytes, len) = match self {
            Self::Byte(byte) => ([byte, 0, 0], 1),
            Self::Escaped(digit) => ([b'%', b'2', digit], 3),
        };
        bytes.into_iter().take(len)
    }
}

/// Iterates over bytes and decodes escapes.
struct PercentDecoder<'a>(&'a [u8]);

impl Iterator for PercentDecoder<'_> {
    type Item = DecodedByte;

    fn next(&mut self) -> Option<DecodedByte> {
        if let [b'%', high, low, rest @ ..] = self.0
            && let (Some(high), Some(low)) = (hex_digit(*high), hex_digit(*low))
        {
            self.0 = rest;
            return Some(match high * 16 + low {
                b'/' => DecodedByte::Escaped(b'F'),
                b'%' => DecodedByte::Escaped(b'5'),
                byte => DecodedByte::Byte(byte),
            });
        }
        let (byte, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(DecodedByte::Byte(*byte))
    }
}

const fn hex_digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        b'A'..=b'F' => Some(byte - b'A' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spelled(raw: &str) -> String {
        let mut buffer = [0; PATH_CAPACITY];
        let slow = normalize(raw.as_bytes(), &mut buffer);
        assert!(!slow.is_truncated, "{raw}");
        if let Some(fast) = already_normalized(raw.as_bytes()) {
            assert_eq!(fast, slow, "{raw}");
        }
        String::from_utf8_lossy(slow.full()).into_owned()
    }

    #[test]
    fn every_spelling_of_a_path_normalizes_to_the_same_path() {
        for raw in [
            "/a/b",
            "//a//b",
            "/a/./b",
            "/a/x/../b",
            "/%61/b",
            "/a/%2e/b",
            "/x/%2E%2e/a/b",
            "a/b",
            "/../a/b",
            "/a/b?c=/d",
            "/a/b#/d",
            "/a/b?",
            "/a/.%2e/../../a/b",
        ] {
            assert_eq!(spelled(raw), "/a/b", "{raw}");
        }
        for raw in ["/a/b/", "/a/b//", "/a/b/.", "/a/b/c/..", "/a/b/%2e"] {
            assert_eq!(spelled(raw), "/a/b/", "{raw}");
        }
        for raw in ["", "/", "//", "/..", "/a/..", "?", "."] {
            assert_eq!(spelled(raw), "/", "{raw}");
        }
    }

    #[test]
    fn paths_with_different_meanings_stay_different() {
        assert_eq!(spelled("/a%2fb"), "/a%2Fb");
        assert_eq!(spelled("/a%252fb"), "/a%252fb");
        assert_eq!(spelled("/a%zz%4"), "/a%zz%4");
        assert_eq!(spelled("/A"), "/A");
        assert_eq!(spelled("/..."), "/...");
        assert_eq!(spelled("/.well-known/x"), "/.well-known/x");
        assert_eq!(spelled("/gr%C3%B6%C3%9Fe"), "/größe");
    }

    #[test]
    fn a_normalized_path_of_any_length_is_not_copied() {
        let long = format!("/{}", "x/".repeat(10_000));
        let path = already_normalized(long.as_bytes()).unwrap();
        assert_eq!(path.full(), long.as_bytes());
        assert_eq!(
            path.without_trailing_slash(),
            &long.as_bytes()[..long.len() - 1]
        );
        assert_eq!(already_normalized(b"/a//b"), None);
    }

    #[test]
    fn a_truncated_path_is_reported_unless_later_segments_remove_the_excess() {
        let long = "x/".repeat(PATH_CAPACITY);
        let mut buffer = [0; PATH_CAPACITY];
        let cut = normalize(format!("//a/{long}").as_bytes(), &mut buffer);
        assert!(cut.is_truncated && cut.full().starts_with(b"/a/x/x"));
        let back = format!("//a/{long}{}b", "../".repeat(PATH_CAPACITY));
        assert_eq!(spelled(&back), "/a/b");
        let one = format!("//a/{}/../b", "x".repeat(3 * PATH_CAPACITY));
        assert_eq!(spelled(&one), "/a/b");
        let exactly = format!("//{}", "x".repeat(PATH_CAPACITY - 2));
        assert_eq!(spelled(&exactly).len(), PATH_CAPACITY - 1);
        assert!(normalize(format!("{exactly}x").as_bytes(), &mut buffer).is_truncated);
    }
}
