//! Globs with `*`, `**` and `?`. Matching takes time linear in the value, without backtracking.
//!
//! The literal prefix and suffix are compared directly. The middle is simulated as an NFA, byte by byte, with a set of
//! positions. Must not know: attributes, policies.

use super::draft::MAX_GLOB_BYTES;

/// Words of a position set: one bit per token and one for the end.
const SET_WORDS: usize = MAX_GLOB_BYTES / 64 + 1;

/// A compiled glob.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct GlobPattern {
    prefix: Box<[u8]>,
    /// From the first wildcard to the last. Empty if there is none; then `prefix` is the whole glob.
    middle: Box<[Token]>,
    suffix: Box<[u8]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token {
    Byte(u8),
    /// The first byte of a character that is not `/`.
    Character,
    /// The other bytes of that character.
    Continuation,
    /// `*`
    Star,
    /// `**`
    DoubleStar,
    /// Before `**/` that follows a `/` or begins the glob: both may be omitted, so that `/a/**/b` matches `/a/b`.
    OptionalSegments,
}

impl GlobPattern {
    /// Compiles a glob; `None` if the part between its wildcards is too long.
    pub(super) fn new(glob: &[u8]) -> Option<Self> {
        let glob = &collapse_stars(glob)[..];
        let is_wild = |byte: &u8| matches!(byte, b'*' | b'?');
        let (Some(first), Some(last)) = (
            glob.iter().position(is_wild),
            glob.iter().rposition(is_wild),
        ) else {
            return Some(Self {
                prefix: glob.into(),
                middle: Box::default(),
                suffix: Box::default(),
            });
        };
        let (head, after) = glob.split_at_checked(last + 1)?;
        let (before, between) = head.split_at_checked(first)?;
        // The slash of `**/` belongs to the optional part.
        let (between, after) = match after {
            [b'/', rest @ ..]
                if between.ends_with(b"**") && has_optional_segments(before, between) =>
            {
                (glob.get(first..last + 2)?, rest)
            }
            _ => (between, after),
        };
        let between = tokenize(before, between);
        (between.len() <= MAX_GLOB_BYTES).then(|| Self {
            prefix: before.into(),
            middle: between.into(),
            suffix: after.into(),
        })
    }

    /// The literal prefix.
    pub(super) fn prefix(&self) -> &[u8] {
        &self.prefix
    }

    /// The literal suffix.
    pub(super) fn suffix(&self) -> &[u8] {
        &self.suffix
    }

    /// Whether its literal text has an upper-case letter.
    pub(super) fn has_uppercase(&self) -> bool {
        let middle = self.middle.iter().filter_map(|token| match token {
            Token::Byte(byte) => Some(byte),
            _ => None,
        });
        let mut all = self.prefix.iter().chain(middle).chain(&self.suffix);
        all.any(u8::is_ascii_uppercase)
    }

    /// Whether a value matches.
    pub(super) fn matches(&self, value: &[u8]) -> bool {
        if self.middle.is_empty() {
            return *value == *self.prefix;
        }
        let Some(between) = value
            .strip_prefix(&*self.prefix)
            .and_then(|rest| rest.strip_suffix(&*self.suffix))
        else {
            return false;
        };
        match *self.middle {
            [Token::DoubleStar] => true,
            [Token::Star] => !between.contains(&b'/'),
            _ => self.simulate(between),
        }
    }

    /// Simulates the NFA.
    fn simulate(&self, value: &[u8]) -> bool {
        let mut now = PositionSet::default();
        self.add_closure(0, &mut now);
        for byte in value {
            let mut next = PositionSet::default();
            now.for_each(|position| match self.middle.get(position) {
                Some(Token::Byte(expected)) if expected == byte => {
                    self.add_closure(position + 1, &mut next);
                }
                Some(Token::Character) if *byte != b'/' && !is_continuation(*byte) => {
                    self.add_closure(position + 1, &mut next);
                }
                Some(Token::Continuation) if is_continuation(*byte) => {
                    self.add_closure(position, &mut next);
                }
                Some(Token::Star) if *byte != b'/' => self.add_closure(position, &mut next),
                Some(Token::DoubleStar) => self.add_closure(position, &mut next),
                _ => {}
            });
            if next.is_empty() {
                return false;
            }
            now = next;
        }
        now.contains(self.middle.len())
    }

    /// Adds a position and all positions that are reachable without a byte.
    fn add_closure(&self, mut position: usize, positions: &mut PositionSet) {
        loop {
            match self.middle.get(position) {
                Some(Token::DoubleStar) => {
                    // Every match through an earlier position also goes through this one.
                    positions.clear_below(position);
                }
                Some(Token::Star | Token::Continuation) => {}
                Some(Token::OptionalSegments) => self.add_closure(position + 3, positions),
                _ => return positions.add(position),
            }
            positions.add(position);
            position += 1;
        }
    }
}

/// Three or more stars mean the same as two.
fn collapse_stars(glob: &[u8]) -> Vec<u8> {
    let mut text: Vec<u8> = Vec::with_capacity(glob.len());
    for byte in glob {
        if *byte != b'*' || !text.ends_with(b"**") {
            text.push(*byte);
        }
    }
    text
}

fn has_optional_segments(before: &[u8], between: &[u8]) -> bool {
    match between {
        b"**" => before.last().is_none_or(|byte| *byte == b'/'),
        _ => between.ends_with(b"/**"),
    }
}

