//! The bearer tokens of the admin listener.
//!
//! Must not know: HTTP, where tokens come from, what permissions allow.

use std::fmt;

use super::routes::Permission;
use crate::listen::is_same_secret;

/// Shorter tokens can be guessed.
const MIN_TOKEN_LEN: usize = 16;
/// Of 28 million random tokens with 32 hexadecimal digits one has fewer.
const MIN_DIFFERENT_CHARACTERS: usize = 8;
/// No useful token is longer.
const MAX_TOKEN_LEN: usize = 512;

/// The tokens of an admin listener. The operate token also allows reading.
#[derive(Clone, Default)]
pub struct AdminTokens {
    read: Option<Token>,
    operate: Option<Token>,
}

/// A secret token. It is compared in constant time and never shown.
#[derive(Clone)]
struct Token(Box<[u8]>);

impl AdminTokens {
    /// Tokens of 16 to 512 printable characters without spaces. They must differ.
    ///
    /// Which token is invalid, and why.
    pub fn new(read: Option<&str>, operate: Option<&str>) -> Result<Self, InvalidAdminToken> {
        if read.is_some() && read == operate {
            let reason = "it is the same as the read token, which must not be able to operate";
            return Err(InvalidAdminToken {
                which: "operate",
                reason,
            });
        }
        let token = |which, text: Option<&str>| {
            let token = text.map(Token::new).transpose();
            token.map_err(|reason| InvalidAdminToken { which, reason })
        };
        Ok(Self {
            read: token("read", read)?,
            operate: token("operate", operate)?,
        })
    }

    /// Whether any token is set, so that requests need one.
    #[must_use]
    pub const fn is_any_set(&self) -> bool {
        self.read.is_some() || self.operate.is_some()
    }

    /// The token that can be guessed, if there is one: it has fewer than 128 bits.
    pub(super) fn weak_token(&self) -> Option<&'static str> {
        let tokens = [("read", &self.read), ("operate", &self.operate)];
        let is_weak =
            |token: &Option<Token>| token.as_ref().is_some_and(|token| !token.has_128_bits());
        let found = tokens.into_iter().find(|(_, token)| is_weak(token));
        found.map(|(which, _)| which)
    }

    /// Whether there is an operate token.
    pub(super) const fn can_operate(&self) -> bool {
        self.operate.is_some()
    }

    /// The permission of a token.
    pub(super) fn permission_of(&self, token: &[u8]) -> Option<Permission> {
        let is = |known: &Option<Token>| known.as_ref().is_some_and(|known| known.matches(token));
        // Compare both, whatever the first comparison gives.
        let (reads, operates) = (is(&self.read), is(&self.operate));
        if operates {
            Some(Permission::Operate)
        } else {
            reads.then_some(Permission::Read)
        }
    }
}

impl Token {
    fn new(text: &str) -> Result<Self, &'static str> {
        match text.len() {
            0 => Err("it is empty"),
            len if len < MIN_TOKEN_LEN => {
                Err("it is shorter than 16 characters and can be guessed")
            }
            len if len > MAX_TOKEN_LEN => Err("it is longer than 512 characters"),
            _ if !text.bytes().all(|byte| byte.is_ascii_graphic()) => Err(
                "it has characters that a header cannot carry: use letters, digits and punctuation",
            ),
            _ => Ok(Self(text.as_bytes().into())),
        }
    }

    fn matches(&self, token: &[u8]) -> bool {
        let Self(expected) = self;
        is_same_secret(expected, token)
    }

    /// Whether an attacker who knows the alphabet and the length of the token has at least 2^128 tokens to try. A token from
    /// a generator has so many if it is long enough. A token with few different characters is not from one.
    fn has_128_bits(&self) -> bool {
        let Self(token) = self;
        let has = |is_in: fn(&u8) -> bool| token.iter().any(is_in);
        let is_only = |is_in: fn(&u8) -> bool| token.iter().all(is_in);
        let is_hex = is_only(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
            || is_only(|byte| matches!(byte, b'0'..=b'9' | b'A'..=b'F'));
        let alphabet: u128 = if is_hex && !is_only(u8::is_ascii_digit) {
            16
        } else {
            let classes: [(bool, u128); 4] = [
                (has(u8::is_ascii_digit), 10),
                (has(u8::is_ascii_lowercase), 26),
                (has(u8::is_ascii_uppercase), 26),
                (has(u8::is_ascii_punctuation), 32),
            ];
            let used = classes.iter().filter(|(is_used, _)| *is_used);
            used.map(|(_, size)| size).sum()
        };
        let mut different = token.to_vec();
        different.sort_unstable();
        different.dedup();
        let len = u32::try_from(token.len()).unwrap_or(u32::MAX);
        // `None` means 2^128 or more.
        alphabet.checked_pow(len).is_none() && different.len() >= MIN_DIFFERENT_CHARACTERS
    }
}

impl fmt::Debug for AdminTokens {
    /// Shows only which tokens are set.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tokens")
            .field("read", &self.read.is_some())
            .field("operate", &self.operate.is_some())
            .finish()
    }
}

/// An invalid token. The token itself is not shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidAdminToken {
    /// `read` or `operate`.
    pub which: &'static str,
    /// What is wrong with it.
    pub reason: &'static str,
}

impl fmt::Display for InvalidAdminToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the admin {} token: {}", self.which, self.reason)
    }
}

impl std::error::Error for InvalidAdminToken {}

#[cfg(test)]
mod tests {
    use super::*;

    const READ: &str = "read-0123456789abcdef";
    const OPERATE: &str = "operate-0123456789abcdef";

    #[test]
    fn each_token_gives_its_own_right_and_nothing_else_does() {
        let tokens = AdminTokens::new(Some(READ), Some(OPERATE)).unwrap();
        let right = |token: &str| tokens.permission_of(token.as_bytes());
        assert_eq!(right(READ), Some(Permission::Read));
        assert_eq!(right(OPERATE), Some(Permission::Operate));
        let longer = format!("{READ}x");
        let last = READ.replace("cdef", "cdeF");
        for wrong in ["", "x", &READ[1..], &READ[..READ.len() - 1], &longer, &last] {
            assert_eq!(right(wrong), None, "{wrong:?}");
        }
        assert_eq!(AdminTokens::default().permission_of(b""), None);
    }

    #[test]
    fn tokens_that_can_be_guessed_or_not_be_sent_are_refused() {
        let fifteen = "0123456789abcde";
        for wrong in [
            "",
            fifteen,
            &"x".repeat(513),
            "0123456789 abcdef",
            "0123456789abcdeé",
        ] {
            assert!(AdminTokens::new(Some(wrong), None).is_err(), "{wrong:?}");
            assert!(AdminTokens::new(None, Some(wrong)).is_err(), "{wrong:?}");
        }
        let same = AdminTokens::new(Some(READ), Some(READ)).unwrap_err();
        assert_eq!(same.which, "operate");
    }

    #[test]
    fn a_token_is_never_shown() {
        let tokens = AdminTokens::new(Some(READ), None).unwrap();
        assert_eq!(
            format!("{tokens:?}"),
            "Tokens { read: true, operate: false }"
        );
        let wrong = AdminTokens::new(None, Some("short-secret")).unwrap_err();
        assert!(!format!("{wrong} {wrong:?}").contains("short-secret"));
    }
}
