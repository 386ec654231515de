//! The parts of a signed token in compact form (RFC 7515): header, claims and signature.
//!
//! Must not know: keys, which claims are accepted.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::rejection::TokenRejection;
use super::strict_json::{JsonMap, parse_object, text_of};

/// A token whose signature has not been verified.
pub(super) struct CompactToken<'a> {
    header: JsonMap,
    pub(super) claims: JsonMap,
    /// The bytes that are signed.
    pub(super) message: &'a [u8],
    pub(super) signature: Vec<u8>,
}

impl<'a> CompactToken<'a> {
    /// Reads a token. Padding, line breaks and other spellings of the same bytes are refused: each token has one spelling.
    pub(super) fn parse(token: &'a [u8]) -> Result<Self, TokenRejection> {
        let malformed = TokenRejection::Malformed;
        let mut dots = token.iter().enumerate().filter(|(_, byte)| **byte == b'.');
        let (Some((first, _)), Some((second, _)), None) = (dots.next(), dots.next(), dots.next())
        else {
            return Err(malformed);
        };
        let part = |from: usize, to: usize| {
            let text = token.get(from..to).ok_or(malformed)?;
            URL_SAFE_NO_PAD.decode(text).map_err(|_invalid| malformed)
        };
        let header = parse_object(&part(0, first)?).ok_or(malformed)?;
        let claims = parse_object(&part(first + 1, second)?).ok_or(malformed)?;
        Ok(Self {
            header,
            claims,
            message: token.get(..second).ok_or(malformed)?,
            signature: part(second + 1, token.len())?,
        })
    }

    /// The algorithm and the key's id. Extensions that have to be understood are not: there are none.
    pub(super) fn algorithm(&self) -> Result<(&str, Option<&str>), TokenRejection> {
        if self.header.contains_key("crit") {
            return Err(TokenRejection::Algorithm);
        }
        let alg = text_of(&self.header, "alg").ok_or(TokenRejection::Malformed)?;
        let kid = match self.header.get("kid") {
            None => None,
            Some(kid) => Some(kid.as_text().ok_or(TokenRejection::Malformed)?),
        };
        Ok((alg, kid))
    }
}

/// The token in the value of a header field or a cookie: without `Bearer`, whose case does not matter.
pub(super) fn without_scheme(value: &[u8]) -> &[u8] {
    const SCHEME: &[u8] = b"bearer ";
    let value = value.trim_ascii();
    match value.split_at_checked(SCHEME.len()) {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case(SCHEME) => token.trim_ascii_start(),
        _ => value,
    }
}
