//! Requests as tests write them: a map that later maps override field by field, in which `{n}` is the number of the
//! request within its step.
//!
//! Must not know: policies, steps.

use tollgate_policy::attributes::Attribute;
use tollgate_policy::read::{Reader, found};
use tollgate_policy::source::{At, SourceNode, SourceValue};
use tollgate_policy::words::{self, Wrong, quoted};

use super::read::{fields, one_or_more};
use crate::request::{self, Request};

/// What stands for the number of a request.
const NUMBER: &str = "{n}";

/// What can be said in a test's request.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Field {
    Ip,
    /// The path with its query.
    Target,
    Other(Attribute),
}

/// A request that is still to be numbered.
#[derive(Clone, Debug, Default)]
pub(super) struct Asked {
    said: Vec<(Field, At<Box<str>>)>,
    /// Of envoyproxy/ratelimit: each a list of entries.
    descriptors: Vec<Vec<(Box<str>, Box<str>)>>,
    /// Of envoyproxy/ratelimit: how much each descriptor counts.
    pub(super) hits: Option<u32>,
}

/// One descriptor of a numbered request.
pub(super) type Entries = Vec<(String, String)>;

impl Asked {
    /// This request, changed by what a map says. A name without a value takes away what was said.
    pub(super) fn overridden(&self, reader: &mut Reader, node: &SourceNode) -> Self {
        let mut asked = self.clone();
        let Some(mut fields) = fields(reader, node, "a request") else {
            return asked;
        };
        for (name, field) in [
            ("method", Field::Other(Attribute::Method)),
            ("path", Field::Target),
            ("host", Field::Other(Attribute::Host)),
            ("ip", Field::Ip),
            ("route", Field::Other(Attribute::Route)),
            ("domain", Field::Other(Attribute::Domain)),
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
            asked.describe(reader, value);
        }
        if let Some(value) = fields.take(reader, "hits") {
            let hits = reader.number(value, "hits", 0, u32::MAX.into());
            asked.hits = hits.and_then(|hits| u32::try_from(hits).ok());
        }
        fields.finish(reader);
        asked
    }

    fn set(&mut self, reader: &mut Reader, field: Field, node: &SourceNode, name: &str) {
        self.said.retain(|(before, _)| *before != field);
        if matches!(node.value, SourceValue::Nothing) {
            return;
        }
        let Some(text) = reader.text(node, name) else {
            return;
        };
        let said = (field, At::new(text.into(), node.place));
        // What is wrong whatever the number is, is wrong with one.
        let mut alone = Request::default();
        let result = say(&mut alone, &said, 1);
        if reader.parse(node, name, |_| result).is_some() {
            self.said.push(said);
        }
    }

    fn set_all(
        &mut self,
        reader: &mut Reader,
        family: impl Fn(Box<str>) -> Attribute,
        node: &SourceNode,
        name: &'static str,
    ) {
        let SourceValue::Map(entries) = &node.value else {
            let message = format!("`{name}` must be a map, found {}", found(node));
            reader.say(
                node.place,
                message,
                format!("write `{name}: {{ name: value }}`"),
            );
            return;
        };
        for entry in entries {
            let attribute = match family(entry.name.value.clone()) {
                Attribute::Header(header) => match words::header(&header) {
                    Ok(header) => Attribute::Header(header),
                    Err(wrong) => {
                        let help = wrong.help.unwrap_or_default();
                        reader.say(entry.name.place, wrong.message, help);
                        continue;
                    }
                },
                other => other,
            };
            self.set(
                reader,
                Field::Other(attribute),
                &entry.value,
                &entry.name.value,
            );
        }
    }

    /// Descriptors: one as a map, or several as a list of maps.
    fn describe(&mut self, reader: &mut Reader, node: &SourceNode) {
        self.descriptors.clear();
        for one in one_or_more(node) {
            let SourceValue::Map(entries) = &one.value else {
                let message = format!("a descriptor must be a map, found {}", found(one));
                reader.say(one.place, message, "write its entries as `{ key: value }`");
                continue;
            };
            let mut descriptor = Vec::with_capacity(entries.len());
            for entry in entries {
                let key = entry.name.value.clone();
                let value = match entry.value.value {
                    SourceValue::Nothing => Some(""),
                    _ => reader.text(&entry.value, &key),
                };
                descriptor.extend(value.map(|value| (key, value.into())));
            }
            self.descriptors.push(descriptor);
        }
    }

    /// The request of this number.
    pub(super) fn numbered(&self, number: u64) -> Result<Request, Wrong> {
        let mut request = Request::default();
        for said in &self.said {
            say(&mut request, said, number)?;
        }
        for (name, value) in self.descriptors(number).into_iter().flatten() {
            request.say(Attribute::Descriptor(name.into()), &value);
        }
        Ok(request.finish())
    }

    /// The descriptors of the request of this number.
    pub(super) fn descriptors(&self, number: u64) -> Vec<Entries> {
        let numbered =
            |(key, value): &(Box<str>, Box<str>)| (key.to_string(), with_number(value, number));
        let all = self.descriptors.iter();
        all.map(|one| one.iter().map(numbered).collect()).collect()
    }

    /// The domain of its descriptors.
    pub(super) fn domain(&self) -> Option<&str> {
        let is_domain = |field: &Field| *field == Field::Other(Attribute::Domain);
        let said = self.said.iter().find(|(field, _)| is_domain(field));
        said.map(|(_, text)| &*text.value)
    }
}

/// Says one thing of a request.
fn say(
    request: &mut Request,
    (field, text): &(Field, At<Box<str>>),
    number: u64,
) -> Result<(), Wrong> {
    let text = with_number(&text.value, number);
    match field {
        Field::Ip => request.from(words::address(&text)?),
        Field::Target => {
            let target = request::target(&text).map_err(Wrong::new)?;
            request.go_to(&target);
        }
        Field::Other(Attribute::Method) => {
            request.say(Attribute::Method, &words::method(&text)?);
        }
        Field::Other(Attribute::Host) => request.say(Attribute::Host, &request::host(&text)),
        Field::Other(attribute) => {
            if text.chars().any(char::is_control) {
                return Err(Wrong::with(
                    format!("{} has control characters", quoted(&text)),
                    "write plain text",
                ));
            }
            request.say(attribute.clone(), &text);
        }
    }
    Ok(())
}

fn with_number(text: &str, number: u64) -> String {
    text.replace(NUMBER, &number.to_string())
}
