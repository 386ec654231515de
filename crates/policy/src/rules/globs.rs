//! Patterns with `*`, `**` and `?`: whether a value looks like one, in time that grows with the value and not with the ways
//! to read it.
//!
//! Text before the first and after the last wildcard is compared as it is; between them all readings of the pattern are
//! followed at once, byte by byte, as a set of places in it. Must not know: attributes, policies.

use super::draft::MOST_GLOB_BYTES;

/// Words of a set of places: one for each token and one behind the last.
const WORDS: usize = MOST_GLOB_BYTES / 64 + 1;

/// A compiled glob.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pattern {
    before: Box<[u8]>,
    /// From the first wildcard to the last. Empty if there is none; then `before` is all of it.
    between: Box<[Token]>,
    after: Box<[u8]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token {
    Byte(u8),
    /// The first byte of a character that is not `/`.
    Character,
    /// The other bytes of that character.
    Continued,
    /// `*`
    Run,
    /// `**`
    AnyRun,
    /// Before `**/` that follows a `/` or begins the pattern: both may be left out, so that `/a/**/b` is also `/a/b`.
    MayLeaveOut,
}

impl Pattern {
    /// The pattern of a glob; `None` if there is too much between its wildcards.
    pub(super) fn new(glob: &[u8]) -> Option<Self> {
        let glob = &two_stars_at_most(glob)[..];
        let is_wild = |byte: &u8| matches!(byte, b'*' | b'?');
        let (Some(first), Some(last)) = (
            glob.iter().position(is_wild),
            glob.iter().rposition(is_wild),
        ) else {
            return Some(Self {
                before: glob.into(),
                between: Box::default(),
                after: Box::default(),
            });
        };
        let (head, after) = glob.split_at_checked(last + 1)?;
        let (before, between) = head.split_at_checked(first)?;
        // The slash of `**/` belongs to what may be left out.
        let (between, after) = match after {
            [b'/', rest @ ..] if between.ends_with(b"**") && leaves_out(before, between) => {
                (glob.get(first..last + 2)?, rest)
            }
            _ => (between, after),
        };
        let between = tokens(before, between);
        (between.len() <= MOST_GLOB_BYTES).then(|| Self {
            before: before.into(),
            between: between.into(),
            after: after.into(),
        })
    }

    /// What a value must begin with.
    pub(super) fn before(&self) -> &[u8] {
        &self.before
    }

    /// What a value must end with.
    pub(super) fn after(&self) -> &[u8] {
        &self.after
    }

    /// Whether a value looks like this.
    pub(super) fn matches(&self, value: &[u8]) -> bool {
        if self.between.is_empty() {
            return *value == *self.before;
        }
        let Some(between) = value
            .strip_prefix(&*self.before)
            .and_then(|rest| rest.strip_suffix(&*self.after))
        else {
            return false;
        };
        match *self.between {
            [Token::AnyRun] => true,
            [Token::Run] => !between.contains(&b'/'),
            _ => self.follow(between),
        }
    }

    /// Follows every reading at once.
    fn follow(&self, value: &[u8]) -> bool {
        let mut now = Places::default();
        self.reach(0, &mut now);
        for byte in value {
            let mut next = Places::default();
            now.each(|place| match self.between.get(place) {
                Some(Token::Byte(expected)) if expected == byte => self.reach(place + 1, &mut next),
                Some(Token::Character) if *byte != b'/' && !is_continuation(*byte) => {
                    self.reach(place + 1, &mut next);
                }
                Some(Token::Continued) if is_continuation(*byte) => self.reach(place, &mut next),
                Some(Token::Run) if *byte != b'/' => self.reach(place, &mut next),
                Some(Token::AnyRun) => self.reach(place, &mut next),
                _ => {}
            });
            if next.is_empty() {
                return false;
            }
            now = next;
        }
        now.holds(self.between.len())
    }

