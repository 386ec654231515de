//! The query string of a check: a pure function from text to [`Input`].
//!
//! Reads what browsers and HTTP libraries write (`application/x-www-form-urlencoded`): pairs joined by `&`, `%` and two
//! hexadecimal digits for a byte, `+` for a space. Must not know: HTTP, which limits exist.

use crate::input::{BadInput, Input, parse_cost};

/// A key of the longest kind, every byte of it escaped, fits twice.
const MAX_QUERY_LEN: usize = 8_192;

/// Parses `key=…&cost=…&limit=…`. Strict: what is not understood is an error, never skipped, because a limit that is
/// applied to the wrong key or cost is worse than one that says no.
///
/// ```
/// use tollgate_server::parse_query;
///
/// let input = parse_query("key=user%3A42&cost=3")?;
/// assert_eq!(input.key.as_deref(), Some(&b"user:42"[..]));
/// assert_eq!(input.cost, Some(3));
///
/// let error = parse_query("key=alice&cots=3").unwrap_err();
/// assert_eq!(error.to_string(), r#"cots: "3" is not valid: there is no such field; there are key, cost and limit"#);
/// # Ok::<(), tollgate_server::BadInput>(())
/// ```
///
/// # Errors
/// The first field that is unknown, given twice, wrongly escaped, or out of its bounds.
pub fn parse_query(query: &str) -> Result<Input, BadInput> {
    if query.len() > MAX_QUERY_LEN {
        let reason = format!("it has {} bytes, at most {MAX_QUERY_LEN} fit", query.len());
        return Err(BadInput::new("query", query.as_bytes(), reason));
    }
    let mut input = Input::default();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (raw_name, raw_value) = pair.split_once('=').unwrap_or((pair, ""));
        let Some(name) = decode(raw_name) else {
            return Err(BadInput::new("name", raw_name.as_bytes(), BROKEN_ESCAPE));
        };
        let Some(value) = decode(raw_value) else {
            return Err(BadInput::new(name, raw_value.as_bytes(), BROKEN_ESCAPE));
        };
        match name.as_slice() {
            b"key" => input.set_key(value)?,
            b"cost" => input.set_cost(parse_cost(&value)?)?,
            b"limit" => input.set_limit(value)?,
            _ => {
                let reason = "there is no such field; there are key, cost and limit";
                return Err(BadInput::new(name, &value, reason));
            }
        }
    }
    Ok(input)
}

const BROKEN_ESCAPE: &str = "a % must be followed by two hexadecimal digits";

/// Undoes the escaping, or `None` where a `%` is not followed by two hexadecimal digits.
fn decode(text: &str) -> Option<Vec<u8>> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'%' => hex(bytes.next()?)? << 4 | hex(bytes.next()?)?,
            b'+' => b' ',
            byte => byte,
        });
    }
    Some(decoded)
}

fn hex(digit: u8) -> Option<u8> {
    let value = char::from(digit).to_digit(16)?;
    u8::try_from(value).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(query: &str) -> Vec<u8> {
        parse_query(query).unwrap().key.unwrap()
    }

    #[test]
    fn nothing_asked_is_nothing_given() {
        for query in ["", "&", "&&"] {
            assert_eq!(parse_query(query), Ok(Input::default()));
        }
    }

    #[test]
    fn all_fields_in_any_order() {
        let input = parse_query("limit=demo&cost=0&key=a&").unwrap();
        let expected = Input {
            key: Some(b"a".into()),
            cost: Some(0),
            limit: Some("demo".into()),
        };
        assert_eq!(input, expected);
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
        assert_eq!(key("key=%00%ff"), b"\0\xff", "a key is bytes");
        assert_eq!(key("key=é"), "é".as_bytes());
    }

    #[test]
    fn what_is_not_understood_is_named() {
        let broken = "a % must be followed by two hexadecimal digits";
        let unknown = "there is no such field; there are key, cost and limit";
        let cases = [
            ("key=%", "key", "%", broken),
            ("key=%4", "key", "%4", broken),
            ("key=%zz", "key", "%zz", broken),
            ("key=%+1", "key", "%+1", broken),
            ("key=%é", "key", "%é", broken),
            ("k%y=1", "name", "k%y", broken),
            ("key=", "key", "", "it must not be empty"),
            ("key", "key", "", "it must not be empty"),
            ("key=a&key=b", "key", "b", "it is given twice"),
            ("key=a&key=a", "key", "a", "it is given twice"),
            ("cost=1&cost=1", "cost", "1", "it is given twice"),
            ("limit=a&limit=b", "limit", "b", "it is given twice"),
            ("cost=x", "cost", "x", "it must be a whole number"),
            ("cost=", "cost", "", "it must be a whole number"),
            ("cost=+1", "cost", " 1", "it must be a whole number"),
            ("cost=-1", "cost", "-1", "it must not be negative"),
            ("limit=%ff", "limit", "\u{fffd}", "it is not UTF-8"),
            ("Key=a", "Key", "a", unknown),
            ("=a", "", "a", unknown),
            ("x[]=1", "x[]", "1", unknown),
        ];
        for (query, field, value, reason) in cases {
            let error = parse_query(query).unwrap_err();
            let parts = (error.field.as_str(), error.value.as_str(), &*error.reason);
            assert_eq!(parts, (field, value, reason), "{query}");
        }
    }

    #[test]
    fn lengths_are_bounded_after_unescaping() {
        let longest = "%41".repeat(1_024);
        assert_eq!(key(&format!("key={longest}")).len(), 1_024);
        let error = parse_query(&format!("key={longest}B")).unwrap_err();
        assert_eq!(error.reason, "it has 1025 bytes, at most 1024 fit");
        let error = parse_query(&"&".repeat(8_193)).unwrap_err();
        assert_eq!(error.field, "query");
    }
}
