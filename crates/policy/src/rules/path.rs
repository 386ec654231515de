//! One spelling for every path, so that no other spelling of it gets around a limit.
//!
//! What counts ends at `?` or `#`. Escapes are decoded, but for `%2F` and `%25`, which would change what the path means and
//! are only written with capitals. Then empty segments and `.` vanish and `..` takes away the segment before it. Whether
//! there is a slash at the end is remembered and otherwise does not count. Most paths are spelled like that already and are
//! only looked at. Must not know: templates, globs, policies.

/// How long a path may be after it was rewritten.
pub(super) const PATH_CAPACITY: usize = 8 * 1_024;

/// A path in its one spelling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NormalizedPath<'a> {
    /// Begins with `/`; ends with one only if it was at the end or if there is nothing else.
    full: &'a [u8],
    /// More segments follow that there was no room for.
    pub(super) is_truncated: bool,
}

impl<'a> NormalizedPath<'a> {
    /// Without a slash at the end, unless it is all there is.
    pub(super) fn without_trailing_slash(self) -> &'a [u8] {
        match self.full {
            [bare @ .., b'/'] if !bare.is_empty() => bare,
            full => full,
        }
    }

    /// With the slash at the end, if it has one.
    pub(super) const fn full(self) -> &'a [u8] {
        self.full
    }
}

/// What a byte may mean for the spelling of a path.
const SLASH: u8 = 1;
const DOT: u8 = 2;
const ESCAPE: u8 = 4;
const END: u8 = 8;

/// What each byte means; looked up, because every byte of every path is.
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

/// The path, if it is spelled in the one way already.
pub(super) fn already_normalized(raw: &[u8]) -> Option<NormalizedPath<'_>> {
    if raw.first() != Some(&b'/') {
        return None;
    }
    let mut before = 0;
    for (at, byte) in raw.iter().enumerate() {
        let meaning = BYTE_CLASSES.get(usize::from(*byte)).copied().unwrap_or(0);
        // After a slash, a dot may begin `.`, `..` or a name; telling them apart is the other function's work.
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

/// Any path, rewritten into the room. What has no room is left out by whole segments, which the answer says; `..` may
/// still bring it back to what fits.
pub(super) fn normalize<'a>(raw: &[u8], room: &'a mut [u8; PATH_CAPACITY]) -> NormalizedPath<'a> {
    let end = raw.iter().position(|byte| matches!(byte, b'?' | b'#'));
    let raw = raw.get(..end.unwrap_or(raw.len())).unwrap_or_default();
    let mut len = 0_usize;
    // Segments that are there but had no room. While there are any, nothing else is written.
    let mut beyond = 0_usize;
    let mut ends_with_slash = true;
    for segment in raw.split(|byte| *byte == b'/') {
        ends_with_slash = true;
        match dot_count(segment) {
            Some(0 | 1) => {}
            Some(_) if beyond > 0 => beyond -= 1,
            Some(_) => {
                let written = room.get(..len).unwrap_or_default();
                len = written.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
            }
            None => {
                ends_with_slash = false;
                match write_segment(segment, room.get_mut(len..).unwrap_or_default()) {
                    Some(written) if beyond == 0 => len += written,
                    _ => beyond += 1,
                }
            }
        }
    }
    // One byte is always kept free for this slash.
    if (ends_with_slash || len == 0)
        && let Some(last) = room.get_mut(len)
    {
        *last = b'/';
        len += 1;
    }
    NormalizedPath {
        full: room.get(..len).unwrap_or_default(),
        is_truncated: beyond > 0,
    }
}

/// A text of a policy, such as a glob or a segment of a template, with its escapes as paths have them.
pub(super) fn decode_escapes(text: &[u8]) -> Vec<u8> {
    PercentDecoder(text)
        .flat_map(DecodedByte::into_iter)
        .collect()
}

/// How many dots a segment consists of, if it is empty, `.` or `..`.
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

/// Writes a slash and the segment; `None` if there is no room for it and one more byte.
fn write_segment(segment: &[u8], room: &mut [u8]) -> Option<usize> {
    let mut len = 0;
    for byte in
        std::iter::once(b'/').chain(PercentDecoder(segment).flat_map(DecodedByte::into_iter))
    {
        *room.get_mut(len)? = byte;
        len += 1;
    }
    (len < room.len()).then_some(len)
}

/// What a byte or an escape means.
#[derive(Clone, Copy)]
enum DecodedByte {
    Byte(u8),
    /// An escape that stays one, by its second digit.
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

/// Bytes with their escapes decoded.
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
        let mut room = [0; PATH_CAPACITY];
        let slow = normalize(raw.as_bytes(), &mut room);
        assert!(!slow.is_truncated, "{raw}");
        if let Some(fast) = already_normalized(raw.as_bytes()) {
            assert_eq!(fast, slow, "{raw}");
        }
        String::from_utf8_lossy(slow.full()).into_owned()
    }

    #[test]
    fn every_spelling_of_a_path_becomes_the_same() {
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
    fn what_means_something_else_stays_different() {
        assert_eq!(spelled("/a%2fb"), "/a%2Fb");
        assert_eq!(spelled("/a%252fb"), "/a%252fb");
        assert_eq!(spelled("/a%zz%4"), "/a%zz%4");
        assert_eq!(spelled("/A"), "/A");
        assert_eq!(spelled("/..."), "/...");
        assert_eq!(spelled("/.well-known/x"), "/.well-known/x");
        assert_eq!(spelled("/gr%C3%B6%C3%9Fe"), "/größe");
    }

    #[test]
    fn a_path_in_its_one_spelling_is_not_copied_however_long_it_is() {
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
    fn what_has_no_room_is_said_and_what_comes_back_from_there_is_found() {
        let long = "x/".repeat(PATH_CAPACITY);
        let mut room = [0; PATH_CAPACITY];
        let cut = normalize(format!("//a/{long}").as_bytes(), &mut room);
        assert!(cut.is_truncated && cut.full().starts_with(b"/a/x/x"));
        let back = format!("//a/{long}{}b", "../".repeat(PATH_CAPACITY));
        assert_eq!(spelled(&back), "/a/b");
        let one = format!("//a/{}/../b", "x".repeat(3 * PATH_CAPACITY));
        assert_eq!(spelled(&one), "/a/b");
        let exactly = format!("//{}", "x".repeat(PATH_CAPACITY - 2));
        assert_eq!(spelled(&exactly).len(), PATH_CAPACITY - 1);
        assert!(normalize(format!("{exactly}x").as_bytes(), &mut room).is_truncated);
    }
}
