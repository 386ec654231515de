//! YAML text from a tree of values: blocks for maps, brackets for short lists, quotes wherever a text could be taken
//! for something else.
//!
//! Must not know: fields.

use std::fmt::{self, Write as _};

/// A list of single values is written in brackets up to this many characters.
const MOST_IN_BRACKETS: usize = 80;
/// A name longer than this is marked as one by `? `, because YAML looks only so far for the colon.
const LONGEST_PLAIN_NAME: usize = 200;

/// What is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Out {
    /// One value, quoted already if it has to be.
    Scalar(String),
    List(Vec<Out>),
    Map(Vec<(String, Out)>),
}

/// Words that mean something where a text could stand, here or in other readers of YAML.
const MEANINGFUL: [&str; 14] = [
    "null",
    "true",
    "false",
    "yes",
    "no",
    "on",
    "off",
    "present",
    "absent",
    "unlimited",
    "auto",
    "y",
    "n",
    "nan",
];

impl Out {
    /// A number.
    pub(super) fn number(number: impl Into<u64>) -> Self {
        Self::Scalar(number.into().to_string())
    }

    /// A word of the policy language, which never needs quotes.
    pub(super) fn word(word: impl fmt::Display) -> Self {
        Self::Scalar(word.to_string())
    }

    /// Any text, in quotes unless it is plainly one.
    pub(super) fn text(text: &str) -> Self {
        Self::Scalar(quoted_if_needed(text))
    }

    /// One value by itself, several as a list.
    pub(super) fn one_or_list(mut values: Vec<Self>) -> Self {
        match (values.len(), values.pop()) {
            (1, Some(only)) => only,
            (_, last) => {
                values.extend(last);
                Self::List(values)
            }
        }
    }
}

/// The fields of a map, in the order in which they are written.
#[derive(Debug, Default)]
pub(super) struct Fields(Vec<(String, Out)>);

impl Fields {
    pub(super) fn add(&mut self, name: &str, value: Out) {
        self.0.push((quoted_if_needed(name), value));
    }

    /// Adds a field if there is something to say.
    pub(super) fn some(&mut self, name: &str, value: Option<Out>) {
        if let Some(value) = value {
            self.add(name, value);
        }
    }

    /// Adds a list if it has values.
    pub(super) fn list(&mut self, name: &str, values: impl Iterator<Item = Out>) {
        let values: Vec<_> = values.collect();
        if !values.is_empty() {
            self.add(name, Out::List(values));
        }
    }

    /// The only value, if there is one field and it has this name.
    pub(super) fn only(&self, name: &str) -> Option<&Out> {
        match self.0.as_slice() {
            [(only, value)] if only == name => Some(value),
            _ => None,
        }
    }
}

impl From<Fields> for Out {
    fn from(fields: Fields) -> Self {
        Self::Map(fields.0)
    }
}

/// The text as YAML reads it back, in quotes unless it is plainly a text: letters first, and nothing special after.
fn quoted_if_needed(text: &str) -> String {
    let simple = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let plain = text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.chars().all(simple)
        && !MEANINGFUL.contains(&text.to_ascii_lowercase().as_str());
    if plain { text.to_owned() } else { quoted(text) }
}

/// The text in double quotes. Everything that cannot be seen is escaped.
fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            ' '..='~' => out.push(character),
            other if other.is_alphanumeric() => out.push(other),
            other => {
                let _infallible = write!(out, "\\U{:08x}", u32::from(other));
            }
        }
    }
    out.push('"');
    out
}

impl fmt::Display for Out {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        match self {
            Self::Map(fields) if !fields.is_empty() => map(fields, 0, &mut text),
            Self::List(values) if !values.is_empty() => list(values, 0, &mut text),
            other => {
                text.push_str(&inline(other).unwrap_or_default());
                text.push('\n');
            }
        }
        f.write_str(&text)
    }
}

/// The value in one line, if it fits there.
fn inline(value: &Out) -> Option<String> {
    match value {
        Out::Scalar(text) => Some(text.clone()),
        Out::Map(fields) if fields.is_empty() => Some("{}".to_owned()),
        Out::Map(_) => None,
        Out::List(values) => {
            let mut texts = Vec::with_capacity(values.len());
            for value in values {
                match value {
                    Out::Scalar(text) => texts.push(text.as_str()),
                    _ => return None,
                }
            }
            let text = format!("[{}]", texts.join(", "));
            (text.chars().count() <= MOST_IN_BRACKETS || values.is_empty()).then_some(text)
        }
    }
}

fn indent(depth: usize, out: &mut String) {
    for _ in 0..depth {
        out.push_str("  ");
    }
}

