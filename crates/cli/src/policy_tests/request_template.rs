//! Requests in test files: a map that a step overrides field by field. `{n}` stands for the number of the request in its
//! step.
//!
//! Must not know: policies, steps.

use tollgate_policy::attributes::Attribute;
use tollgate_policy::grammar::{self, GrammarError, quote};
use tollgate_policy::read::{TreeReader, describe_node};
use tollgate_policy::source::{Located, SourceNode, SourceValue};

use super::read::{as_list, open_fields};
use crate::request_description::{self, RequestDescription};

/// The placeholder for the number of a request.
const NUMBER_PLACEHOLDER: &str = "{n}";

/// A field of a request in a test.
#[derive(Clone, Debug, PartialEq, Eq)]
enum RequestField {
    Ip,
    /// The path and the query.
    Target,
    Other(Attribute),
}

/// A request whose placeholders are not replaced yet.
#[derive(Clone, Debug, Default)]
pub(super) struct RequestTemplate {
    fields: Vec<(RequestField, Located<Box<str>>)>,
    /// For envoyproxy/ratelimit: the entries of each descriptor.
    descriptors: Vec<Vec<(Box<str>, Box<str>)>>,
    /// For envoyproxy/ratelimit: `hits_addend`.
    pub(super) hits: Option<u32>,
}

/// The entries of one descriptor.
pub(super) type DescriptorEntries = Vec<(String, String)>;

impl RequestTemplate {
    /// This template with the fields of a map. A name without a value removes the field.
    pub(super) fn with_overrides(&self, reader: &mut TreeReader, node: &SourceNode) -> Self {
        let mut template = self.clone();
        let Some(mut fields) = open_fields(reader, node, "a request") else {
            return template;
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
                template.set(reader, field, value, name);
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
                template.set_all(reader, family, value, name);
            }
        }
        if let Some(value) = fields.find("descriptors") {
            template.set_descriptors(reader, value);
        }
        if let Some(value) = fields.take(reader, "hits") {
            let hits = reader.number(value, "hits", 0, u32::MAX.into());
            template.hits = hits.and_then(|hits| u32::try_from(hits).ok());
        }
        fields.finish(reader);
        template
    }

    fn set(&mut self, reader: &mut TreeReader, field: RequestField, node: &SourceNode, name: &str) {
        self.fields.retain(|(before, _)| *before != field);
        if matches!(node.value, SourceValue::Null) {
            return;
        }
        let Some(text) = reader.text(node, name) else {
            return;
        };
        let field_text = (field, Located::new(text.into(), node.location));
        // Validates the field with the number 1, so that errors are reported when the file is read.
        let mut scratch = RequestDescription::default();
        let result = set_field(&mut scratch, &field_text, 1);
        if reader.parse(node, name, |_| result).is_some() {
            self.fields.push(field_text);
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

    /// Reads descriptors: one as a map, or several as a list of maps.
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

    /// The request with this number.
    pub(super) fn instantiate(&self, number: u64) -> Result<RequestDescription, GrammarError> {
        let mut request = RequestDescription::default();
        for field_text in &self.fields {
            set_field(&mut request, field_text, number)?;
        }
        for (name, value) in self.descriptors(number).into_iter().flatten() {
            request.add(Attribute::Descriptor(name.as_str().into()), &value);
            request.add(Attribute::AnyDescriptor(name.into()), &value);
        }
        Ok(request.with_derived_attributes())
    }

    /// The descriptors of the request with this number.
    pub(super) fn descriptors(&self, number: u64) -> Vec<DescriptorEntries> {
        let numbered = |(key, value): &(Box<str>, Box<str>)| {
            (key.to_string(), substitute_number(value, number))
        };
        let all = self.descriptors.iter();
        all.map(|one| one.iter().map(numbered).collect()).collect()
    }

    /// The domain of the descriptors.
    pub(super) fn domain(&self) -> Option<&str> {
        let is_domain = |field: &RequestField| *field == RequestField::Other(Attribute::Domain);
        let field_text = self.fields.iter().find(|(field, _)| is_domain(field));
        field_text.map(|(_, text)| &*text.value)
    }
}

/// Sets one field of a request.
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
            request.add(Attribute::Host, &request_description::normalize_host(&text));
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
