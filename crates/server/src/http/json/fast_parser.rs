//! Parses plain JSON check requests, which nearly all are: no escapes, no nesting beyond the attributes, no duplicate fields.
//!
//! It never reports an error. What it cannot parse goes to the full parser, which explains errors. Must not know: which
//! attributes exist.

use crate::http::check_request::CheckRequest;

/// Parses the request. Returns `None` if it is not plain or not valid.
pub(super) fn parse_plain_check_request(body: &[u8]) -> Option<CheckRequest> {
    // Validate UTF-8 once, so that every slice between quotes is text.
    let mut rest = JsonCursor(std::str::from_utf8(body).ok()?);
    let mut request = CheckRequest::default();
    let mut has_attributes = false;
    rest.read_object(|name, rest| match name {
        "attributes" if !has_attributes => {
            has_attributes = true;
            rest.read_object(|name, rest| {
                let value = rest.read_string()?;
                request.set_attribute(name, value.into()).ok()
            })
        }
        "key" => {
            let value = rest.read_string()?;
            request.set_attribute("key", value.into()).ok()
        }
        "cost" => request.set_cost(rest.read_number()?).ok(),
        "wait" => request.set_wait(rest.read_string()?).ok(),
        "peek" => request.set_peek(rest.read_bool()?).ok(),
        _ => None,
    })?;
    rest.skip_whitespace();
    rest.0.is_empty().then_some(request)
}

/// The unread part of the body.
struct JsonCursor<'a>(&'a str);

impl<'a> JsonCursor<'a> {
    /// Reads an object. `member` is called with each name and reads its value.
    fn read_object(
        &mut self,
        mut member: impl FnMut(&'a str, &mut Self) -> Option<()>,
    ) -> Option<()> {
        self.expect_byte(b'{')?;
        if self.expect_byte(b'}').is_some() {
            return Some(());
        }
        loop {
            let name = self.read_string()?;
            self.expect_byte(b':')?;
            member(name, self)?;
            if self.expect_byte(b',').is_none() {
                return self.expect_byte(b'}');
            }
        }
    }

    fn read_string(&mut self) -> Option<&'a str> {
        self.expect_byte(b'"')?;
        let is_end = |byte: &u8| matches!(byte, b'"' | b'\\' | ..=0x1f);
        let end = self.0.as_bytes().iter().position(is_end)?;
        let (text, rest) = self.0.split_at_checked(end)?;
        // Any end but a quote means that the string is not plain.
        self.0 = rest.strip_prefix('"')?;
        Some(text)
    }

    fn read_number(&mut self) -> Option<u64> {
        self.skip_whitespace();
        let is_digit = |byte: &u8| byte.is_ascii_digit();
        let end = self.0.as_bytes().iter().position(|byte| !is_digit(byte))?;
        let (digits, rest) = self.0.split_at_checked(end)?;
        // The full parser handles longer numbers, fractions and exponents, and rejects leading zeros.
        let is_fit = matches!(digits.len(), 1..=18) && (digits == "0" || !digits.starts_with('0'));
        let ends = rest.starts_with([',', '}', ' ', '\n', '\r', '\t']);
        let number = Some(digits).filter(|_| is_fit && ends)?.parse().ok()?;
        self.0 = rest;
        Some(number)
    }

    fn read_bool(&mut self) -> Option<bool> {
        self.skip_whitespace();
        for (word, truth) in [("true", true), ("false", false)] {
            if let Some(rest) = self.0.strip_prefix(word) {
                self.0 = rest;
                return Some(truth);
            }
        }
        None
    }

    fn expect_byte(&mut self, wanted: u8) -> Option<()> {
        self.skip_whitespace();
        if *self.0.as_bytes().first()? != wanted {
            return None;
        }
        self.0 = self.0.get(1..)?;
        Some(())
    }

    fn skip_whitespace(&mut self) {
        if let Some(b' ' | b'\n' | b'\r' | b'\t') = self.0.as_bytes().first() {
            self.0 = self.0.trim_start_matches([' ', '\n', '\r', '\t']);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::json::parse_any_check_request;

    #[test]
    fn plain_requests_are_parsed_as_by_the_full_parser() {
        for body in [
            "{}",
            " { } \n",
            r#"{"key":"alice"}"#,
            r#"{"attributes":{"header.x-api-key":"alice","ip":"::1"},"cost":3,"peek":true}"#,
            r#"{ "attributes" : { "method" : "post" } , "cost" : 0 , "peek" : false }"#,
            r#"{"attributes":{},"key":"é"}"#,
            r#"{"cost":999999999999999999}"#,
        ] {
            let plain = parse_plain_check_request(body.as_bytes());
            assert_eq!(
                plain.as_ref(),
                parse_any_check_request(body.as_bytes()).ok().as_ref(),
                "{body}"
            );
            assert!(plain.is_some(), "{body}");
        }
    }

    /// This parser gives up on all of these, so it accepts nothing that the full parser rejects.
    #[test]
    fn other_requests_are_left_to_the_full_parser() {
        for body in [
            "",
            "[]",
            "{",
            "{}}",
            "{} x",
            r#"{"key":"a","key":"a"}"#,
            r#"{"key":"a\u0062"}"#,
            r#"{"key":"a}"#,
            "{\"key\":\"a\nb\"}",
            r#"{"key":null}"#,
            r#"{"key":"a",}"#,
            r#"{"key" "a"}"#,
            r#"{"cost":-1}"#,
            r#"{"cost":01}"#,
            r#"{"cost":1.0}"#,
            r#"{"cost":1e3}"#,
            r#"{"cost":1000000000000000000}"#,
            r#"{"cost":"1"}"#,
            r#"{"cost":1x}"#,
            r#"{"cost":1"#,
            r#"{"peek":truex}"#,
            r#"{"peek":1}"#,
            r#"{"attributes":{"ip":"x"}}"#,
            r#"{"attributes":{"ip":"::1","ip":"::1"}}"#,
            r#"{"attributes":{"weather":"fine"}}"#,
            r#"{"attributes":{"key":{"a":"b"}}}"#,
            r#"{"attributes":[]}"#,
            r#"{"attributes":{},"attributes":{}}"#,
            r#"{"weather":"fine"}"#,
        ] {
            assert_eq!(parse_plain_check_request(body.as_bytes()), None, "{body}");
        }
        assert_eq!(parse_plain_check_request(b"{\"key\":\"\xff\"}"), None);
    }

    /// Both parsers agree about every request that is plain up to one damaged byte.
    #[test]
    fn no_damaged_request_is_parsed_differently() {
        let body = br#"{"attributes":{"ip":"::1","header.a":"b c"},"cost":12,"peek":true}"#;
        for at in 0..body.len() {
            for byte in *b"{}[]\":,\\ 01atx\n" {
                let mut body = body.to_vec();
                body[at] = byte;
                if let Some(plain) = parse_plain_check_request(&body) {
                    assert_eq!(
                        Ok(plain),
                        parse_any_check_request(&body),
                        "{}",
                        body.escape_ascii()
                    );
                }
            }
        }
    }
}