/// The fields of a map from where the text stands, each further line indented.
fn map(fields: &[(String, Out)], depth: usize, out: &mut String) {
    for (index, (name, value)) in fields.iter().enumerate() {
        if index > 0 {
            indent(depth, out);
        }
        if name.len() > LONGEST_PLAIN_NAME {
            out.push_str("? ");
            out.push_str(name);
            out.push('\n');
            indent(depth, out);
        } else {
            out.push_str(name);
        }
        out.push(':');
        match (inline(value), value) {
            (Some(text), _) => {
                out.push(' ');
                out.push_str(&text);
                out.push('\n');
            }
            (None, Out::Map(fields)) => {
                out.push('\n');
                indent(depth + 1, out);
                map(fields, depth + 1, out);
            }
            (None, Out::List(values)) => {
                out.push('\n');
                indent(depth + 1, out);
                list(values, depth + 1, out);
            }
            (None, Out::Scalar(_)) => {}
        }
    }
}

/// The values of a list from where the text stands, each further line indented.
fn list(values: &[Out], depth: usize, out: &mut String) {
    for (index, value) in values.iter().enumerate() {
        if index > 0 {
            indent(depth, out);
        }
        out.push_str("- ");
        match (inline(value), value) {
            (Some(text), _) => {
                out.push_str(&text);
                out.push('\n');
            }
            (None, Out::Map(fields)) => map(fields, depth + 1, out),
            (None, Out::List(values)) => list(values, depth + 1, out),
            (None, Out::Scalar(_)) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::Out;
    use crate::source::{Format, Node, Value, parse};

    /// Whether a tree that was read says what was written.
    fn same(read: &Node, written: &Tree) -> bool {
        match (&read.value, written) {
            (Value::Scalar { text, .. }, Tree::Text(said)) => **text == **said,
            (Value::List(read), Tree::List(written)) => {
                read.len() == written.len() && read.iter().zip(written).all(|(a, b)| same(a, b))
            }
            (Value::Map(read), Tree::Map(written)) => {
                read.len() == written.len()
                    && read.iter().zip(written).all(|(entry, (name, value))| {
                        *entry.name.value == **name && same(&entry.value, value)
                    })
            }
            _ => false,
        }
    }

    #[derive(Clone, Debug)]
    enum Tree {
        Text(String),
        List(Vec<Tree>),
        Map(Vec<(String, Tree)>),
    }

    fn out(tree: &Tree) -> Out {
        match tree {
            Tree::Text(text) => Out::text(text),
            Tree::List(values) => Out::List(values.iter().map(out).collect()),
            Tree::Map(fields) => {
                let mut all = super::Fields::default();
                for (name, value) in fields {
                    all.add(name, out(value));
                }
                all.into()
            }
        }
    }

    fn any_text() -> impl Strategy<Value = String> {
        prop_oneof![
            "[a-z]{1,5}",
            "[ -~]{0,12}",
            "\\PC{0,8}",
            any::<String>(),
            Just("present".to_owned()),
            Just("~".to_owned()),
            Just("1e3".to_owned()),
            Just("x".repeat(1_100)),
        ]
    }

    fn any_tree() -> impl Strategy<Value = Tree> {
        any_text()
            .prop_map(Tree::Text)
            .prop_recursive(4, 24, 4, |inner| {
                prop_oneof![
                    prop::collection::vec(inner.clone(), 0..4).prop_map(Tree::List),
                    prop::collection::vec((any_text(), inner), 0..4).prop_map(Tree::Map),
                ]
            })
    }

    proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(128) })]

        #[test]
        fn whatever_is_written_reads_back_the_same(tree in any_tree()) {
            let tree = Tree::List(vec![tree]);
            let text = out(&tree).to_string();
            let read = parse(&text, Format::Yaml).map_err(|problems| {
                TestCaseError::fail(format!("{problems:?}\n{text}"))
            })?;
            prop_assert!(same(&read, &tree), "{text}");
        }
    }

    #[test]
    fn the_comparison_can_tell_a_difference() {
        let read = parse("a: [b]\n", Format::Yaml).unwrap();
        let tree = |name: &str, text: &str| {
            Tree::Map(vec![(
                name.to_owned(),
                Tree::List(vec![Tree::Text(text.to_owned())]),
            )])
        };
        assert!(same(&read, &tree("a", "b")));
        assert!(!same(&read, &tree("a", "c")));
        assert!(!same(&read, &tree("b", "b")));
    }

    #[test]
    fn texts_are_quoted_where_they_could_be_taken_for_something_else() {
        for (text, written) in [
            ("POST", "POST"),
            ("x-api-key", "x-api-key"),
            ("off", "\"off\""),
            ("Absent", "\"Absent\""),
            ("10", "\"10\""),
            ("", "\"\""),
            ("a b", "\"a b\""),
            ("/v1/{id}", "\"/v1/{id}\""),
            ("*", "\"*\""),
            ("a\u{202e}", "\"a\\U0000202e\""),
        ] {
            assert_eq!(Out::text(text).to_string(), format!("{written}\n"));
        }
    }
}
