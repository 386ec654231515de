//! Scans structured fields (RFC 9651): lists and dictionaries of items with parameters, without allocating.
//!
//! Inner lists are refused: no rate limit field has them. Must not know: what members and parameters mean.

use std::borrow::Cow;

/// The most members of a field and parameters of a member that are read. A longer field is malformed.
const MAX_MEMBERS: usize = 64;
const MAX_PARAMETERS: usize = 32;
/// Members after the first for which there is room at once.
const FEW_MEMBERS: usize = 3;

/// A field that does not follow the grammar, or is too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed;

/// A value without its parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum BareItem<'a> {
    /// An integer, in its range of fifteen digits.
    Integer(i64),
    /// A String without its quotes and escapes.
    String(Cow<'a, str>),
    /// A Token.
    Token(&'a str),
    /// A Byte Sequence, still as base64.
    Bytes(&'a str),
    /// A Decimal, Boolean, Date or Display String: no rate limit field has one.
    Other,
}

impl<'a> BareItem<'a> {
    /// The integer, if it is one and not negative.
    pub(super) fn as_count(&self) -> Option<u64> {
        match self {
            Self::Integer(number) => u64::try_from(*number).ok(),
            _ => None,
        }
    }

    /// The name: a String or a Token. The drafts give both types the same meaning.
    pub(super) fn into_name(self) -> Option<Cow<'a, str>> {
        match self {
            Self::String(name) => Some(name),
            Self::Token(name) => Some(name.into()),
            _ => None,
        }
    }

    /// The same without taking it.
    pub(super) fn as_name(&self) -> Option<&str> {
        match self {
            Self::String(name) => Some(name),
            Self::Token(name) => Some(name),
            _ => None,
        }
    }
}

/// A scanner over one field value.
pub(super) struct Scanner<'a> {
    rest: &'a str,
}

impl<'a> Scanner<'a> {
    /// A scanner of a field value. Only printable ASCII can be well-formed.
    pub(super) fn new(value: &'a [u8]) -> Result<Self, Malformed> {
        // Without branches, so that the compiler looks at many bytes at once.
        let is_printable = |byte: u8| matches!(byte, b' '..=b'~') | (byte == b'\t');
        let is_printable = value
            .iter()
            .fold(true, |all, byte| all & is_printable(*byte));
        match str::from_utf8(value) {
            Ok(text) if is_printable => Ok(Self {
                rest: text.trim_matches(' '),
            }),
            _ => Err(Malformed),
        }
    }

    /// Calls `accept` with each member of a list, as `member` has scanned it, once the whole list is well-formed: a malformed one has
    /// no members. `member` has to scan the whole member.
    pub(super) fn list<T>(
        &mut self,
        mut member: impl FnMut(&mut Self) -> Result<T, Malformed>,
        mut accept: impl FnMut(T),
    ) -> Result<(), Malformed> {
        let first = member(self)?;
        // Most lists have one member, so only longer ones are kept meanwhile.
        if !self.has_another_member()? {
            accept(first);
            return Ok(());
        }
        let mut others = Vec::with_capacity(FEW_MEMBERS);
        loop {
            others.push(member(self)?);
            if !self.has_another_member()? {
                break;
            }
            if others.len() + 1 >= MAX_MEMBERS {
                return Err(Malformed);
            }
        }
        accept(first);
        others.into_iter().for_each(accept);
        Ok(())
    }

    /// Whether a member follows the one that was just scanned. A comma without a member is malformed.
    fn has_another_member(&mut self) -> Result<bool, Malformed> {
        self.skip(" \t");
        if self.rest.is_empty() {
            return Ok(false);
        }
        let has_comma = self.take(b',');
        self.skip(" \t");
        if has_comma && !self.rest.is_empty() {
            Ok(true)
        } else {
            Err(Malformed)
        }
    }

    /// The key of a dictionary's member. `None` in place of the value means true.
    pub(super) fn dictionary_member(
        &mut self,
    ) -> Result<(&'a str, Option<BareItem<'a>>), Malformed> {
        let key = self.key()?;
        if !self.take(b'=') {
            return Ok((key, None));
        }
        Ok((key, Some(self.bare_item()?)))
    }

    /// Calls `parameter` with each parameter of the item that was just scanned.
    pub(super) fn parameters(
        &mut self,
        mut parameter: impl FnMut(&'a str, BareItem<'a>),
    ) -> Result<(), Malformed> {
        for _ in 0..=MAX_PARAMETERS {
            if !self.take(b';') {
                return Ok(());
            }
            self.skip(" ");
            let key = self.key()?;
            let value = if self.take(b'=') {
                self.bare_item()?
            } else {
                BareItem::Other
            };
            parameter(key, value);
        }
        Err(Malformed)
    }

