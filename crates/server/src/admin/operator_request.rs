//! Parses the JSON body of an operator action. The parser is strict, and errors name the field.
//!
//! Must not know: HTTP, what an action does.

use std::num::NonZeroU64;

use serde::Deserialize;
use serde_json::Value;
use tollgate_core::Nanos;
use tollgate_engine::control::{Attribution, Halt, Switch};
use tollgate_policy::grammar::{self, GrammarError};

use crate::http::bad_input::BadInput;
use crate::http::request_attributes::RequestAttributes;

/// The most values of a key.
const MAX_KEY_VALUES: usize = 16;
/// The longest name of an operator, without the address that is appended.
const MAX_WHO_LEN: usize = 64;
/// The most units of one charge or refund: every JSON reader can represent it.
const MAX_UNITS: u64 = 9_007_199_254_740_991;
/// Stands for all limits. No limit can have this name.
const ALL_LIMITS: &str = "*";

/// The body of an operator action. The caller of `parse` says which fields are allowed.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OperatorRequest {
    limit: Option<Value>,
    key: Option<Value>,
    address: Option<Value>,
    quota: Option<Value>,
    attributes: Option<Value>,
    units: Option<Value>,
    r#for: Option<Value>,
    to: Option<Value>,
    enforce: Option<Value>,
    who: Option<Value>,
    why: Option<Value>,
}

