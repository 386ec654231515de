//! Reads single values: texts, keywords, booleans, numbers, names and attributes.
//!
//! Must not know: which fields there are.

use super::TreeReader;
use super::field_reader::join_names;
use crate::attributes::Attribute;
use crate::grammar::{self, GrammarError, nearest_name, quote};
use crate::source::{Located, SourceLocation, SourceNode, SourceValue};

/// Attribute prefixes that take a name after a dot.
pub(super) const FAMILIES: [&str; 5] = ["header", "query", "cookie", "claim", "descriptor"];

/// Describes a value for messages.
#[must_use]
pub fn describe_node(node: &SourceNode) -> String {
    match &node.value {
        SourceValue::Null => "nothing".to_owned(),
        SourceValue::Scalar { text, .. } => quote(text),
        SourceValue::List(nodes) if nodes.is_empty() => "an empty list".to_owned(),
        SourceValue::List(_) => "a list".to_owned(),
        SourceValue::Map(_) => "a map".to_owned(),
    }
}

impl TreeReader {
    /// The text of a single value.
    pub fn text<'a>(&mut self, node: &'a SourceNode, field: &str) -> Option<&'a str> {
        if let SourceValue::Scalar { text, .. } = &node.value {
            return Some(text);
        }
        self.diagnostics.add(
            node.location,
            format!(
                "`{field}` must be a single value, found {}",
                describe_node(node)
            ),
            format!("write one value after `{field}:`"),
        );
        None
    }

    /// Parses a single value with a grammar.
    pub fn parse<T>(
        &mut self,
        node: &SourceNode,
        field: &str,
        grammar: impl FnOnce(&str) -> Result<T, GrammarError>,
    ) -> Option<T> {
        let text = self.text(node, field)?;
        self.ok_or_report(node.location, field, grammar(text))
    }

    /// Returns the value, or reports the error.
    pub(super) fn ok_or_report<T>(
        &mut self,
        location: SourceLocation,
        field: &str,
        result: Result<T, GrammarError>,
    ) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                self.diagnostics.add_field_error(location, field, error);
                None
            }
        }
    }

    /// Reads one of several keywords.
    pub fn keyword<T: Copy>(
        &mut self,
        node: &SourceNode,
        field: &str,
        keywords: &[(&str, T)],
    ) -> Option<T> {
        let text = self.text(node, field)?;
        if let Some((_, value)) = keywords.iter().find(|(keyword, _)| *keyword == text) {
            return Some(*value);
        }
        let names: Vec<&str> = keywords.iter().map(|(keyword, _)| *keyword).collect();
        let help = match nearest_name(text, names.iter().copied()) {
            Some(meant) => format!("did you mean `{meant}`?"),
            None => format!("write {}", join_names(&names, "or")),
        };
        self.diagnostics.add(
            node.location,
            format!("`{field}` cannot be {}", quote(text)),
            help,
        );
        None
    }

    /// Reads `true` or `false`, not in quotes.
    pub(super) fn boolean(&mut self, node: &SourceNode, field: &str) -> Option<bool> {
        if let SourceValue::Scalar {
            text,
            quoted: false,
        } = &node.value
        {
            match &**text {
                "true" => return Some(true),
                "false" => return Some(false),
                _ => {}
            }
        }
        self.diagnostics.add(
            node.location,
            format!(
                "`{field}` must be true or false, found {}",
                describe_node(node)
            ),
            format!("write `{field}: true` or leave it out"),
        );
        None
    }

    /// Reads a whole number within bounds.
    pub fn number(&mut self, node: &SourceNode, field: &str, min: u64, max: u64) -> Option<u64> {
        let number = self.parse(node, field, grammar::parse_count)?;
        if (min..=max).contains(&number) {
            return Some(number);
        }
        self.diagnostics.add(
            node.location,
            format!("`{field}` cannot be {number}"),
            match min {
                0 => format!("write a number up to {max}"),
                _ => format!("write a number from {min} to {max}"),
            },
        );
        None
    }

    /// Reads the status of a denial.
    pub(super) fn status(&mut self, node: &SourceNode) -> Option<u16> {
        let number = self.number(node, "status", 400, 599)?;
        u16::try_from(number).ok()
    }

    /// Reads a message: bounded, and without control characters that would break a terminal or a header.
    pub(super) fn message(&mut self, node: &SourceNode) -> Option<Box<str>> {
        const MAX_CHARS: usize = 1_000;
        let text = self.text(node, "message")?;
        if text.chars().count() > MAX_CHARS {
            self.diagnostics.add(
                node.location,
                "`message` is too long",
                format!("write at most {MAX_CHARS} characters"),
            );
            return None;
        }
        if text.chars().any(|c| c.is_control() && c != '\n') {
            self.diagnostics.add(
                node.location,
                "`message` has control characters",
                "remove them; line breaks are allowed",
            );
            return None;
        }
        Some(text.into())
    }

    /// Reads a name.
    pub(super) fn name(&mut self, node: &SourceNode, field: &str) -> Option<Located<Box<str>>> {
        let name = self.parse(node, field, grammar::parse_name)?;
        Some(Located::new(name, node.location))
    }

    /// An attribute by its name.
    pub(super) fn attribute(
        &mut self,
        node: &SourceNode,
        field: &str,
    ) -> Option<Located<Attribute>> {
        let text = self.text(node, field)?;
        let attribute = self.parse_attribute(text, node.location, field)?;
        Some(Located::new(attribute, node.location))
    }

    /// Parses the name of an attribute. An unknown name is reported with a suggestion.
    pub(super) fn parse_attribute(
        &mut self,
        text: &str,
        location: SourceLocation,
        field: &str,
    ) -> Option<Attribute> {
        match Attribute::parse(text) {
            Some(Attribute::Header(header)) => {
                let header =
                    self.ok_or_report(location, field, grammar::parse_header_name(&header))?;
                Some(Attribute::Header(header))
            }
            Some(attribute) => Some(attribute),
            None => {
                self.diagnostics.add(
                    location,
                    format!("`{field}`: unknown attribute {}", quote(text)),
                    suggest_attribute(text),
                );
                None
            }
        }
    }

    /// Reads an attribute with a text value, so not `ip`, that has one spelling, so not `path`.
    pub(super) fn text_attribute(
        &mut self,
        node: &SourceNode,
        field: &str,
    ) -> Option<Located<Attribute>> {
        let attribute = self.attribute(node, field)?;
        let (reason, help) = match attribute.value {
            Attribute::Ip => (
                "cannot be `ip`: an address is neither a text nor a number",
                "name a header, a claim or another attribute",
            ),
            Attribute::Path => (
                "cannot be `path`: a client can spell a path in many ways",
                "use `route`, and list the templates under `routes`",
            ),
            _ => return Some(attribute),
        };
        self.diagnostics
            .add(node.location, format!("`{field}` {reason}"), help);
        None
    }
}

fn suggest_attribute(text: &str) -> String {
    const SINGLE: [&str; 6] = ["ip", "method", "host", "route", "path", "domain"];
    if let Some((family, rest)) = text.split_once('.')
        && !rest.is_empty()
        && let Some(family) = nearest_name(family, FAMILIES)
    {
        return format!("did you mean `{family}.{rest}`?");
    }
    match text.to_ascii_lowercase().as_str() {
        "address" | "client_ip" | "remote_addr" | "ip_address" => {
            return "did you mean `ip`?".to_owned();
        }
        "endpoint" | "url" | "uri" => return "did you mean `route`?".to_owned(),
        "authorization" | "user-agent" => {
            return format!("did you mean `header.{}`?", text.to_ascii_lowercase());
        }
        lower if lower.starts_with("x-") => return format!("did you mean `header.{lower}`?"),
        _ => {}
    }
    if let Some(family) = FAMILIES
        .iter()
        .find(|family| text.trim_end_matches('.') == **family)
    {
        return format!("add a name: `{family}.NAME`");
    }
    match nearest_name(text, SINGLE) {
        Some(meant) => format!("did you mean `{meant}`?"),
        None => format!(
            "the attributes are {}",
            join_names(&Attribute::NAMES, "and")
        ),
    }
}
