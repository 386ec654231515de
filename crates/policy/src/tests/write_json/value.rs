//! A JSON value with ordered fields, and functions to build it.

use std::fmt;

/// A JSON value with ordered fields, because conditions, tiers and groups are ordered.
pub(super) enum Json {
    /// A number or a boolean.
    Bare(String),
    Text(String),
    List(Vec<Json>),
    Map(Vec<(String, Json)>),
}

impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let quoted = |text: &str| serde_json::Value::from(text).to_string();
        match self {
            Self::Bare(text) => f.write_str(text),
            Self::Text(text) => f.write_str(&quoted(text)),
            Self::List(values) => {
                let values: Vec<String> = values.iter().map(Self::to_string).collect();
                write!(f, "[{}]", values.join(", "))
            }
            Self::Map(fields) => {
                let fields: Vec<String> = fields
                    .iter()
                    .map(|(name, value)| format!("{}: {value}", quoted(name)))
                    .collect();
                write!(f, "{{{}}}", fields.join(", "))
            }
        }
    }
}

pub(super) fn number(number: impl Into<u64>) -> Json {
    Json::Bare(number.into().to_string())
}

pub(super) fn text(text: impl fmt::Display) -> Json {
    Json::Text(text.to_string())
}

pub(super) fn texts<T: fmt::Display>(values: impl IntoIterator<Item = T>) -> Json {
    Json::List(values.into_iter().map(text).collect())
}

/// A map of the fields that are `Some`.
pub(super) fn map(fields: Vec<(&str, Option<Json>)>) -> Json {
    let given = fields
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), value?)));
    Json::Map(given.collect())
}

/// The value, unless it is the default.
pub(super) fn unless_default<T: PartialEq>(
    value: &T,
    default: &T,
    json: impl FnOnce(&T) -> Json,
) -> Option<Json> {
    (value != default).then(|| json(value))
}

pub(super) fn list(values: Vec<Json>) -> Option<Json> {
    (!values.is_empty()).then_some(Json::List(values))
}
