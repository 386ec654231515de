//! Parses check requests and ticket reports from JSON bodies. All functions are pure.
//!
//! The parser is strict: an unknown field, a duplicate field and a field of the wrong type are errors that name the field. Must
//! not know: HTTP, which limits exist.

mod fast_parser;

use std::fmt;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use self::fast_parser::parse_plain_check_request;
use crate::http::bad_input::{BadInput, parse_cost};
use crate::http::check_request::CheckRequest;

/// The most requests in a batch.
pub(crate) const MAX_BATCH_LEN: usize = 100;

/// Header fields with lower-case names.
pub(crate) type ReportedHeaders = Vec<(Box<str>, Box<[u8]>)>;

/// A report about a ticket.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct TicketReport {
    pub(crate) ticket: u128,
    pub(crate) status: Option<u16>,
    pub(crate) headers: ReportedHeaders,
    pub(crate) cost: Option<u64>,
}

/// Parses `{"attributes": {…}, "cost": 1, "peek": false}`. Every field is optional.
pub(crate) fn parse_check_request(body: &[u8]) -> Result<CheckRequest, BadInput> {
    parse_plain_check_request(body).map_or_else(|| parse_any_check_request(body), Ok)
}

/// The full parser for any body. It explains errors.
fn parse_any_check_request(body: &[u8]) -> Result<CheckRequest, BadInput> {
    let mut request = CheckRequest::default();
    for (name, value) in parse_object(body)? {
        set_field(&mut request, &name, value)?;
    }
    Ok(request)
}

/// Parses `{"requests": [{…}, {…}]}`, each item as [`parse_check_request`] does.
pub(crate) fn parse_check_requests(body: &[u8]) -> Result<Vec<CheckRequest>, BadInput> {
    let mut requests = None;
    for (name, value) in parse_object(body)? {
        match (name.as_str(), value) {
            ("requests", StrictJson::List(list)) => requests = Some(list),
            ("requests", other) => return Err(other.invalid("requests", "it must be a list")),
            (_, value) => return Err(value.unknown_field(&name, "requests")),
        }
    }
    let requests =
        requests.ok_or_else(|| BadInput::new("requests", b"", "it must be given: a list"))?;
    if requests.len() > MAX_BATCH_LEN {
        let reason = format!("there are {}, at most {MAX_BATCH_LEN} fit", requests.len());
        return Err(BadInput::new("requests", b"", reason));
    }
    let read = |(index, value): (usize, StrictJson)| {
        let path = format!("requests[{index}]");
        let StrictJson::Map(fields) = value else {
            return Err(value.invalid(&path, "it must be an object"));
        };
        let mut request = CheckRequest::default();
        for (name, value) in fields {
            set_field(&mut request, &name, value).map_err(|bad| bad.within(&path))?;
        }
        Ok(request)
    };
    requests.into_iter().enumerate().map(read).collect()
}

/// Parses `{"ticket": "…", "status": 200, "headers": {…}, "cost": 1}`. Only `ticket` and the fields in `also` are allowed.
pub(crate) fn parse_report(
    body: &[u8],
    also: &'static [&'static str],
) -> Result<TicketReport, BadInput> {
    let mut report = TicketReport::default();
    let mut ticket = None;
    for (name, value) in parse_object(body)? {
        match (name.as_str(), value) {
            ("ticket", value) => ticket = Some(parse_ticket_id(value.text("ticket")?.as_bytes())?),
            (name, value) if !also.contains(&name) => {
                let known = ["ticket"].iter().chain(also).copied();
                return Err(value.unknown_field(name, &known.collect::<Vec<_>>().join(", ")));
            }
            ("status", value) => report.status = Some(parse_status(&value)?),
            ("cost", value) => report.cost = Some(value.integer("cost")?),
            (_, StrictJson::Map(headers)) => report.headers = parse_headers("headers", headers)?,
            (name, value) => return Err(value.invalid(name, "it must be an object")),
        }
    }
    report.ticket = ticket.ok_or_else(|| BadInput::new("ticket", b"", "it must be given"))?;
    Ok(report)
}

fn set_field(request: &mut CheckRequest, name: &str, value: StrictJson) -> Result<(), BadInput> {
    match (name, value) {
        ("attributes", StrictJson::Map(attributes)) => {
            for (name, value) in attributes {
                let set = value
                    .text(&name)
                    .and_then(|text| request.set_attribute(&name, text.into_bytes()));
                set.map_err(|bad| bad.within("attributes"))?;
            }
            Ok(())
        }
        ("attributes", value) => Err(value.invalid("attributes", "it must be an object")),
        ("key", value) => request.set_attribute("key", value.text("key")?.into_bytes()),
        ("cost", value) => request.set_cost(value.integer("cost")?),
        ("peek", StrictJson::Other(Value::Bool(peek))) => request.set_peek(peek),
        ("peek", value) => Err(value.invalid("peek", "it must be true or false")),
        ("wait", value) => request.set_wait(&value.text("wait")?),
        (name, value) => Err(value.unknown_field(name, "attributes, key, cost, wait, peek")),
    }
}

