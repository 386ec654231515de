//! The JSON body of a check: a pure function from bytes to [`Input`].
//!
//! Must not know: HTTP, which limits exist.

use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::input::{BadInput, Input, parse_cost};

/// Parses `{"key": "…", "cost": 1, "limit": "…"}`, every field optional. Strict, as [`parse_query`] is.
///
/// ```
/// use tollgate_server::parse_json;
///
/// let input = parse_json(br#"{"key": "alice", "cost": 3}"#)?;
/// assert_eq!(input.cost, Some(3));
///
/// let error = parse_json(br#"{"cost": -1}"#).unwrap_err();
/// assert_eq!(error.to_string(), r#"cost: "-1" is not valid: it must not be negative"#);
/// # Ok::<(), tollgate_server::BadInput>(())
/// ```
///
/// [`parse_query`]: crate::parse_query
///
/// # Errors
/// The text is not a JSON object, or a field is unknown, given twice, of the wrong type, or out of its bounds.
pub fn parse_json(body: &[u8]) -> Result<Input, BadInput> {
    // serde would also read the fields from an array, by position.
    if body.trim_ascii_start().first() != Some(&b'{') {
        return Err(BadInput::new("body", body, "it must be a JSON object"));
    }
    let fields: Fields = serde_json::from_slice(body)
        .map_err(|error| BadInput::new("body", body, error.to_string()))?;
    let mut input = Input::default();
    if let Some(key) = fields.key {
        input.set_key(text("key", key)?.into_bytes())?;
    }
    if let Some(cost) = fields.cost {
        // The value's own spelling goes through the same door as a query's, so that both say the same.
        input.set_cost(match &cost {
            Value::Number(number) => parse_cost(number.to_string().as_bytes())?,
            other => return Err(wrong_type("cost", other, "it must be a whole number")),
        })?;
    }
    if let Some(limit) = fields.limit {
        input.set_limit(text("limit", limit)?.into_bytes())?;
    }
    Ok(input)
}

/// The fields before their types are known: checked one by one, so that the error can name the field and its value.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Fields {
    #[serde(default, deserialize_with = "present")]
    key: Option<Value>,
    #[serde(default, deserialize_with = "present")]
    cost: Option<Value>,
    #[serde(default, deserialize_with = "present")]
    limit: Option<Value>,
}

/// A `null` is a value of the wrong type, not an absent field: a caller whose key is null has a bug, and would silently
/// be limited by address instead.
fn present<'de, D: Deserializer<'de>>(value: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(value).map(Some)
}

fn text(field: &'static str, value: Value) -> Result<String, BadInput> {
    match value {
        Value::String(text) => Ok(text),
        other => Err(wrong_type(field, &other, "it must be a string")),
    }
}

fn wrong_type(field: &'static str, value: &Value, reason: &'static str) -> BadInput {
    BadInput::new(field, value.to_string().as_bytes(), reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_is_optional() {
        assert_eq!(parse_json(b"{}"), Ok(Input::default()));
        let input = parse_json(br#" {"limit":"demo","key":"\u00e9","cost":0} "#).unwrap();
        let expected = Input {
            key: Some("é".into()),
            cost: Some(0),
            limit: Some("demo".into()),
        };
        assert_eq!(input, expected);
        let most = parse_json(br#"{"cost":18446744073709551615}"#).unwrap();
        assert_eq!(most.cost, Some(u64::MAX));
    }

    #[test]
    fn what_is_not_understood_is_named() {
        let whole = "it must be a whole number";
        let cases = [
            (r#"{"key":""}"#, "key", "", "it must not be empty"),
            (r#"{"key":null}"#, "key", "null", "it must be a string"),
            (r#"{"key":7}"#, "key", "7", "it must be a string"),
            (r#"{"limit":[]}"#, "limit", "[]", "it must be a string"),
            (r#"{"cost":"3"}"#, "cost", "\"3\"", whole),
            (r#"{"cost":null}"#, "cost", "null", whole),
            (r#"{"cost":1.5}"#, "cost", "1.5", whole),
            (r#"{"cost":-1}"#, "cost", "-1", "it must not be negative"),
        ];
        for (body, field, value, reason) in cases {
            let error = parse_json(body.as_bytes()).unwrap_err();
            let parts = (error.field.as_str(), error.value.as_str(), &*error.reason);
            assert_eq!(parts, (field, value, reason), "{body}");
        }
        let error = parse_json(br#"{"cost":18446744073709551616}"#).unwrap_err();
        assert_eq!((error.field.as_str(), &*error.reason), ("cost", whole));
    }

    #[test]
    fn bodies_that_are_not_such_an_object_are_refused() {
        let cases = [
            ("", "it must be a JSON object"),
            ("key=alice", "it must be a JSON object"),
            (r#"["alice", 1, "demo"]"#, "it must be a JSON object"),
            ("{", "EOF while parsing an object"),
            (r#"{"key":"a"} x"#, "trailing characters"),
            (r#"{"key":"a","key":"b"}"#, "duplicate field `key`"),
            (r#"{"user":"a"}"#, "unknown field `user`, expected one of"),
        ];
        for (body, reason) in cases {
            let error = parse_json(body.as_bytes()).unwrap_err();
            assert_eq!(error.field, "body");
            assert!(error.reason.contains(reason), "{error}");
        }
        let deep = "{\"key\":".repeat(1_000);
        assert!(parse_json(deep.as_bytes()).is_err());
    }
}