    /// A value without its parameters.
    pub(super) fn bare_item(&mut self) -> Result<BareItem<'a>, Malformed> {
        match self.rest.bytes().next().ok_or(Malformed)? {
            b'-' | b'0'..=b'9' => self.number(),
            b'"' => self.string(),
            b':' => self.byte_sequence(),
            b'?' => self.boolean(),
            b'@' => {
                self.advance(1);
                match self.number()? {
                    BareItem::Integer(_) => Ok(BareItem::Other),
                    _ => Err(Malformed),
                }
            }
            b'*' | b'a'..=b'z' | b'A'..=b'Z' => {
                let is_token =
                    |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~:/".contains(c);
                Ok(BareItem::Token(self.take_while(is_token)))
            }
            _ => Err(Malformed),
        }
    }

    fn number(&mut self) -> Result<BareItem<'a>, Malformed> {
        let is_negative = self.take(b'-');
        let whole = self.take_while(|c| c.is_ascii_digit());
        if self.take(b'.') {
            let fraction = self.take_while(|c| c.is_ascii_digit());
            let fits = (1..=12).contains(&whole.len()) && (1..=3).contains(&fraction.len());
            return if fits {
                Ok(BareItem::Other)
            } else {
                Err(Malformed)
            };
        }
        if whole.len() > 15 {
            return Err(Malformed);
        }
        let number: i64 = whole.parse().map_err(|_not_digits| Malformed)?;
        Ok(BareItem::Integer(if is_negative {
            -number
        } else {
            number
        }))
    }

    fn string(&mut self) -> Result<BareItem<'a>, Malformed> {
        self.advance(1);
        let plain = self.take_while(|c| !matches!(c, '"' | '\\' | '\t'));
        if self.take(b'"') {
            return Ok(BareItem::String(Cow::Borrowed(plain)));
        }
        let mut text = String::from(plain);
        loop {
            if self.take(b'\\') {
                match self.rest.bytes().next() {
                    Some(b'"') => text.push('"'),
                    Some(b'\\') => text.push('\\'),
                    _ => return Err(Malformed),
                }
                self.advance(1);
            } else if self.take(b'"') {
                return Ok(BareItem::String(Cow::Owned(text)));
            } else {
                let more = self.take_while(|c| !matches!(c, '"' | '\\' | '\t'));
                if more.is_empty() {
                    return Err(Malformed);
                }
                text.push_str(more);
            }
        }
    }

    fn byte_sequence(&mut self) -> Result<BareItem<'a>, Malformed> {
        self.advance(1);
        let base64 = self.take_while(|c| c.is_ascii_alphanumeric() || "+/=".contains(c));
        if self.take(b':') {
            Ok(BareItem::Bytes(base64))
        } else {
            Err(Malformed)
        }
    }

    fn boolean(&mut self) -> Result<BareItem<'a>, Malformed> {
        self.advance(1);
        if self.take(b'0') || self.take(b'1') {
            Ok(BareItem::Other)
        } else {
            Err(Malformed)
        }
    }

    fn key(&mut self) -> Result<&'a str, Malformed> {
        if !self
            .rest
            .starts_with(|c: char| c.is_ascii_lowercase() || c == '*')
        {
            return Err(Malformed);
        }
        let is_key = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "_-.*".contains(c);
        Ok(self.take_while(is_key))
    }

    fn take(&mut self, byte: u8) -> bool {
        let is_next = self.rest.as_bytes().first() == Some(&byte);
        if is_next {
            self.advance(1);
        }
        is_next
    }

    fn take_while(&mut self, keep: impl Fn(char) -> bool) -> &'a str {
        let end = self.rest.find(|c| !keep(c)).unwrap_or(self.rest.len());
        let (taken, rest) = self.rest.split_at(end);
        self.rest = rest;
        taken
    }

    fn skip(&mut self, spaces: &str) {
        self.rest = self.rest.trim_start_matches(|c| spaces.contains(c));
    }

    fn advance(&mut self, bytes: usize) {
        self.rest = self.rest.get(bytes..).unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn scan(value: &[u8]) -> Result<usize, Malformed> {
        let mut count = 0;
        Scanner::new(value)?.list(
            |scanner| {
                scanner.bare_item()?;
                scanner.parameters(|_, _| ())
            },
            |()| count += 1,
        )?;
        Ok(count)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        // Letters from which fields are made, so that random texts are often well-formed.
        #[test]
        fn lists_are_accepted_exactly_when_an_independent_parser_accepts_them(
            text in "([a-c*1-3\"\\\\:;=,. ?@-]|\"p\";r=1;t=2|, |\"a\";q=10){1,8}",
        ) {
            let theirs = sfv::Parser::new(text.as_bytes()).parse::<sfv::List>();
            let ours = scan(text.as_bytes());
            match (theirs, ours) {
                (Ok(list), Ok(count)) => prop_assert_eq!(list.len(), count),
                (Err(_), Err(Malformed)) => {}
                // Bytes are not decoded, so base64 that is cut short is accepted; it is only compared.
                (Err(_), Ok(_)) => prop_assert!(text.contains(':')),
                (Ok(list), Err(Malformed)) => prop_assert!(list.is_empty(), "{text}"),
            }
        }
    }

    #[test]
    fn too_many_members_or_parameters_are_malformed() {
        let members = |count: usize| vec!["a"; count].join(", ");
        assert_eq!(scan(members(64).as_bytes()), Ok(64));
        assert_eq!(scan(members(65).as_bytes()), Err(Malformed));
        let parameters = |count: usize| format!("a{}", ";p=1".repeat(count));
        assert_eq!(scan(parameters(32).as_bytes()), Ok(1));
        assert_eq!(scan(parameters(33).as_bytes()), Err(Malformed));
    }
}