fn parse_status(value: &StrictJson) -> Result<u16, BadInput> {
    let number = value.integer("status")?;
    match u16::try_from(number) {
        Ok(status @ 100..=599) => Ok(status),
        _ => Err(value.invalid("status", "it must be from 100 to 599")),
    }
}

fn parse_ticket_id(text: &[u8]) -> Result<u128, BadInput> {
    let is_hex = text.len() == 32 && text.iter().all(u8::is_ascii_hexdigit);
    let id = std::str::from_utf8(text).ok().filter(|_| is_hex);
    id.and_then(|id| u128::from_str_radix(id, 16).ok())
        .ok_or_else(|| BadInput::new("ticket", text, "it must be 32 hexadecimal digits"))
}

fn parse_headers(path: &str, fields: JsonFields) -> Result<ReportedHeaders, BadInput> {
    let read = |(name, value): (String, StrictJson)| {
        let text = value.text(&name).map_err(|bad| bad.within(path))?;
        let text: Box<[u8]> = text.into_bytes().into();
        Ok((name.to_ascii_lowercase().into(), text))
    };
    fields.into_iter().map(read).collect()
}

type JsonFields = Vec<(String, StrictJson)>;

fn parse_object(body: &[u8]) -> Result<JsonFields, BadInput> {
    if body.trim_ascii_start().first() != Some(&b'{') {
        return Err(BadInput::new("body", body, "it must be a JSON object"));
    }
    match serde_json::from_slice(body) {
        Ok(StrictJson::Map(fields)) => Ok(fields),
        Ok(_) => Err(BadInput::new("body", body, "it must be a JSON object")),
        Err(error) => Err(BadInput::new("body", body, error.to_string())),
    }
}

/// A JSON value that keeps the order of its fields and rejects duplicates, which `Value` does not notice.
#[derive(Debug)]
enum StrictJson {
    Map(JsonFields),
    List(Vec<Self>),
    Other(Value),
}

impl StrictJson {
    /// `null` is a value of the wrong type, not an absent field. A client that sends a null key has a bug, and another limit
    /// would silently apply to it.
    fn text(self, field: &str) -> Result<String, BadInput> {
        match self {
            Self::Other(Value::String(text)) => Ok(text),
            other => Err(other.invalid(field, "it must be a string")),
        }
    }

    fn integer(&self, field: &str) -> Result<u64, BadInput> {
        match self {
            // Numbers go through the parser of query strings, so that both give the same errors. Some languages write 3 as 3.0,
            // which JSON Schema accepts as an integer.
            Self::Other(Value::Number(number)) => match number.as_f64() {
                Some(float) if number.is_f64() && float.fract() == 0.0 => {
                    parse_cost(field, format!("{float:.0}").as_bytes())
                }
                _ => parse_cost(field, number.to_string().as_bytes()),
            },
            other => Err(other.invalid(field, "it must be a whole number")),
        }
    }

    fn invalid(&self, field: &str, reason: &'static str) -> BadInput {
        BadInput::new(field, self.preview().as_bytes(), reason)
    }

    fn unknown_field(&self, field: &str, known: &str) -> BadInput {
        let reason = format!("there is no such field; there are {known}");
        BadInput::new(field, self.preview().as_bytes(), reason)
    }

    fn preview(&self) -> String {
        match self {
            Self::Map(_) => "{…}".to_owned(),
            Self::List(_) => "[…]".to_owned(),
            Self::Other(value) => value.to_string(),
        }
    }
}

impl<'de> Deserialize<'de> for StrictJson {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(StrictJsonVisitor)
    }
}

struct StrictJsonVisitor;

impl<'de> Visitor<'de> for StrictJsonVisitor {
    type Value = StrictJson;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<StrictJson, A::Error> {
        let mut fields: JsonFields = Vec::new();
        while let Some((name, value)) = map.next_entry::<String, StrictJson>()? {
            // Bodies are short, so a linear search is fast enough.
            if fields.iter().any(|(known, _)| *known == name) {
                let message = format!(
                    "the field {:?} is given twice",
                    crate::http::bad_input::echo(name.as_bytes())
                );
                return Err(serde::de::Error::custom(message));
            }
            fields.push((name, value));
        }
        Ok(StrictJson::Map(fields))
    }

    fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut list: A) -> Result<StrictJson, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = list.next_element()? {
            items.push(item);
        }
        Ok(StrictJson::List(items))
    }

    fn visit_unit<E>(self) -> Result<StrictJson, E> {
        Ok(StrictJson::Other(Value::Null))
    }

    fn visit_bool<E>(self, value: bool) -> Result<StrictJson, E> {
        Ok(StrictJson::Other(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<StrictJson, E> {
        Ok(StrictJson::Other(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<StrictJson, E> {
        Ok(StrictJson::Other(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<StrictJson, E> {
        Ok(StrictJson::Other(value.into()))
    }

    fn visit_str<E>(self, value: &str) -> Result<StrictJson, E> {
        Ok(StrictJson::Other(value.into()))
    }
}

#[cfg(test)]
mod tests;
