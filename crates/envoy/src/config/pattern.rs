//! Compares entries as the format does, as `key_value`, and matches them against patterns with `*`. Nothing here allocates.
//!
//! The format joins key and value by an underscore and compares the result. So key `a` with value `b_c` equals key `a_b` with
//! value `c`, and a pattern may span the underscore. Existing files rely on that, so matching does the same. Counter keys are
//! not joined. Must not know: trees, rules.

use super::request::DescriptorEntry;

/// A key and a value joined by an underscore, or a text by itself.
#[derive(Clone, Copy)]
pub(super) struct JoinedEntry<'a> {
    key: &'a [u8],
    value: Option<&'a [u8]>,
}

impl<'a> JoinedEntry<'a> {
    /// The entry as `key_value`.
    pub(super) const fn from_entry(entry: &DescriptorEntry<'a>) -> Self {
        Self {
            key: entry.key.as_bytes(),
            value: Some(entry.value.as_bytes()),
        }
    }

    /// A text by itself.
    pub(super) const fn from_text(key: &'a str) -> Self {
        Self {
            key: key.as_bytes(),
            value: None,
        }
    }

    const fn len(&self) -> usize {
        match self.value {
            Some(value) => self.key.len().saturating_add(value.len()).saturating_add(1),
            None => self.key.len(),
        }
    }

    fn bytes(&self) -> impl Iterator<Item = u8> + use<'a> {
        let joint: &[u8] = if self.value.is_some() { b"_" } else { b"" };
        let value = self.value.unwrap_or_default();
        let all = self.key.iter().chain(joint).chain(value);
        all.copied()
    }

    /// FNV-1a. The index contains only texts of the operator's files, so requests cannot cause collisions in it. A keyed hash
    /// would cost more and protect nothing.
    pub(super) fn hash(&self) -> u64 {
        self.bytes().fold(FNV_OFFSET, hash_byte)
    }

    /// The hashes of its prefixes of these lengths, which are sorted, up to its own length.
    pub(super) fn prefix_hashes<'l>(
        &self,
        lengths: &'l [usize],
    ) -> impl Iterator<Item = u64> + use<'a, 'l> {
        let (mut bytes, mut hash, mut hashed) = (self.bytes(), FNV_OFFSET, 0);
        lengths.iter().map_while(move |&length| {
            while hashed < length {
                hash = hash_byte(hash, bytes.next()?);
                hashed += 1;
            }
            Some(hash)
        })
    }

    /// Whether it equals the text.
    pub(super) fn equals(&self, text: &str) -> bool {
        self.len() == text.len() && self.has_at(0, text.as_bytes())
    }

    /// Whether these bytes are at this offset.
    fn has_at(&self, at: usize, part: &[u8]) -> bool {
        let Some(value) = self.value else {
            return slice_has_at(self.key, at, part);
        };
        // Nearly every comparison is within the value, or starts at the key.
        let begins = self.key.len().saturating_add(1);
        match at.checked_sub(begins) {
            Some(at) => slice_has_at(value, at, part),
            None => {
                let end = at.saturating_add(part.len());
                end <= self.len() && self.bytes().skip(at).zip(part).all(|(a, b)| a == *b)
            }
        }
    }

    /// The first offset of these bytes within `from..to`.
    fn find(&self, from: usize, to: usize, part: &[u8]) -> Option<usize> {
        let last = to.checked_sub(part.len())?;
        (from..=last).find(|&at| self.has_at(at, part))
    }
}

const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;