impl OperatorRequest {
    /// Parses a body in which only `who`, `why` and these fields are allowed.
    pub(super) fn parse(body: &[u8], fields: &[&str]) -> Result<Self, BadInput> {
        if body.trim_ascii_start().first() != Some(&b'{') {
            return Err(BadInput::new("body", body, "it must be a JSON object"));
        }
        let parsed: Self = serde_json::from_slice(body)
            .map_err(|error| BadInput::new("body", body, error.to_string()))?;
        let given = [
            ("limit", &parsed.limit),
            ("key", &parsed.key),
            ("address", &parsed.address),
            ("quota", &parsed.quota),
            ("attributes", &parsed.attributes),
            ("units", &parsed.units),
            ("for", &parsed.r#for),
            ("to", &parsed.to),
            ("enforce", &parsed.enforce),
        ];
        for (name, value) in given {
            if let Some(value) = value.as_ref().filter(|_| !fields.contains(&name)) {
                let known = fields.iter().chain(&["who", "why"]).copied();
                let known = known.collect::<Vec<_>>().join(", ");
                let reason = format!("this field is not allowed here; allowed are {known}");
                return Err(BadInput::new(name, value.to_string().as_bytes(), reason));
            }
        }
        Ok(parsed)
    }

    /// Who makes the change and why. The engine rejects empty and too long values.
    pub(super) fn signature(&self, from: &str) -> Result<(String, String), BadInput> {
        let who = text("who", self.who.as_ref())?.trim();
        let why = text("why", self.why.as_ref())?;
        if who.is_empty() || who.len() > MAX_WHO_LEN {
            let reason = format!("it must name the operator, in at most {MAX_WHO_LEN} bytes");
            return Err(BadInput::new("who", who.as_bytes(), reason));
        }
        Ok((format!("{who} ({from})"), why.to_owned()))
    }

    pub(super) fn limit(&self) -> Result<&str, BadInput> {
        text("limit", self.limit.as_ref())
    }

    /// A limit, or `None` for all of them. All has to be explicit, so that a forgotten field does not halt every limit.
    pub(super) fn limit_or_all(&self) -> Result<Option<&str>, BadInput> {
        let Some(value) = &self.limit else {
            let reason = "it must be the name of a limit, or \"*\" for all limits";
            return Err(BadInput::new("limit", b"", reason));
        };
        let name = text("limit", Some(value))?;
        Ok(Some(name).filter(|name| *name != ALL_LIMITS))
    }

    /// The values of a key, in the order of its parts.
    pub(super) fn key<'a>(&'a self) -> Result<Vec<&'a str>, BadInput> {
        let wrong = |value: &Value, reason: &'static str| {
            BadInput::new("key", value.to_string().as_bytes(), reason)
        };
        match &self.key {
            None => Err(BadInput::new(
                "key",
                b"",
                "it must be given: a list of values",
            )),
            // A key of one part may be given as a string.
            Some(Value::String(value)) => Ok(vec![value]),
            Some(Value::Array(values)) if values.len() <= MAX_KEY_VALUES => {
                let text = |value: &'a Value| {
                    let text = value.as_str();
                    text.ok_or_else(|| wrong(value, "its values must be strings"))
                };
                values.iter().map(text).collect()
            }
            Some(other) => Err(wrong(other, "it must be a list of at most 16 values")),
        }
    }

    /// The address to block, if one is given instead of a key.
    pub(super) fn address(&self) -> Result<Option<&str>, BadInput> {
        let Some(value) = &self.address else {
            return Ok(None);
        };
        for (name, other) in [("limit", &self.limit), ("key", &self.key)] {
            if let Some(other) = other {
                let reason = "it must not be given together with an address";
                return Err(BadInput::new(name, other.to_string().as_bytes(), reason));
            }
        }
        text("address", Some(value)).map(Some)
    }

    pub(super) fn quota(&self) -> Result<&str, BadInput> {
        text("quota", self.quota.as_ref())
    }

    /// The attributes that select a quota, if they are given.
    pub(super) fn attributes(&self) -> Result<Option<RequestAttributes>, BadInput> {
        let values = match &self.attributes {
            None => return Ok(None),
            Some(Value::Object(values)) => values,
            Some(other) => {
                let reason = "it must be an object";
                let given = other.to_string();
                return Err(BadInput::new("attributes", given.as_bytes(), reason));
            }
        };
        let mut attributes = RequestAttributes::default();
        for (name, value) in values {
            text(name, Some(value))
                .and_then(|value| attributes.set(name, value.as_bytes().to_vec()))
                .map_err(|bad| bad.within("attributes"))?;
        }
        Ok(Some(attributes))
    }

    /// The units to charge or refund.
    pub(super) fn units(&self) -> Result<NonZeroU64, BadInput> {
        let units = self.units.as_ref();
        let valid = units
            .and_then(Value::as_u64)
            .filter(|units| *units <= MAX_UNITS)
            .and_then(NonZeroU64::new);
        valid.ok_or_else(|| {
            let given = units.map(Value::to_string).unwrap_or_default();
            let reason = format!("it must be a whole number from 1 to {MAX_UNITS}");
            BadInput::new("units", given.as_bytes(), reason)
        })
    }

    /// How long the change lasts. Without it, until it is revoked.
    pub(super) fn duration(&self) -> Result<Option<Nanos>, BadInput> {
        let Some(value) = &self.r#for else {
            return Ok(None);
        };
        let parsed = text("for", Some(value))?;
        let span = grammar::parse_duration(parsed)
            .map_err(|wrong| invalid_value("for", parsed, &wrong))?;
        if span.is_zero() {
            let reason = "it must be longer than zero";
            return Err(BadInput::new("for", parsed.as_bytes(), reason));
        }
        Ok(Some(span))
    }

    /// The switch position.
    pub(super) fn switch(&self) -> Result<Switch, BadInput> {
        let to = self
            .to
            .as_ref()
            .map(|to| text("to", Some(to)))
            .transpose()?;
        let halt = match to {
            Some("on") => None,
            None if self.enforce.is_some() => None,
            Some("shadow") => Some(Halt::Shadow),
            Some("off") => Some(Halt::Off),
            other => {
                let parsed = other.unwrap_or_default();
                return Err(BadInput::new(
                    "to",
                    parsed.as_bytes(),
                    "it must be on, shadow or off",
                ));
            }
        };
        let enforce = match &self.enforce {
            None => None,
            Some(value) => {
                let parsed = text("enforce", Some(value))?;
                let share = grammar::parse_percent(parsed)
                    .map_err(|wrong| invalid_value("enforce", parsed, &wrong))?;
                Some(share.hundredths())
            }
        };
        Ok(Switch { halt, enforce })
    }
}

/// The signature for the engine.
pub(super) fn signed_by((who, why): &(String, String)) -> Attribution<'_> {
    Attribution { who, why }
}

fn text<'a>(field: &str, value: Option<&'a Value>) -> Result<&'a str, BadInput> {
    match value {
        Some(Value::String(text)) => Ok(text),
        Some(other) => {
            let value_text = other.to_string();
            Err(BadInput::new(
                field,
                value_text.as_bytes(),
                "it must be a string",
            ))
        }
        None => Err(BadInput::new(field, b"", "it must be given")),
    }
}

