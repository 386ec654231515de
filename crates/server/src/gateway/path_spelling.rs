//! The one spelling of a path that is matched and forwarded: unreserved characters unescaped, other escapes in capitals, no
//! `.`, `..` and empty segments.
//!
//! What servers read differently even then is read in the most lenient way too, so that a route can be refused that depends
//! on the reading. Must not know: routes, limits.

use std::borrow::Cow;

/// Why a path has no spelling that every server reads alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PathError {
    /// It does not begin with a slash.
    NotAPath,
    /// A `%` is not followed by two hexadecimal digits.
    BrokenEscape,
    /// A control character, as it is or escaped.
    ControlCharacter,
}

impl PathError {
    pub(super) const fn detail(self) -> &'static str {
        match self {
            Self::NotAPath => "target: it is not a path",
            Self::BrokenEscape => "path: a % is not followed by two hexadecimal digits",
            Self::ControlCharacter => "path: it has a control character",
        }
    }
}

/// The one spelling of a path without its query.
pub(super) fn canonical_path(path: &str) -> Result<Cow<'_, str>, PathError> {
    let rest = path.strip_prefix('/').ok_or(PathError::NotAPath)?;
    if is_canonical(rest) {
        return Ok(path.into());
    }
    let mut spelled = Vec::with_capacity(path.len());
    for segment in rest.split('/') {
        spelled.push(canonical_segment(segment)?);
    }
    Ok(resolve(spelled.iter().map(String::as_str)).into())
}

/// The path as the most lenient servers read it: escaped slashes and backslashes separate segments, and parameters behind
/// `;` are removed. `None` if they read it as every other does.
pub(super) fn lenient_path(canonical: &str) -> Option<String> {
    if !canonical.contains(['%', ';']) {
        return None;
    }
    let unescaped = canonical
        .replace("%2F", "/")
        .replace("%5C", "/")
        .replace("%3B", ";");
    let segments = unescaped.split('/').skip(1);
    let lenient = resolve(segments.map(|segment| segment.split(';').next().unwrap_or_default()));
    (lenient != canonical).then_some(lenient)
}

/// Whether nothing of it has to be changed. Most paths are so.
fn is_canonical(rest: &str) -> bool {
    let mut before = b'/';
    for byte in rest.bytes() {
        let is_plain = is_unreserved(byte) || b"!$&'()*+,;=:@/".contains(&byte);
        if !is_plain || before == b'/' && matches!(byte, b'.' | b'/') {
            return false;
        }
        before = byte;
    }
    true
}

const fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

fn canonical_segment(segment: &str) -> Result<String, PathError> {
    let mut out = String::with_capacity(segment.len());
    let mut rest = segment.bytes();
    while let Some(byte) = rest.next() {
        let (byte, is_escaped) = match byte {
            b'%' => {
                let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
                let digits = digit(rest.next()).zip(digit(rest.next()));
                let (high, low) = digits.ok_or(PathError::BrokenEscape)?;
                let byte =
                    u8::try_from(high * 16 + low).map_err(|_never| PathError::BrokenEscape)?;
                (byte, true)
            }
            byte => (byte, false),
        };
        match byte {
            0..0x20 | 0x7f => return Err(PathError::ControlCharacter),
            _ if is_unreserved(byte) => out.push(char::from(byte)),
            _ if !is_escaped && b"!$&'()*+,;=:@".contains(&byte) => out.push(char::from(byte)),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    Ok(out)
}

/// Joins segments without `.`, `..` and empty ones. A slash at the end stays.
fn resolve<'a>(segments: impl Iterator<Item = &'a str>) -> String {
    let mut kept: Vec<&str> = Vec::new();
    let mut ends_with_slash = false;
    for segment in segments {
        ends_with_slash = matches!(segment, "" | "." | "..");
        match segment {
            "" | "." => {}
            ".." => {
                kept.pop();
            }
            segment => kept.push(segment),
        }
    }
    let mut path = String::from("/");
    path.push_str(&kept.join("/"));
    if ends_with_slash && !kept.is_empty() {
        path.push('/');
    }
    path
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_spelling_of_a_path_becomes_the_same() {
        for (path, canonical) in [
            ("/", "/"),
            ("/a/b", "/a/b"),
            ("/a/b/", "/a/b/"),
            ("//a///b", "/a/b"),
            ("/a/./b/../c", "/a/c"),
            ("/a/%2e%2E/b", "/b"),
            ("/../../a", "/a"),
            ("/a/..", "/"),
            ("/a/b/..", "/a/"),
            ("/a/.", "/a/"),
            ("/%61%7e", "/a~"),
            ("/a%2fb", "/a%2Fb"),
            ("/a%5cb", "/a%5Cb"),
            ("/a\\b", "/a%5Cb"),
            ("/a b\"<>", "/a%20b%22%3C%3E"),
            ("/ü", "/%C3%BC"),
            ("/a;v=1", "/a;v=1"),
            ("/a%3Bv", "/a%3Bv"),
            ("/.hidden/..b", "/.hidden/..b"),
            ("/a%252Fb", "/a%252Fb"),
        ] {
            assert_eq!(canonical_path(path).as_deref(), Ok(canonical), "{path}");
        }
    }

    #[test]
    fn what_has_no_spelling_is_refused() {
        for (path, error) in [
            ("", PathError::NotAPath),
            ("*", PathError::NotAPath),
            ("a", PathError::NotAPath),
            ("/%", PathError::BrokenEscape),
            ("/%4", PathError::BrokenEscape),
            ("/%zz", PathError::BrokenEscape),
            ("/%+1", PathError::BrokenEscape),
            ("/%00", PathError::ControlCharacter),
            ("/a%0d%0ab", PathError::ControlCharacter),
            ("/\u{7f}", PathError::ControlCharacter),
        ] {
            assert_eq!(canonical_path(path), Err(error), "{path}");
        }
    }

    #[test]
    fn lenient_servers_read_escaped_separators_and_parameters_differently() {
        for (path, lenient) in [
            ("/a/b", None),
            ("/a%20b", None),
            ("/public/..%2Fadmin", Some("/admin")),
            ("/public/..%5Cadmin", Some("/admin")),
            ("/public/..;/admin", Some("/admin")),
            ("/public/..;a=%2F../admin", Some("/admin")),
            ("/admin;x", Some("/admin")),
            ("/a%2Fb", Some("/a/b")),
        ] {
            assert_eq!(lenient_path(path).as_deref(), lenient, "{path}");
        }
    }

    proptest! {
        #[test]
        fn the_spelling_is_stable_and_has_no_dots(path in "/[a./%2eEfF5cC;\\\\ ]{0,24}") {
            if let Ok(once) = canonical_path(&path) {
                let twice = canonical_path(&once);
                prop_assert_eq!(twice.as_deref(), Ok(&*once));
                let mut segments = once.split('/').skip(1);
                prop_assert!(segments.all(|segment| !matches!(segment, "." | "..")));
                prop_assert!(!once.contains("//") && !once.contains(' ') && !once.contains('\\'));
            }
        }
    }
}
