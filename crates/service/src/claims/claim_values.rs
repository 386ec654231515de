//! The values of the claims that a policy reads, out of a verified token.
//!
//! Must not know: how tokens are verified.

use super::strict_json::{JsonMap, StrictJson};

/// Longer values are absent, so that the memory of a cached token is bounded.
pub(super) const MAX_VALUE_BYTES: usize = 1_024;

/// The values of claims, in the order of the names that the policy reads.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ClaimValues(Box<[Option<Box<[u8]>>]>);

impl ClaimValues {
    /// The values of these claims.
    pub(super) fn new(names: &[Box<str>], claims: &JsonMap) -> Self {
        let values = names.iter().map(|name| {
            let value = find(claims, name).ok().flatten()?;
            (value.len() <= MAX_VALUE_BYTES).then(|| value.into_bytes().into())
        });
        Self(values.collect())
    }

    pub(super) fn get(&self, index: usize) -> Option<&[u8]> {
        self.0.get(index)?.as_deref()
    }
}

/// There are several values, so that two readers would read different ones.
struct Ambiguous;

/// The value of a name. A dot goes on into an object (`org.id`) or asks for an element of a list (`roles.admin`), and may also be part
/// of a name.
fn find(members: &JsonMap, name: &str) -> Result<Option<String>, Ambiguous> {
    let mut found = members.get(name).and_then(value_text);
    for (dot, _) in name.match_indices('.') {
        let (Some(head), Some(tail)) = (name.get(..dot), name.get(dot + 1..)) else {
            continue;
        };
        let nested = match members.get(head) {
            Some(StrictJson::Map(inner)) => find(inner, tail)?,
            Some(StrictJson::List(items)) => {
                let mut texts = items.iter().filter_map(scalar_text);
                texts.find(|text| text == tail)
            }
            _ => None,
        };
        match (&found, nested) {
            (Some(_), Some(_)) => return Err(Ambiguous),
            (None, nested) => found = nested,
            (Some(_), None) => {}
        }
    }
    Ok(found)
}

/// The text of a value. A list of one element is that element; longer lists and objects have no text.
fn value_text(value: &StrictJson) -> Option<String> {
    match value {
        StrictJson::List(items) => match items.as_slice() {
            [only] => scalar_text(only),
            _ => None,
        },
        other => scalar_text(other),
    }
}

fn scalar_text(value: &StrictJson) -> Option<String> {
    match value {
        StrictJson::Text(text) => Some(text.to_string()),
        StrictJson::Number(number) => Some(number.to_string()),
        StrictJson::Bool(value) => Some(value.to_string()),
        StrictJson::Null | StrictJson::List(_) | StrictJson::Map(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::strict_json::parse_object;
    use super::*;

    #[test]
    fn names_reach_into_objects_and_lists_and_ambiguous_ones_are_absent() {
        let long = "x".repeat(MAX_VALUE_BYTES + 1);
        let text = r#"{"sub":"ada","n":7,"f":2.5,"yes":true,"none":null,"org":{"id":"o1","team":{"id":3}},
            "roles":["admin","a.b",5],"one":["x"],"https://a.example/plan":"pro",
            "a.b":1,"a":{"b":2},"empty":"","long":"LONG"}"#;
        let claims = parse_object(text.replace("LONG", &long).as_bytes()).unwrap();
        let value = |name: &str| {
            let values = ClaimValues::new(&[name.into()], &claims);
            values
                .get(0)
                .map(|value| String::from_utf8_lossy(value).into_owned())
        };
        for (name, expected) in [
            ("sub", Some("ada")),
            ("n", Some("7")),
            ("f", Some("2.5")),
            ("yes", Some("true")),
            ("none", None),
            ("org", None),
            ("org.id", Some("o1")),
            ("org.team.id", Some("3")),
            ("roles", None),
            ("roles.admin", Some("admin")),
            ("roles.a.b", Some("a.b")),
            ("roles.5", Some("5")),
            ("roles.root", None),
            ("one", Some("x")),
            ("https://a.example/plan", Some("pro")),
            ("a.b", None),
            ("empty", Some("")),
            ("long", None),
            ("", None),
            (".", None),
        ] {
            assert_eq!(value(name).as_deref(), expected, "{name}");
        }
    }
}
