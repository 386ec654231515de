//! Requests as tests write them: a map that later maps override field by field, in which `{n}` is the number of the
//! request within its step.
//!
//! Must not know: policies, steps.

use tollgate_policy::attributes::Attribute;
use tollgate_policy::grammar::{self, GrammarError, quote};
use tollgate_policy::read::{TreeReader, describe_node};
use tollgate_policy::source::{Located, SourceNode, SourceValue};

use super::read::{as_list, open_fields};
use crate::request_description::{self, RequestDescription};

/// What stands for the number of a request.
const NUMBER_PLACEHOLDER: &str = "{n}";

/// What can be said in a test's request.
#[derive(Clone, Debug, PartialEq, Eq)]
enum RequestField {
    Ip,
    /// The path with its query.
    Target,
    Other(Attribute),
}

/// A request that is still to be numbered.
#[derive(Clone, Debug, Default)]
pub(super) struct RequestTemplate {
    fields: Vec<(RequestField, Located<Box<str>>)>,
    /// Of envoyproxy/ratelimit: each a list of entries.
    descriptors: Vec<Vec<(Box<str>, Box<str>)>>,
    /// Of envoyproxy/ratelimit: how much each descriptor counts.
    pub(super) hits: Option<u32>,
}

/// One descriptor of a numbered request.
pub(super) type DescriptorEntries = Vec<(String, String)>;

impl RequestTemplate {
    /// This request, changed by what a map says. A name without a value takes away what was said.
    pub(super) fn with_overrides(&self, reader: &mut TreeReader, node: &SourceNode) -> Self {
        let mut asked = self.clone();
        let Some(mut fields) = open_fields(reader, node, "a request") else {
            return asked;
        };
        for (name, field) in [
            ("method", RequestField::Other(Attribute::Method)),
            ("path", RequestField::Target),
            ("host", RequestField::Other(Attribute::Host)),
            ("ip", RequestField::Ip),
            ("route", RequestField::Other(Attribute::Route)),
            ("domain", RequestField::Other(Attribute::Domain)),
        ] {
            if let Some(value) = fields.find(name) {
                asked.set(reader, field, value, name);
            }
        }
        type Family = fn(Box<str>) -> Attribute;
        let families: [(&'static str, Family); 4] = [
            ("headers", Attribute::Header),
            ("query", Attribute::Query),
            ("cookies", Attribute::Cookie),
            ("claims", Attribute::Claim),
        ];
        for (name, family) in families {
            if let Some(value) = fields.find(name) {
                asked.set_all(reader, family, value, name);
            }
        }
        if let Some(value) = fields.find("descriptors") {
            asked.set_descriptors(reader, value);
        }
        if let Some(value) = fields.take(reader, "hits") {
            let hits = reader.number(value, "hits", 0, u32::MAX.into());
            asked.hits = hits.and_then(|hits| u32::try_from(hits).ok());
        }
        fields.finish(reader);
        asked
    }

    fn set(&mut self, reader: &mut TreeReader, field: RequestField, node: &SourceNode, name: &str) {
        self.fields.retain(|(before, _)| *before != field);
        if matches!(node.value, SourceValue::Null) {
            return;
        }
        let Some(text) = reader.text(node, name) else {
            return;
        };
        let said = (field, Located::new(text.into(), node.location));
        // What is wrong whatever the number is, is wrong with one.
        let mut alone = RequestDescription::default();
        let result = set_field(&mut alone, &said, 1);
        if reader.parse(node, name, |_| result).is_some() {
            self.fields.push(said);
        }
    }

    fn set_all(
        &mut self,
        reader: &mut TreeReader,
        family: impl Fn(Box<str>) -> Attribute,
        node: &SourceNode,
        name: &'static str,
    ) {
        let SourceValue::Map(entries) = &node.value else {
            let message = format!("`{name}` must be a map, found {}", describe_node(node));
            reader.report(
                node.location,
                message,
                format!("write `{name}: {{ name: value }}`"),
            );
            return;
        };
        for entry in entries {
            let attribute = match family(entry.name.value.clone()) {
                Attribute::Header(header) => match grammar::parse_header_name(&header) {
                    Ok(header) => Attribute::Header(header),
                    Err(wrong) => {
                        let help = wrong.help.unwrap_or_default();
                        reader.report(entry.name.location, wrong.message, help);
                        continue;
                    }
                },
                other => other,
            };
            self.set(
                reader,
                RequestField::Other(attribute),
                &entry.value,
                &entry.name.value,
            );
        }
    }

    /// Descriptors: one as a map, or several as a list of maps.
    fn set_descriptors(&mut self, reader: &mut TreeReader, node: &SourceNode) {
        self.descriptors.clear();
        for one in as_list(node) {
            let SourceValue::Map(entries) = &one.value else {
                let message = format!("a descriptor must be a map, found {}", describe_node(one));
                reader.report(
                    one.location,
                    message,
                    "write its entries as `{ key: value }`",
                );
                continue;
            };
            let mut descriptor = Vec::with_capacity(entries.len());
            for entry in entries {
                let key = entry.name.value.clone();
                let value = match entry.value.value {
                    SourceValue::Null => Some(""),
                    _ => reader.text(&entry.value, &key),
                };
                descriptor.extend(value.map(|value| (key, value.into())));
            }
            self.descriptors.push(descriptor);
        }
    }

    /// The request of this number.
    pub(super) fn instantiate(&self, number: u64) -> Result<RequestDescription, GrammarError> {
        let mut request = RequestDescription::default();
        for said in &self.fields {
            set_field(&mut request, said, number)?;
        }
        for (name, value) in self.descriptors(number).into_iter().flatten() {
            request.add(Attribute::Descriptor(name.into()), &value);
        }
        Ok(request.with_derived_attributes())
    }

    /// The descriptors of the request of this number.
    pub(super) fn descriptors(&self, number: u64) -> Vec<DescriptorEntries> {
        let numbered = |(key, value): &(Box<str>, Box<str>)| {
            (key.to_string(), substitute_number(value, number))
        };
        let all = self.descriptors.iter();
        all.map(|one| one.iter().map(numbered).collect()).collect()
    }

    /// The domain of its descriptors.
    pub(super) fn domain(&self) -> Option<&str> {
        let is_domain = |field: &RequestField| *field == RequestField::Other(Attribute::Domain);
        let said = self.fields.iter().find(|(field, _)| is_domain(field));
        said.map(|(_, text)| &*text.value)
    }
}

/// Says one thing of a request.
fn set_field(
    request: &mut RequestDescription,
    (field, text): &(RequestField, Located<Box<str>>),
    number: u64,
) -> Result<(), GrammarError> {
    let text = substitute_number(&text.value, number);
    match field {
        RequestField::Ip => request.set_ip(grammar::parse_address(&text)?),
        RequestField::Target => {
            let target = request_description::parse_target(&text).map_err(GrammarError::new)?;
            request.set_target(&target);
        }
        RequestField::Other(Attribute::Method) => {
            request.add(Attribute::Method, &grammar::parse_method(&text)?);
        }
        RequestField::Other(Attribute::Host) => {
            request.add(Attribute::Host, &request_description::normalize_host(&text))
        }
        RequestField::Other(attribute) => {
            if text.chars().any(char::is_control) {
                return Err(GrammarError::with_help(
                    format!("{} has control characters", quote(&text)),
                    "write plain text",
                ));
            }
            request.add(attribute.clone(), &text);
        }
    }
    Ok(())
}

fn substitute_number(text: &str, number: u64) -> String {
    text.replace(NUMBER_PLACEHOLDER, &number.to_string())
}