    /// Adds a place, and those that can be reached from it without a byte.
    fn reach(&self, mut place: usize, places: &mut Places) {
        loop {
            match self.between.get(place) {
                Some(Token::AnyRun) => {
                    // Whatever could still come by an earlier place can come by this one too.
                    places.forget_below(place);
                }
                Some(Token::Run | Token::Continued) => {}
                Some(Token::MayLeaveOut) => self.reach(place + 3, places),
                _ => return places.add(place),
            }
            places.add(place);
            place += 1;
        }
    }
}

/// More stars in a row than two say nothing more than two.
fn two_stars_at_most(glob: &[u8]) -> Vec<u8> {
    let mut text: Vec<u8> = Vec::with_capacity(glob.len());
    for byte in glob {
        if *byte != b'*' || !text.ends_with(b"**") {
            text.push(*byte);
        }
    }
    text
}

fn leaves_out(before: &[u8], between: &[u8]) -> bool {
    match between {
        b"**" => before.last().is_none_or(|byte| *byte == b'/'),
        _ => between.ends_with(b"/**"),
    }
}

fn tokens(before: &[u8], mut glob: &[u8]) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut last = before.last().copied();
    while let Some((byte, rest)) = glob.split_first() {
        glob = rest;
        match byte {
            b'*' if glob.first() == Some(&b'*') => {
                glob = glob.get(1..).unwrap_or_default();
                if last.is_none_or(|byte| byte == b'/') && glob.first() == Some(&b'/') {
                    tokens.push(Token::MayLeaveOut);
                }
                tokens.push(Token::AnyRun);
            }
            b'*' => tokens.push(Token::Run),
            b'?' => tokens.extend([Token::Character, Token::Continued]),
            byte => tokens.push(Token::Byte(*byte)),
        }
        last = Some(*byte);
    }
    tokens
}

const fn is_continuation(byte: u8) -> bool {
    byte & 0b1100_0000 == 0b1000_0000
}

/// A set of places in a pattern.
#[derive(Clone, Copy)]
struct Places {
    words: [u64; WORDS],
    /// Smaller ones were forgotten and need not come back.
    lowest: usize,
}

impl Default for Places {
    fn default() -> Self {
        Self {
            words: [0; WORDS],
            lowest: 0,
        }
    }
}

impl Places {
    fn add(&mut self, place: usize) {
        if place >= self.lowest
            && let Some(word) = self.words.get_mut(place / 64)
        {
            *word |= 1 << (place % 64);
        }
    }

    fn forget_below(&mut self, place: usize) {
        if place <= self.lowest {
            return;
        }
        self.lowest = place;
        for (index, word) in self.words.iter_mut().enumerate() {
            match place.checked_sub(index * 64) {
                None | Some(0) => return,
                Some(64..) => *word = 0,
                Some(bits) => *word &= u64::MAX << bits,
            }
        }
    }

    fn holds(&self, place: usize) -> bool {
        let word = self.words.get(place / 64).copied().unwrap_or(0);
        word >> (place % 64) & 1 == 1
    }

    fn is_empty(&self) -> bool {
        self.words.iter().all(|word| *word == 0)
    }

    fn each(&self, mut visit: impl FnMut(usize)) {
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
        Pattern::new(glob.as_bytes())
            .unwrap()
            .matches(value.as_bytes())
    }

    #[test]
    fn wildcards_stand_for_what_they_say() {
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

    /// With backtracking this would take longer than anyone waits.
    #[test]
    fn a_pattern_that_can_be_read_in_many_ways_is_still_answered() {
        let glob = "*a".repeat(200) + "*b";
        assert!(!matches(&glob, &"a".repeat(5_000)));
        let glob = "**a*".repeat(100) + "b";
        assert!(!matches(&glob, &"a".repeat(5_000)));
        assert!(matches(&glob, &("a".repeat(5_000) + "b")));
    }

    #[test]
    fn what_is_too_long_is_refused_and_the_longest_is_not() {
        let long = |bytes: usize| format!("prefix*{}*suffix", "x".repeat(bytes));
        assert!(Pattern::new(long(MOST_GLOB_BYTES - 2).as_bytes()).is_some());
        assert!(Pattern::new(long(MOST_GLOB_BYTES - 1).as_bytes()).is_none());
        let value = long(MOST_GLOB_BYTES - 2);
        assert!(matches(&value, &value));
    }
}
