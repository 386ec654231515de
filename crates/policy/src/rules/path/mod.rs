//! Reads paths as servers read them, so that no spelling of a path evades a limit.
//!
//! The path ends at `?`. Most paths are plain: they have one reading, which is found by one scan and not copied.
//! Any other path has a bounded number of [`readings`]. Must not know: templates, globs, policies.

mod inspect;
mod percent;
mod readings;

pub use inspect::Unreadable;
pub(super) use inspect::{MAX_PATH_LEN, inspect};
pub(super) use percent::decode_escapes;
pub(super) use readings::{ReadingSet, canonical_reader, normalize_pattern};

/// A path under one reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NormalizedPath<'a> {
    /// Begins with `/`. Ends with `/` only if the raw path did or the path is the root.
    full: &'a [u8],
}

impl<'a> NormalizedPath<'a> {
    pub(super) const fn new(full: &'a [u8]) -> Self {
        Self { full }
    }

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

/// The classes of bytes that matter.
const SLASH: u8 = 1;
const DOT: u8 = 2;
/// A byte that servers read differently, or that some cannot read.
const ODD: u8 = 4;
const END: u8 = 8;
const UPPERCASE: u8 = 16;

/// The class of each byte; a table, because every byte of every path is looked up.
#[expect(
    clippy::indexing_slicing,
    reason = "computed by the compiler, which refuses an index that is too large"
)]
const BYTE_CLASSES: [u8; 256] = {
    let mut classes = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        if byte < 0x20 || byte == 0x7f {
            classes[byte] = ODD;
        } else if byte >= b'A' as usize && byte <= b'Z' as usize {
            classes[byte] = UPPERCASE;
        }
        byte += 1;
    }
    classes[b'/' as usize] = SLASH;
    classes[b'.' as usize] = DOT;
    classes[b'%' as usize] = ODD;
    classes[b'#' as usize] = ODD;
    classes[b';' as usize] = ODD;
    classes[b'\\' as usize] = ODD;
    // The first bytes of overlong UTF-8.
    classes[0xc0] = ODD;
    classes[0xc1] = ODD;
    classes[0xe0] = ODD;
    classes[0xf0] = ODD;
    classes[b'?' as usize] = END;
    classes
};

/// The path, if every server reads it as it is written, and whether it has upper-case letters.
pub(super) fn plain(raw: &[u8]) -> Option<(NormalizedPath<'_>, bool)> {
    if raw.first() != Some(&b'/') {
        return None;
    }
    let mut before = 0;
    let mut has_uppercase = false;
    let mut end = raw.len();
    for (at, byte) in raw.iter().enumerate() {
        let class = BYTE_CLASSES.get(usize::from(*byte)).copied().unwrap_or(0);
        // After a slash, a dot may begin `.`, `..` or a name; `readings` tells them apart.
        if before & SLASH != 0 && class & (SLASH | DOT) != 0 {
            return None;
        }
        // One test for all that is rare, because every byte of every path comes here.
        if class & (ODD | END | UPPERCASE) != 0 {
            match class {
                ODD => return None,
                UPPERCASE => has_uppercase = true,
                _ => {
                    end = at;
                    break;
                }
            }
        }
        before = class;
    }
    let full = raw.get(..end).filter(|full| full.len() <= MAX_PATH_LEN)?;
    Some((NormalizedPath { full }, has_uppercase))
}

/// The path without its query.
pub(super) fn without_query(raw: &[u8]) -> &[u8] {
    let end = raw.iter().position(|byte| *byte == b'?');
    raw.get(..end.unwrap_or(raw.len())).unwrap_or_default()
}

#[cfg(test)]
mod tests;
