//! JSON without duplicate names. Two readers of a duplicate name read different values, so such a text is no token.
//!
//! Must not know: tokens, keys.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::Number;

/// A JSON value whose objects have no duplicate names.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum StrictJson {
    Null,
    Bool(bool),
    Number(Number),
    Text(Box<str>),
    List(Vec<Self>),
    Map(JsonMap),
}

/// The members of an object.
pub(super) type JsonMap = BTreeMap<Box<str>, StrictJson>;

/// Parses an object. Nesting is bounded by serde_json, the length by the caller.
pub(super) fn parse_object(text: &[u8]) -> Option<JsonMap> {
    match serde_json::from_slice(text) {
        Ok(StrictJson::Map(members)) => Some(members),
        _ => None,
    }
}

impl StrictJson {
    pub(super) fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }
}

/// A member that is a text.
pub(super) fn text_of<'a>(members: &'a JsonMap, name: &str) -> Option<&'a str> {
    members.get(name)?.as_text()
}

impl<'de> Deserialize<'de> for StrictJson {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(StrictVisitor)
    }
}

struct StrictVisitor;

impl<'de> Visitor<'de> for StrictVisitor {
    type Value = StrictJson;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<StrictJson, E> {
        Ok(StrictJson::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<StrictJson, E> {
        Ok(StrictJson::Bool(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<StrictJson, E> {
        Ok(StrictJson::Number(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<StrictJson, E> {
        Ok(StrictJson::Number(value.into()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<StrictJson, E> {
        let number = Number::from_f64(value).ok_or_else(|| E::custom("not a finite number"))?;
        Ok(StrictJson::Number(number))
    }

    fn visit_str<E>(self, value: &str) -> Result<StrictJson, E> {
        Ok(StrictJson::Text(value.into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<StrictJson, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(StrictJson::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<StrictJson, A::Error> {
        let mut members = JsonMap::new();
        while let Some((name, value)) = entries.next_entry::<Box<str>, StrictJson>()? {
            if members.insert(name, value).is_some() {
                return Err(A::Error::custom("a name is there twice"));
            }
        }
        Ok(StrictJson::Map(members))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duplicate_name_is_refused_at_any_depth() {
        assert!(parse_object(br#"{"a":{"b":1},"c":[{"b":1}],"b":2.5}"#).is_some());
        for text in [
            r#"{"a":1,"a":1}"#,
            r#"{"a":{"b":1,"b":2}}"#,
            r#"{"a":[{"b":1,"\u0062":2}]}"#,
            r#"{"a":1}{"a":2}"#,
            "[]",
            "",
        ] {
            assert_eq!(parse_object(text.as_bytes()), None, "{text}");
        }
        let deep = format!("{{\"a\":{}1{}}}", "[".repeat(5_000), "]".repeat(5_000));
        assert_eq!(parse_object(deep.as_bytes()), None);
    }
}
