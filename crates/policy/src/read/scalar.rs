//! Single values: texts, words out of a few, truth values, and whatever the small languages read.
//!
//! Must not know: which fields there are.

use super::Reader;
use super::fields::list;
use crate::attributes::Attribute;
use crate::source::{At, SourceLocation, SourceNode, SourceValue};
use crate::words::{self, Wrong, nearest, quoted};

/// Attributes that have a name of their own after a dot.
pub(super) const FAMILIES: [&str; 5] = ["header", "query", "cookie", "claim", "descriptor"];

/// What stands there, in messages.
#[must_use]
pub fn found(node: &SourceNode) -> String {
    match &node.value {
        SourceValue::Nothing => "nothing".to_owned(),
        SourceValue::Scalar { text, .. } => quoted(text),
        SourceValue::List(nodes) if nodes.is_empty() => "an empty list".to_owned(),
        SourceValue::List(_) => "a list".to_owned(),
        SourceValue::Map(_) => "a map".to_owned(),
    }
}

impl Reader {
    /// The text of a single value.
    pub fn text<'a>(&mut self, node: &'a SourceNode, field: &str) -> Option<&'a str> {
        if let SourceValue::Scalar { text, .. } = &node.value {
            return Some(text);
        }
        self.report.say(
            node.place,
            format!("`{field}` must be a single value, found {}", found(node)),
            format!("write one value after `{field}:`"),
        );
        None
    }

    /// What one of the small languages makes of a single value.
    pub fn parse<T>(
        &mut self,
        node: &SourceNode,
        field: &str,
        grammar: impl FnOnce(&str) -> Result<T, Wrong>,
    ) -> Option<T> {
        let text = self.text(node, field)?;
        self.made(node.place, field, grammar(text))
    }

    /// What a small language made, or its complaint in the report.
    pub(super) fn made<T>(
        &mut self,
        place: SourceLocation,
        field: &str,
        result: Result<T, Wrong>,
    ) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(wrong) => {
                self.report.wrong(place, field, wrong);
                None
            }
        }
    }

    /// One of a few words.
    pub fn word<T: Copy>(
        &mut self,
        node: &SourceNode,
        field: &str,
        words: &[(&str, T)],
    ) -> Option<T> {
        let text = self.text(node, field)?;
        if let Some((_, value)) = words.iter().find(|(word, _)| *word == text) {
            return Some(*value);
        }
        let names: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        let help = match nearest(text, names.iter().copied()) {
            Some(meant) => format!("did you mean `{meant}`?"),
            None => format!("it may be {}", list(&names, "or")),
        };
        self.report.say(
            node.place,
            format!("`{field}` cannot be {}", quoted(text)),
            help,
        );
        None
    }

    /// `true` or `false`, not in quotes.
    pub(super) fn truth(&mut self, node: &SourceNode, field: &str) -> Option<bool> {
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
        self.report.say(
            node.place,
            format!("`{field}` must be true or false, found {}", found(node)),
            format!("write `{field}: true` or leave it out"),
        );
        None
    }

    /// A whole number within bounds.
    pub fn number(&mut self, node: &SourceNode, field: &str, least: u64, most: u64) -> Option<u64> {
        let number = self.parse(node, field, words::count)?;
        if (least..=most).contains(&number) {
            return Some(number);
        }
        self.report.say(
            node.place,
            format!("`{field}` cannot be {number}"),
            match least {
                0 => format!("write a number up to {most}"),
                _ => format!("write a number from {least} to {most}"),
            },
        );
        None
    }

    /// The status of a refusal.
    pub(super) fn status(&mut self, node: &SourceNode) -> Option<u16> {
        let number = self.number(node, "status", 400, 599)?;
        u16::try_from(number).ok()
    }

    /// A message for people: not endless, and without characters that would garble a terminal or a header.
    pub(super) fn message(&mut self, node: &SourceNode) -> Option<Box<str>> {
        const LONGEST: usize = 1_000;
        let text = self.text(node, "message")?;
        if text.chars().count() > LONGEST {
            self.report.say(
                node.place,
                "`message` is too long",
                format!("write at most {LONGEST} characters"),
            );
            return None;
        }
        if text.chars().any(|c| c.is_control() && c != '\n') {
            self.report.say(
                node.place,
                "`message` has control characters",
                "write plain text; lines may end",
            );
            return None;
        }
        Some(text.into())
    }

    /// A name by the rules for names.
    pub(super) fn name(&mut self, node: &SourceNode, field: &str) -> Option<At<Box<str>>> {
        let name = self.parse(node, field, words::name)?;
        Some(At::new(name, node.place))
    }

    /// An attribute by its name.
    pub(super) fn attribute(&mut self, node: &SourceNode, field: &str) -> Option<At<Attribute>> {
        let text = self.text(node, field)?;
        let attribute = self.attribute_named(text, node.place, field)?;
        Some(At::new(attribute, node.place))
    }

    /// The attribute that a text names, with the one that was probably meant where it names none.
    pub(super) fn attribute_named(
        &mut self,
        text: &str,
        place: SourceLocation,
        field: &str,
    ) -> Option<Attribute> {
        match Attribute::named(text) {
            Some(Attribute::Header(header)) => {
                let header = self.made(place, field, words::header(&header))?;
                Some(Attribute::Header(header))
            }
            Some(attribute) => Some(attribute),
            None => {
                self.report.say(
                    place,
                    format!("`{field}`: there is no attribute {}", quoted(text)),
                    meant_attribute(text),
                );
                None
            }
        }
    }

    /// An attribute whose value is a text; an address is none.
    pub(super) fn textual(&mut self, node: &SourceNode, field: &str) -> Option<At<Attribute>> {
        let attribute = self.attribute(node, field)?;
        if attribute.value != Attribute::Ip {
            return Some(attribute);
        }
        self.report.say(
            node.place,
            format!("`{field}` cannot be `ip`: an address is no word and no number"),
            "name a header, a claim or another attribute",
        );
        None
    }
}

fn meant_attribute(text: &str) -> String {
    const SINGLE: [&str; 6] = ["ip", "method", "host", "route", "path", "domain"];
    if let Some((family, rest)) = text.split_once('.')
        && !rest.is_empty()
        && let Some(family) = nearest(family, FAMILIES)
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
        return format!("say which one: `{family}.NAME`");
    }
    match nearest(text, SINGLE) {
        Some(meant) => format!("did you mean `{meant}`?"),
        None => format!("there are {}", list(&Attribute::NAMES, "and")),
    }
}