fn tokenize(before: &[u8], mut glob: &[u8]) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut last = before.last().copied();
    while let Some((byte, rest)) = glob.split_first() {
        glob = rest;
        match byte {
            b'*' if glob.first() == Some(&b'*') => {
                glob = glob.get(1..).unwrap_or_default();
                if last.is_none_or(|byte| byte == b'/') && glob.first() == Some(&b'/') {
                    tokens.push(Token::OptionalSegments);
                }
                tokens.push(Token::DoubleStar);
            }
            b'*' => tokens.push(Token::Star),
            b'?' => tokens.extend([Token::Character, Token::Continuation]),
            byte => tokens.push(Token::Byte(*byte)),
        }
        last = Some(*byte);
    }
    tokens
}

const fn is_continuation(byte: u8) -> bool {
    byte & 0b1100_0000 == 0b1000_0000
}

/// A set of positions in a glob.
#[derive(Clone, Copy)]
struct PositionSet {
    words: [u64; SET_WORDS],
    /// Smaller positions were removed and are not added again.
    lowest: usize,
}

impl Default for PositionSet {
    fn default() -> Self {
        Self {
            words: [0; SET_WORDS],
            lowest: 0,
        }
    }
}

impl PositionSet {
    fn add(&mut self, position: usize) {
        if position >= self.lowest
            && let Some(word) = self.words.get_mut(position / 64)
        {
            *word |= 1 << (position % 64);
        }
    }

    fn clear_below(&mut self, position: usize) {
        if position <= self.lowest {
            return;
        }
        self.lowest = position;
        for (index, word) in self.words.iter_mut().enumerate() {
            match position.checked_sub(index * 64) {
                None | Some(0) => return,
                Some(64..) => *word = 0,
                Some(bits) => *word &= u64::MAX << bits,
            }
        }
    }

    fn contains(&self, position: usize) -> bool {
        let word = self.words.get(position / 64).copied().unwrap_or(0);
        word >> (position % 64) & 1 == 1
    }

    fn is_empty(&self) -> bool {
        self.words.iter().all(|word| *word == 0)
    }

    fn for_each(&self, mut visit: impl FnMut(usize)) {
        for (index, word) in self.words.iter().enumerate() {
            let mut word = *word;
            while word != 0 {
                let bit = usize::try_from(word.trailing_zeros()).unwrap_or(0);
                visit(index * 64 + bit);
                word &= word - 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(glob: &str, value: &str) -> bool {
        GlobPattern::new(glob.as_bytes())
            .unwrap()
            .matches(value.as_bytes())
    }

    #[test]
    fn wildcards_match_their_runs() {
        for (glob, yes, no) in [
            ("abc", &["abc"][..], &["ab", "abcd", ""][..]),
            ("a*c", &["ac", "abc", "abbc"], &["a/c", "ab", "abcd"]),
            ("a**c", &["ac", "a/b/c"], &["a/b"]),
            ("a?c", &["abc", "aöc", "a€c"], &["ac", "a/c", "abbc"]),
            ("??", &["ab", "öß"], &["a", "ö", "abc"]),
            (
                "*.example.com",
                &["a.example.com", ".example.com", "a.b.example.com"],
                &["example.com", "a.example.com.evil"],
            ),
            (
                "/files/**/*.zip",
                &["/files/a.zip", "/files/b/a.zip", "/files/b/c/.zip"],
                &["/files.zip", "/files/a.tar", "/file/a.zip"],
            ),
            ("**/x", &["x", "/x", "a/x", "a/b/x"], &["ax", "a/bx"]),
            (
                "/a/**/b",
                &["/a/b", "/a/c/b", "/a/c/d/b"],
                &["/a/cb", "/ab", "/a/b/c"],
            ),
            (
                "/a/**/b/**/c",
                &["/a/b/c", "/a/x/b/y/c", "/a/b/b/c/c"],
                &["/a/c", "/a/b/xc"],
            ),
            ("/**/b/*", &["/b/", "/b/x", "/a/b/x"], &["/ab/x", "/b/x/y"]),
            ("a*b*c", &["abc", "aXbYc", "abbcc"], &["acb", "ab/c"]),
            ("*", &["", "abc"], &["a/b"]),
            ("**", &["", "a/b"], &[]),
            ("a*a", &["aa", "aba"], &["a"]),
            ("***/", &["", "/", "a/"], &["a"]),
        ] {
            yes.iter()
                .for_each(|value| assert!(matches(glob, value), "{glob} is like {value}"));
            no.iter()
                .for_each(|value| assert!(!matches(glob, value), "{glob} is not like {value}"));
        }
    }

    /// Backtracking would take exponential time here.
    #[test]
    fn a_glob_with_many_stars_matches_without_backtracking() {
        let glob = "*a".repeat(200) + "*b";
        assert!(!matches(&glob, &"a".repeat(5_000)));
        let glob = "**a*".repeat(100) + "b";
        assert!(!matches(&glob, &"a".repeat(5_000)));
        assert!(matches(&glob, &("a".repeat(5_000) + "b")));
    }

    #[test]
    fn a_glob_above_the_bound_is_rejected_and_the_longest_is_not() {
        let long = |bytes: usize| format!("prefix*{}*suffix", "x".repeat(bytes));
        assert!(GlobPattern::new(long(MAX_GLOB_BYTES - 2).as_bytes()).is_some());
        assert!(GlobPattern::new(long(MAX_GLOB_BYTES - 1).as_bytes()).is_none());
        let value = long(MAX_GLOB_BYTES - 2);
        assert!(matches(&value, &value));
    }
}