fn hash_byte(hash: u64, byte: u8) -> u64 {
    (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
}

fn slice_has_at(text: &[u8], at: usize, part: &[u8]) -> bool {
    text.get(at..).is_some_and(|rest| rest.starts_with(part))
}

/// A pattern: every `*` matches any number of characters.
#[derive(Debug)]
pub(super) struct Pattern {
    first: Box<str>,
    middle: Box<[Box<str>]>,
    last: Box<str>,
    fixed: usize,
}

impl Pattern {
    /// The pattern of a text. `None` if the text has no `*`.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (first, rest) = text.split_once('*')?;
        let (middle, last) = rest.rsplit_once('*').unwrap_or(("", rest));
        // Adjacent stars leave empty parts, which match anywhere.
        let middle: Box<[Box<str>]> = middle
            .split('*')
            .filter(|part| !part.is_empty())
            .map(Into::into)
            .collect();
        let fixed = middle
            .iter()
            .fold(first.len().saturating_add(last.len()), |sum, part| {
                sum.saturating_add(part.len())
            });
        Some(Self {
            first: first.into(),
            middle,
            last: last.into(),
            fixed,
        })
    }

    /// The text before the first star.
    pub(super) fn prefix(&self) -> &str {
        &self.first
    }

    /// Whether an entry matches. Searching the parts between stars from the left finds a match if there is one.
    pub(super) fn matches(&self, text: &JoinedEntry<'_>) -> bool {
        let Some(end) = text.len().checked_sub(self.last.len()) else {
            return false;
        };
        if text.len() < self.fixed
            || !text.has_at(0, self.first.as_bytes())
            || !text.has_at(end, self.last.as_bytes())
        {
            return false;
        }
        let mut from = self.first.len();
        for part in &self.middle {
            let Some(at) = text.find(from, end, part.as_bytes()) else {
                return false;
            };
            from = at.saturating_add(part.len());
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn entry<'a>(key: &'a str, value: &'a str) -> DescriptorEntry<'a> {
        DescriptorEntry { key, value }
    }

    fn matches(pattern: &str, key: &str, value: &str) -> bool {
        Pattern::parse(pattern)
            .unwrap()
            .matches(&JoinedEntry::from_entry(&entry(key, value)))
    }

    #[test]
    fn a_star_matches_any_text_and_the_empty_text() {
        assert!(matches("path_/api/*", "path", "/api/"));
        assert!(matches("path_/api/*", "path", "/api/x/y"));
        assert!(!matches("path_/api/*", "path", "/ap"));
        assert!(matches("p_a*b*c", "p", "abc"));
        assert!(matches("p_a*b*c", "p", "a-b-b-c"));
        assert!(!matches("p_a*b*c", "p", "acb"));
        assert!(matches("p_**x", "p", "x"));
        assert!(matches("*", "any", "thing"));
    }

    #[test]
    fn beginning_and_end_do_not_overlap() {
        assert!(!matches("p_aba*aba", "p", "aba"));
        assert!(matches("p_aba*aba", "p", "abaaba"));
        assert!(!matches("p_ab*b*b", "p", "abb"));
    }

    #[test]
    fn a_pattern_may_span_key_and_value() {
        assert!(matches("a_b*", "a_b", "c"));
        assert!(matches("a*c", "a", "c"));
        assert!(matches("a*_c", "a", "c"));
    }

    /// Matches by trying every length for every star.
    fn matches_slowly(pattern: &[u8], text: &[u8]) -> bool {
        match pattern.split_first() {
            None => text.is_empty(),
            Some((b'*', rest)) => (0..=text.len()).any(|skip| matches_slowly(rest, &text[skip..])),
            Some((byte, rest)) => text.first() == Some(byte) && matches_slowly(rest, &text[1..]),
        }
    }

    proptest! {
        #[test]
        fn patterns_match_as_by_exhaustive_search(
            pattern in "[ab_*]{0,6}\\*[ab_*]{0,4}",
            key in "[ab_]{0,4}",
            value in "[ab_*]{0,8}",
        ) {
            let whole = format!("{key}_{value}");
            let expected = matches_slowly(pattern.as_bytes(), whole.as_bytes());
            prop_assert_eq!(matches(&pattern, &key, &value), expected);
            let joined_entry = entry(&key, &value);
            let joined = JoinedEntry::from_entry(&joined_entry);
            prop_assert!(joined.equals(&whole));
            prop_assert_eq!(joined.hash(), JoinedEntry::from_text(&whole).hash());
        }
    }
}
