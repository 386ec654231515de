//! Finds in one pass what makes a path ambiguous, and what no server should be asked to read.
//!
//! Must not know: how ambiguous paths are read.

use std::fmt;

use super::percent::{PathByte, PercentDecoder};
use crate::attributes::Attribute;

/// The maximum length of a path.
pub(in super::super) const MAX_PATH_LEN: usize = 8 * 1_024;

/// Why a request cannot be read. Servers would read it differently, so no rule can be sure of it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unreadable {
    /// The path has more than 8 KiB.
    PathTooLong,
    /// The path has a control character, as it is or escaped.
    ControlCharacter,
    /// The path or the query has a `#`. Clients do not send it; some servers end the path there, others do not.
    Fragment,
    /// A `%` of the path is not followed by two hexadecimal digits.
    BrokenEscape,
    /// The path has a character in more bytes of UTF-8 than it needs.
    OverlongUtf8,
    /// The path can be read in ways to which more limits apply than one decision has room for.
    TooManyReadings,
    /// The host is not a name or an address, or is too long.
    InvalidHost,
    /// This attribute has several different values, and the policy refuses that.
    Duplicate(Attribute),
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::PathTooLong => "the path is longer than 8192 bytes",
            Self::ControlCharacter => "the path has a control character",
            Self::Fragment => "the path or query has a #",
            Self::BrokenEscape => "a % in the path is not followed by two hexadecimal digits",
            Self::OverlongUtf8 => "the path has an overlong UTF-8 sequence",
            Self::TooManyReadings => "the path can be read in too many ways",
            Self::InvalidHost => "the host is not a host name or an IP address",
            Self::Duplicate(attribute) => {
                return write!(
                    f,
                    "{attribute} is sent more than once, with different values"
                );
            }
        })
    }
}

/// What servers may read differently in a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct PathFeatures {
    pub(super) has_escaped_slash: bool,
    pub(super) has_backslash: bool,
    /// A `;` that is not escaped.
    pub(super) has_semicolon: bool,
    pub(super) has_escaped_semicolon: bool,
    /// A dot at the beginning of a segment.
    pub(super) has_leading_dot: bool,
    /// Two separators in a row, or with nothing but parameters between them.
    pub(super) has_empty_segment: bool,
}

/// Inspects a path up to its query. The features are found even if the path is unreadable.
pub(in super::super) fn inspect(path: &[u8]) -> (PathFeatures, Option<Unreadable>) {
    let mut features = PathFeatures::default();
    let mut unreadable = (path.len() > MAX_PATH_LEN).then_some(Unreadable::PathTooLong);
    let (mut before, mut has_begun) = (b'/', false);
    for PathByte { byte, is_escaped } in PercentDecoder(path) {
        let found = match byte {
            0..0x20 | 0x7f => Some(Unreadable::ControlCharacter),
            b'%' if !is_escaped => Some(Unreadable::BrokenEscape),
            b'#' if !is_escaped => Some(Unreadable::Fragment),
            0x80..=0xbf if is_overlong(before, byte) => Some(Unreadable::OverlongUtf8),
            _ => None,
        };
        unreadable = unreadable.or(found);
        let follows_separator = has_begun && matches!(before, b'/' | b'\\');
        features.has_empty_segment |= follows_separator && matches!(byte, b'/' | b'\\' | b';');
        has_begun = true;
        match byte {
            b'/' => features.has_escaped_slash |= is_escaped,
            b'\\' => features.has_backslash = true,
            b';' if is_escaped => features.has_escaped_semicolon = true,
            b';' => features.has_semicolon = true,
            b'.' if matches!(before, b'/' | b'\\') => features.has_leading_dot = true,
            _ => {}
        }
        before = byte;
    }
    (features, unreadable)
}

/// Whether two bytes begin a sequence for a character that has a shorter one.
const fn is_overlong(first: u8, second: u8) -> bool {
    match first {
        0xc0 | 0xc1 => true,
        0xe0 => second < 0xa0,
        0xf0 => second < 0x90,
        _ => false,
    }
}
