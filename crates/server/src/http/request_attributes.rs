//! The attributes of a request as the client gives them, validated for the engine.
//!
//! Attributes have the names that policies use: `ip`, `method`, `header.x-api-key`. Attributes that the client does not give
//! are absent. Must not know: query strings, JSON, which limits exist.

use std::net::IpAddr;

use tollgate_policy::attributes::{Attribute, Attributes};
use tollgate_service::without_port;

use crate::http::bad_input::BadInput;

/// The most attributes of one request.
const MAX_ATTRIBUTES: usize = 64;

/// A short alias for the attribute that most policies key by, for trying the server by hand.
const KEY_ALIAS: &str = "key";
const KEY_ATTRIBUTE: &str = "header.x-api-key";

/// The attributes of a request.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct RequestAttributes {
    ip: Option<IpAddr>,
    others: Vec<(Attribute, Box<[u8]>)>,
}

impl RequestAttributes {
    /// Adds one attribute. `key` is an alias of `header.x-api-key`.
    pub(crate) fn set(&mut self, name: &str, value: Vec<u8>) -> Result<(), BadInput> {
        let bad = |reason: String| Err(BadInput::new(name, &value, reason));
        let named = if name == KEY_ALIAS {
            KEY_ATTRIBUTE
        } else {
            name
        };
        let Some(attribute) = Attribute::parse(named) else {
            let names = Attribute::NAMES.join(", ");
            return bad(format!("there is no such attribute; there are {names}"));
        };
        if self.others.len() >= MAX_ATTRIBUTES {
            return bad(format!("there are more than {MAX_ATTRIBUTES} attributes"));
        }
        if self.has(&attribute) {
            return bad(format!("{attribute} is given twice"));
        }
        match attribute {
            Attribute::Ip => match std::str::from_utf8(&value).map(str::parse) {
                Ok(Ok(ip)) => self.ip = Some(ip),
                _ => return bad("it is not an IP address".to_owned()),
            },
            Attribute::Method => self.others.push((attribute, to_uppercase(value))),
            Attribute::Host => {
                let host = without_port(&value).to_ascii_lowercase();
                self.others.push((attribute, host.into()));
            }
            Attribute::Path if value.first() != Some(&b'/') => {
                return bad("it must begin with a slash".to_owned());
            }
            _ => self.others.push((attribute, value.into())),
        }
        Ok(())
    }

    fn has(&self, attribute: &Attribute) -> bool {
        match attribute {
            Attribute::Ip => self.ip.is_some(),
            other => self.get(other).is_some(),
        }
    }
}

impl Attributes for RequestAttributes {
    fn ip(&self) -> Option<IpAddr> {
        self.ip
    }

    fn get(&self, attribute: &Attribute) -> Option<&[u8]> {
        let known = self.others.iter().find(|(name, _)| name == attribute);
        known.map(|(_, value)| &**value)
    }
}

fn to_uppercase(mut value: Vec<u8>) -> Box<[u8]> {
    value.make_ascii_uppercase();
    value.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attributes(given: &[(&str, &str)]) -> Result<RequestAttributes, BadInput> {
        let mut known = RequestAttributes::default();
        for (name, value) in given {
            known.set(name, value.as_bytes().into())?;
        }
        Ok(known)
    }

    fn value<'a>(known: &'a RequestAttributes, name: &str) -> Option<&'a str> {
        let attribute = Attribute::parse(name).unwrap();
        known
            .get(&attribute)
            .map(|value| std::str::from_utf8(value).unwrap())
    }

    #[test]
    fn attributes_are_normalised_as_policies_expect() {
        let given = [
            ("ip", "2001:db8::1"),
            ("method", "post"),
            ("host", "API.Example.com:8443"),
            ("header.X-Plan", "pro"),
            ("claim.sub", "Anna"),
            ("key", "carol"),
        ];
        let known = attributes(&given).unwrap();
        assert_eq!(known.ip(), Some("2001:db8::1".parse().unwrap()));
        assert_eq!(value(&known, "method"), Some("POST"));
        assert_eq!(value(&known, "host"), Some("api.example.com"));
        assert_eq!(value(&known, "header.x-plan"), Some("pro"));
        assert_eq!(value(&known, "claim.sub"), Some("Anna"));
        assert_eq!(value(&known, "header.x-api-key"), Some("carol"));
        assert_eq!(value(&known, "path"), None);
    }

    #[test]
    fn invalid_input_is_named() {
        let cases = [
            (
                [("ip", "1.2.3"), ("method", "GET")],
                "ip",
                "it is not an IP address",
            ),
            (
                [("path", "items"), ("method", "GET")],
                "path",
                "it must begin with a slash",
            ),
            (
                [("method", "GET"), ("method", "GET")],
                "method",
                "method is given twice",
            ),
            (
                [("key", "a"), ("header.x-api-key", "a")],
                "header.x-api-key",
                "header.x-api-key is given twice",
            ),
            (
                [("method", "GET"), ("weather", "fine")],
                "weather",
                "there is no such attribute; there are ip, method,",
            ),
        ];
        for (given, field, reason) in cases {
            let error = attributes(&given).unwrap_err();
            assert_eq!(error.field, field);
            assert!(error.reason.starts_with(reason), "{error}");
        }
    }

    #[test]
    fn attributes_are_bounded() {
        let mut known = RequestAttributes::default();
        for n in 0..64 {
            known.set(&format!("header.h{n}"), b"x".into()).unwrap();
        }
        let error = known.set("header.one-more", b"x".into()).unwrap_err();
        assert_eq!(error.reason, "there are more than 64 attributes");
    }
}
