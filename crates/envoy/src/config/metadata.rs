//! A rule's `metadata`, which Envoy gets as dynamic metadata: a tree of values, kept as it is.
//!
//! Must not know: what the values mean, protobuf.

use tollgate_policy::source::{SourceNode, SourceValue};

use super::yaml_values::parse_number;

/// A value of a rule's `metadata`. Numbers are floats, as in protobuf's `Struct`.
#[derive(Clone, Debug, PartialEq)]
pub enum Metadata {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// A number.
    Number(f64),
    /// A text.
    Text(Box<str>),
    /// Values in order.
    List(Vec<Metadata>),
    /// Values by name, in the order of the file.
    Map(Vec<(Box<str>, Metadata)>),
}

impl Metadata {
    /// The value of a file's node.
    pub(super) fn from_node(node: &SourceNode) -> Self {
        match &node.value {
            SourceValue::Null => Self::Null,
            SourceValue::Scalar { text, quoted: true } => Self::Text(text.clone()),
            SourceValue::Scalar { text, .. } => match &**text {
                "true" | "True" | "TRUE" => Self::Bool(true),
                "false" | "False" | "FALSE" => Self::Bool(false),
                plain => parse_number(plain).map_or_else(|| Self::Text(text.clone()), Self::Number),
            },
            SourceValue::List(list) => Self::List(list.iter().map(Self::from_node).collect()),
            SourceValue::Map(map) => Self::Map(
                map.iter()
                    .map(|entry| (entry.name.value.clone(), Self::from_node(&entry.value)))
                    .collect(),
            ),
        }
    }

    /// Merges another map into this one. Existing values stay; nested maps are merged in the same way.
    ///
    /// ```
    /// use tollgate_envoy::config::Metadata::{Map, Number};
    ///
    /// let mut first = Map(vec![("a".into(), Number(1.0))]);
    /// first.merge(&Map(vec![("a".into(), Number(2.0)), ("b".into(), Number(3.0))]));
    /// assert_eq!(first, Map(vec![("a".into(), Number(1.0)), ("b".into(), Number(3.0))]));
    /// ```
    pub fn merge(&mut self, other: &Self) {
        let (Self::Map(all), Self::Map(more)) = (self, other) else {
            return;
        };
        for (name, value) in more {
            match all.iter_mut().find(|(known, _)| known == name) {
                Some((_, known)) => known.merge(value),
                None => all.push((name.clone(), value.clone())),
            }
        }
    }

    /// Whether it is null or an empty map.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        match self {
            Self::Null => true,
            Self::Map(map) => map.is_empty(),
            _ => false,
        }
    }
}