fn invalid_value(field: &str, parsed: &str, wrong: &GrammarError) -> BadInput {
    let help = wrong.help.as_ref().map(|help| format!("; {help}"));
    let reason = format!("{}{}", wrong.message, help.unwrap_or_default());
    BadInput::new(field, parsed.as_bytes(), reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A field whose error a test expects.
    type FieldCheck = fn(&OperatorRequest) -> Option<BadInput>;

    fn parsed(body: &str) -> OperatorRequest {
        let all = [
            "limit",
            "key",
            "address",
            "quota",
            "attributes",
            "units",
            "for",
            "to",
            "enforce",
        ];
        OperatorRequest::parse(body.as_bytes(), &all).unwrap()
    }

    /// The body, the field, and how its error begins.
    const INVALID_FIELDS: &[(&str, FieldCheck, &str)] = &[
        ("{}", |parsed| parsed.limit().err(), "limit: "),
        (
            r#"{"limit": 7}"#,
            |parsed| parsed.limit().err(),
            "limit: \"7\"",
        ),
        ("{}", |parsed| parsed.limit_or_all().err(), "limit: "),
        ("{}", |parsed| parsed.key().err(), "key: "),
        (
            r#"{"key": ["a", 7]}"#,
            |parsed| parsed.key().err(),
            "key: \"7\"",
        ),
        (r#"{"key": {}}"#, |parsed| parsed.key().err(), "key: \"{}\""),
        (
            r#"{"for": "soon"}"#,
            |parsed| parsed.duration().err(),
            "for: \"soon\"",
        ),
        (
            r#"{"for": "0s"}"#,
            |parsed| parsed.duration().err(),
            "for: \"0s\"",
        ),
        (
            r#"{"to": "down"}"#,
            |parsed| parsed.switch().err(),
            "to: \"down\"",
        ),
        (
            r#"{"enforce": "150%"}"#,
            |parsed| parsed.switch().err(),
            "enforce: \"150%\"",
        ),
        (
            r#"{"address": "::1", "key": ["a"]}"#,
            |parsed| parsed.address().err(),
            "key: ",
        ),
        ("{}", |parsed| parsed.units().err(), "units: "),
        (
            r#"{"units": 0}"#,
            |parsed| parsed.units().err(),
            "units: \"0\"",
        ),
        (
            r#"{"units": 9007199254740992}"#,
            |parsed| parsed.units().err(),
            "units: \"9007199254740992\"",
        ),
        (
            r#"{"attributes": []}"#,
            |parsed| parsed.attributes().err(),
            "attributes: \"[]\"",
        ),
        (
            r#"{"attributes": {"ip": "here"}}"#,
            |parsed| parsed.attributes().err(),
            "attributes.ip: \"here\"",
        ),
        (
            r#"{"why": "x"}"#,
            |parsed| parsed.signature("here").err(),
            "who: ",
        ),
    ];

    #[test]
    fn invalid_fields_are_named() {
        for (body, field_error, expected) in INVALID_FIELDS {
            let error = field_error(&parsed(body)).unwrap().to_string();
            assert!(error.starts_with(*expected), "{body}: {error}");
        }
        for body in [
            "",
            "[]",
            "{\"limit\": \"a\", \"limit\": \"b\"}",
            "{\"lmit\": \"a\"}",
            "{",
        ] {
            let error = OperatorRequest::parse(body.as_bytes(), &["limit"]).unwrap_err();
            assert_eq!(error.field, "body", "{body}");
        }
        let error = OperatorRequest::parse(br#"{"quota": "1/s"}"#, &["limit"]).unwrap_err();
        assert_eq!(error.field, "quota");
        assert!(error.to_string().contains("allowed are limit, who, why"));
    }

    #[test]
    fn valid_fields_are_parsed() {
        let body = r#"{"limit": "*", "key": "a", "for": "90s", "to": "shadow", "enforce": "2.5%", "who": " ada ", "why": "test"}"#;
        let parsed = parsed(body);
        assert_eq!(parsed.limit_or_all().unwrap(), None);
        assert_eq!(parsed.key().unwrap(), ["a"]);
        assert_eq!(parsed.duration().unwrap(), Some(Nanos::from_secs(90)));
        let switch = Switch {
            halt: Some(Halt::Shadow),
            enforce: Some(250),
        };
        assert_eq!(parsed.switch().unwrap(), switch);
        let signed = parsed.signature("192.0.2.7").unwrap();
        assert_eq!(signed, ("ada (192.0.2.7)".to_owned(), "test".to_owned()));
    }
}
