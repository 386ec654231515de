//! Parses a check request from a query string. A pure function.
//!
//! The format is `application/x-www-form-urlencoded`: pairs joined by `&`, `%` and two hexadecimal digits for a byte, `+` for a
//! space. Must not know: HTTP, which limits exist.

use tollgate_service::decode_form;

use crate::http::bad_input::{BadInput, parse_cost};
use crate::http::check_request::CheckRequest;

/// Room for the longest value that policies use, with every byte escaped.
const MAX_QUERY_LEN: usize = 8_192;

/// Parses `header.x-api-key=…&ip=…&cost=…&peek=…`. Unknown input is an error and never skipped, because a limit on the wrong
/// key or cost is worse than an error.
pub(crate) fn parse_query(query: &str) -> Result<CheckRequest, BadInput> {
    if query.len() > MAX_QUERY_LEN {
        let reason = format!("it has {} bytes, at most {MAX_QUERY_LEN} fit", query.len());
        return Err(BadInput::new("query", query.as_bytes(), reason));
    }
    let mut request = CheckRequest::default();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (raw_name, raw_value) = pair.split_once('=').unwrap_or((pair, ""));
        let Some(name) = decode_form(raw_name.as_bytes()) else {
            return Err(BadInput::new("name", raw_name.as_bytes(), BROKEN_ESCAPE));
        };
        let Some(value) = decode_form(raw_value.as_bytes()) else {
            return Err(BadInput::new(name, raw_value.as_bytes(), BROKEN_ESCAPE));
        };
        match name.as_slice() {
            b"cost" => request.set_cost(parse_cost("cost", &value)?)?,
            b"wait" => match std::str::from_utf8(&value) {
                Ok(wait) => request.set_wait(wait)?,
                Err(_) => return Err(BadInput::new("wait", &value, "it is not UTF-8")),
            },
            b"peek" => request.set_peek(match value.as_slice() {
                b"true" | b"1" => true,
                b"false" | b"0" => false,
                _ => return Err(BadInput::new("peek", &value, "it must be true or false")),
            })?,
            name => match std::str::from_utf8(name) {
                Ok(name) => request.set_attribute(name, value)?,
                Err(_) => return Err(BadInput::new("name", name, "it is not UTF-8")),
            },
        }
    }
    Ok(request)
}

const BROKEN_ESCAPE: &str = "a % must be followed by two hexadecimal digits";

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_policy::attributes::{Attribute, Attributes as _};

    fn key(query: &str) -> Vec<u8> {
        let request = parse_query(query).unwrap();
        let attribute = Attribute::Header("x-api-key".into());
        request.attributes.get(&attribute).unwrap().to_owned()
    }

    #[test]
    fn an_empty_query_is_an_empty_request() {
        for query in ["", "&", "&&"] {
            assert_eq!(parse_query(query), Ok(CheckRequest::default()));
        }
    }

    #[test]
    fn all_fields_in_any_order() {
        let request = parse_query("peek=1&cost=0&key=a&ip=192.0.2.7&").unwrap();
        assert_eq!((request.cost, request.is_peek()), (Some(0), true));
        assert_eq!(request.attributes.ip(), Some([192, 0, 2, 7].into()));
    }

    #[test]
    fn escapes_are_undone_once() {
        assert_eq!(key("key=a%20b"), b"a b");
        assert_eq!(key("key=a+b"), b"a b");
        assert_eq!(key("key=a%2Bb"), b"a+b");
        assert_eq!(key("key=a%2bb"), b"a+b");
        assert_eq!(key("key=%2520"), b"%20");
        assert_eq!(key("k%65y=x"), b"x");
        assert_eq!(key("key=a=b"), b"a=b");
        assert_eq!(key("key=%26cost%3D9"), b"&cost=9");
        assert_eq!(key("key=%00%ff"), b"\0\xff", "a value is bytes");
        assert_eq!(key("header.X-Api-Key=é"), "é".as_bytes());
    }

    #[test]
    fn invalid_input_is_named() {
        let broken = "a % must be followed by two hexadecimal digits";
        let unknown = "there is no such attribute; there are ip,";
        let cases = [
            ("key=%", "key", "%", broken),
            ("key=%4", "key", "%4", broken),
            ("key=%zz", "key", "%zz", broken),
            ("key=%+1", "key", "%+1", broken),
            ("key=%é", "key", "%é", broken),
            ("k%y=1", "name", "k%y", broken),
            ("%ff=1", "name", "\u{fffd}", "it is not UTF-8"),
            ("key=a&key=b", "key", "b", "header.x-api-key is given twice"),
            ("cost=1&cost=1", "cost", "1", "it is given twice"),
            ("peek=1&peek=1", "peek", "true", "it is given twice"),
            ("peek=maybe", "peek", "maybe", "it must be true or false"),
            ("cost=x", "cost", "x", "it must be a whole number"),
            ("cost=", "cost", "", "it must be a whole number"),
            ("cost=+1", "cost", " 1", "it must be a whole number"),
            ("cost=-1", "cost", "-1", "it must not be negative"),
            ("Key=a", "Key", "a", unknown),
            ("=a", "", "a", unknown),
            ("x[]=1", "x[]", "1", unknown),
        ];
        for (query, field, value, reason) in cases {
            let error = parse_query(query).unwrap_err();
            let parts = (error.field.as_str(), error.value.as_str());
            assert_eq!(parts, (field, value), "{query}");
            assert!(error.reason.starts_with(reason), "{error}");
        }
        let error = parse_query(&"&".repeat(8_193)).unwrap_err();
        assert_eq!(error.field, "query");
    }
}
