//! `/json`: the same request and response in protobuf's JSON, for clients without gRPC.
//!
//! Field names may be snake case or camel case, numbers may be strings, enumerations names or numbers. `null` means absent, and
//! unknown fields are refused. Must not know: HTTP, how requests are decided.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use crate::config::{
    DescriptorEntry, LimitOverride, MAX_DESCRIPTORS, MAX_ENTRIES, Metadata, RlsCode, RlsRequest,
    WindowUnit,
};
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Deserializer, MapAccess, Visitor};
use serde::ser::{SerializeMap, SerializeSeq, Serializer};
use serde::{Deserialize, Serialize};
use tollgate_core::Nanos;
use tollgate_service::Refusal;

use super::messages::{MAX_KEY_LEN, MAX_VALUE_LEN};
use super::rls_response::{RlsLimit, RlsResponse, RlsStatus};

/// The response to a JSON request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RlsJsonResponse {
    /// The request was decided.
    Decided {
        /// The HTTP status.
        status: u16,
        /// The response as JSON.
        body: Vec<u8>,
        /// How long to delay the response.
        wait: Nanos,
    },
    /// The request could not be decided: the refusal, and why.
    Failed(Refusal, String),
}

/// The request body.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RlsJsonRequest<'a> {
    #[serde(borrow)]
    domain: Option<Cow<'a, str>>,
    #[serde(borrow)]
    descriptors: Option<Vec<JsonObject<JsonDescriptor<'a>>>>,
    #[serde(alias = "hitsAddend")]
    hits_addend: Option<JsonNumber>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct JsonDescriptor<'a> {
    #[serde(borrow)]
    entries: Option<Vec<JsonObject<JsonEntry<'a>>>>,
    #[serde(borrow)]
    limit: Option<JsonObject<JsonLimit<'a>>>,
    #[serde(alias = "hitsAddend")]
    hits_addend: Option<JsonNumber>,
    #[serde(alias = "isNegativeHits")]
    is_negative_hits: Option<bool>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct JsonEntry<'a> {
    #[serde(borrow)]
    key: Option<Cow<'a, str>>,
    #[serde(borrow)]
    value: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct JsonLimit<'a> {
    #[serde(alias = "requestsPerUnit")]
    requests_per_unit: Option<JsonNumber>,
    #[serde(borrow)]
    unit: Option<UnitName<'a>>,
}

/// A message. A derived `Deserialize` would also accept a list of its fields, which protobuf's JSON does not have.
struct JsonObject<T>(T);

/// An integer, as a number or a string of digits.
#[derive(Clone, Copy)]
struct JsonNumber(u64);

/// A unit by its name or number.
#[derive(Deserialize)]
#[serde(untagged)]
enum UnitName<'a> {
    Number(i32),
    Name(#[serde(borrow)] Cow<'a, str>),
}

/// Parses the body. The parts of the result borrow from each other, so they are built one after another.
pub(super) fn read_json(body: &[u8]) -> Result<RlsJsonRequest<'_>, String> {
    let JsonObject(request): JsonObject<RlsJsonRequest<'_>> =
        serde_json::from_slice(body).map_err(|error| format!("body: {error}"))?;
    check_at_most("descriptors", request.list().len(), MAX_DESCRIPTORS)?;
    Ok(request)
}

impl RlsJsonRequest<'_> {
    /// The entries of each descriptor.
    pub(super) fn entries(&self) -> Result<Vec<Vec<DescriptorEntry<'_>>>, String> {
        let mut entries = Vec::with_capacity(self.list().len());
        for (index, JsonObject(descriptor)) in self.list().iter().enumerate() {
            let own = read_entries(descriptor);
            entries.push(own.map_err(|reason| format!("descriptors[{index}].{reason}"))?);
        }
        Ok(entries)
    }

    /// The descriptors, which have these entries.
    pub(super) fn descriptors<'a>(
        &self,
        entries: &'a [Vec<DescriptorEntry<'a>>],
    ) -> Result<Vec<crate::config::Descriptor<'a>>, String> {
        let mut descriptors = Vec::with_capacity(self.list().len());
        for (index, (JsonObject(descriptor), entries)) in
            self.list().iter().zip(entries).enumerate()
        {
            let limit = descriptor.limit.as_ref();
            let limit = limit.map(|JsonObject(limit)| read_limit(limit)).transpose();
            descriptors.push(crate::config::Descriptor {
                entries,
                limit: limit.map_err(|reason| format!("descriptors[{index}].limit.{reason}"))?,
                hits_addend: descriptor.hits_addend.map(|JsonNumber(hits)| hits),
                is_negative_hits: descriptor.is_negative_hits.unwrap_or(false),
            });
        }
        Ok(descriptors)
    }

    /// The request with these descriptors.
    pub(super) fn request<'a>(
        &'a self,
        descriptors: &'a [crate::config::Descriptor<'a>],
    ) -> Result<RlsRequest<'a>, String> {
        Ok(RlsRequest {
            domain: self.domain.as_deref().unwrap_or(""),
            descriptors,
            hits_addend: to_u32("hits_addend", self.hits_addend)?,
        })
    }

    fn list(&self) -> &[JsonObject<JsonDescriptor<'_>>] {
        self.descriptors.as_deref().unwrap_or_default()
    }
}

fn read_entries<'a>(
    descriptor: &'a JsonDescriptor<'_>,
) -> Result<Vec<DescriptorEntry<'a>>, String> {
    let list = descriptor.entries.as_deref().unwrap_or_default();
    check_at_most("entries", list.len(), MAX_ENTRIES)?;
    let mut entries = Vec::with_capacity(list.len());
    for JsonObject(pair) in list {
        let key = pair.key.as_deref().unwrap_or("");
        let value = pair.value.as_deref().unwrap_or("");
        check_at_most("entries.key (bytes)", key.len(), MAX_KEY_LEN)?;
        check_at_most("entries.value (bytes)", value.len(), MAX_VALUE_LEN)?;
        entries.push(DescriptorEntry::new(key, value));
    }
    Ok(entries)
}

fn read_limit(limit: &JsonLimit<'_>) -> Result<LimitOverride, String> {
    let unit = match &limit.unit {
        Some(UnitName::Number(number)) => WindowUnit::from_number(*number),
        // Only the spelling of the messages is accepted; files are case-insensitive.
        Some(UnitName::Name(name)) => WindowUnit::from_name(name)
            .filter(|_| name.bytes().all(|byte| byte.is_ascii_uppercase())),
        None => None,
    };
    let names = "SECOND, MINUTE, HOUR, DAY, WEEK, MONTH, YEAR";
    Ok(LimitOverride {
        requests_per_unit: to_u32("requests_per_unit", limit.requests_per_unit)?,
        unit: unit.ok_or_else(|| format!("unit: it must be one of {names}"))?,
    })
}

fn check_at_most(what: &str, is: usize, most: usize) -> Result<(), String> {
    if is > most {
        return Err(format!("{what}: {is} are too many, there may be {most}"));
    }
    Ok(())
}

fn to_u32(field: &str, number: Option<JsonNumber>) -> Result<u32, String> {
    let JsonNumber(number) = number.unwrap_or(JsonNumber(0));
    let wide = |_| format!("{field}: {number} does not fit in 32 bits");
    u32::try_from(number).map_err(wide)
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for JsonObject<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ObjectVisitor(PhantomData))
    }
}

struct ObjectVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
    type Value = JsonObject<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<JsonObject<T>, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map)).map(JsonObject)
    }
}

impl<'de> Deserialize<'de> for JsonNumber {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NumberVisitor)
    }
}

struct NumberVisitor;

impl Visitor<'_> for NumberVisitor {
    type Value = JsonNumber;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a non-negative integer, or a string of one")
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<JsonNumber, E> {
        Ok(JsonNumber(number))
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<JsonNumber, E> {
        // Up to 2^53 every integer is exact.
        let is_whole = number.fract() == 0.0 && (0.0..=9_007_199_254_740_992.0).contains(&number);
        if !is_whole {
            return Err(E::invalid_value(de::Unexpected::Float(number), &self));
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "it is whole, not negative, and below 2^53"
        )]
        let whole = number as u64;
        Ok(JsonNumber(whole))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<JsonNumber, E> {
        let number = text.parse().ok().filter(|_| !text.starts_with('+'));
        number
            .map(JsonNumber)
            .ok_or_else(|| E::invalid_value(de::Unexpected::Str(text), &self))
    }
}

/// Writes a response. Empty and zero fields are left out, as in the messages.
pub(super) fn write_json(response: &RlsResponse<'_>) -> Vec<u8> {
    // Serializing cannot fail.
    serde_json::to_vec(&ResponseJson(response)).unwrap_or_default()
}

struct ResponseJson<'a>(&'a RlsResponse<'a>);
struct StatusesJson<'a>(&'a [RlsStatus<'a>]);
struct StatusJson<'a>(&'a RlsStatus<'a>);
struct LimitJson<'a>(&'a RlsLimit<'a>);
struct HeadersJson<'a>(&'a tollgate_http::HeaderFields);
struct MetadataJson<'a>(&'a Metadata);

impl Serialize for ResponseJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(response) = self;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("overallCode", code(response.overall))?;
        map.serialize_entry("statuses", &StatusesJson(response.statuses))?;
        if !response.fields.is_empty() {
            map.serialize_entry("responseHeadersToAdd", &HeadersJson(response.fields))?;
        }
        if let Some(metadata) = response.metadata {
            map.serialize_entry("dynamicMetadata", &MetadataJson(metadata))?;
        }
        map.end()
    }
}

impl Serialize for StatusesJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(StatusJson))
    }
}

impl Serialize for StatusJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(status) = self;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("code", code(status.code))?;
        if let Some(limit) = &status.limit {
            map.serialize_entry("currentLimit", &LimitJson(limit))?;
        }
        if status.remaining != 0 {
            map.serialize_entry("limitRemaining", &status.remaining)?;
        }
        if let Some(seconds) = status.until_reset {
            map.serialize_entry("durationUntilReset", &format!("{seconds}s"))?;
        }
        map.end()
    }
}

impl Serialize for LimitJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(limit) = self;
        let mut map = serializer.serialize_map(None)?;
        if limit.requests_per_unit != 0 {
            map.serialize_entry("requestsPerUnit", &limit.requests_per_unit)?;
        }
        if let Some(unit) = WindowUnit::from_number(limit.unit) {
            map.serialize_entry("unit", &unit.name().to_ascii_uppercase())?;
        }
        if !limit.name.is_empty() {
            map.serialize_entry("name", limit.name)?;
        }
        map.end()
    }
}

impl Serialize for HeadersJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Header<'a> {
            key: &'a str,
            value: Cow<'a, str>,
        }
        serializer.collect_seq(self.0.iter().map(|(key, value)| Header {
            key,
            value: String::from_utf8_lossy(value),
        }))
    }
}

impl Serialize for MetadataJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Metadata::Null => serializer.serialize_unit(),
            Metadata::Bool(truth) => serializer.serialize_bool(*truth),
            Metadata::Number(number) => serializer.serialize_f64(*number),
            Metadata::Text(text) => serializer.serialize_str(text),
            Metadata::List(list) => {
                let mut seq = serializer.serialize_seq(Some(list.len()))?;
                for one in list {
                    seq.serialize_element(&MetadataJson(one))?;
                }
                seq.end()
            }
            Metadata::Map(map) => serializer.collect_map(
                map.iter()
                    .map(|(name, value)| (&**name, MetadataJson(value))),
            ),
        }
    }
}

const fn code(code: RlsCode) -> &'static str {
    match code {
        RlsCode::Ok => "OK",
        RlsCode::OverLimit => "OVER_LIMIT",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<String, String> {
        let request = read_json(text.as_bytes())?;
        let entries = request.entries()?;
        let descriptors = request.descriptors(&entries)?;
        let request = request.request(&descriptors)?;
        let one = |one: &crate::config::Descriptor<'_>| {
            let entries: Vec<_> = one.entries.iter().map(|it| (it.key, it.value)).collect();
            format!(
                "{entries:?} {:?} {:?} {}",
                one.limit.map(|it| (it.requests_per_unit, it.unit)),
                one.hits_addend,
                one.is_negative_hits
            )
        };
        let all: Vec<String> = request.descriptors.iter().map(one).collect();
        Ok(format!(
            "{} {} {}",
            request.domain,
            request.hits_addend,
            all.join("; ")
        ))
    }

    #[test]
    fn names_may_be_snake_or_camel_case_and_numbers_may_be_strings() {
        let camel = r#"{"domain":"d","hitsAddend":"3","descriptors":[{"entries":[{"key":"k","value":"v"}],
            "limit":{"requestsPerUnit":5,"unit":"MINUTE"},"hitsAddend":"0","isNegativeHits":true}]}"#;
        let snake = r#"{"domain":"d","hits_addend":3.0,"descriptors":[{"entries":[{"key":"k","value":"v"}],
            "limit":{"requests_per_unit":"5","unit":2},"hits_addend":0,"is_negative_hits":true}]}"#;
        let expected = r#"d 3 [("k", "v")] Some((5, Minute)) Some(0) true"#;
        assert_eq!(read(camel).unwrap(), expected);
        assert_eq!(read(snake).unwrap(), expected);
        let empty =
            r#"{"domain":null,"descriptors":[{"entries":[{"key":"k\u0041"}],"hitsAddend":null}]}"#;
        assert_eq!(read(empty).unwrap(), r#" 0 [("kA", "")] None None false"#);
        assert_eq!(read("{}").unwrap(), " 0 ");
    }

    #[test]
    fn errors_name_the_invalid_field() {
        for (text, reason) in [
            ("", "body: EOF"),
            // A list of the fields is not a message; found by schemathesis.
            ("[]", "body: invalid type: sequence, expected an object"),
            (r#"["d"]"#, "expected an object"),
            (r#"{"descriptors":[[]]}"#, "expected an object"),
            (
                r#"{"descriptors":[{"entries":[["k","v"]]}]}"#,
                "expected an object",
            ),
            (r#"{"descriptors":[{"limit":[5,2]}]}"#, "expected an object"),
            (r#"{"domian":"d"}"#, "unknown field `domian`"),
            (
                r#"{"hitsAddend":1,"hits_addend":1}"#,
                "duplicate field `hits_addend`",
            ),
            (r#"{"hits_addend":-1}"#, "a non-negative integer"),
            (r#"{"hits_addend":1.5}"#, "a non-negative integer"),
            (r#"{"hits_addend":4294967296}"#, "does not fit in 32 bits"),
            (
                r#"{"descriptors":[{"limit":{"unit":"fortnight"}}]}"#,
                "descriptors[0].limit.unit: it must be one of",
            ),
            (
                r#"{"descriptors":[{"limit":{}}]}"#,
                "descriptors[0].limit.unit: it must be one of",
            ),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        }
        let many = format!(r#"{{"descriptors":[{}]}}"#, vec!["{}"; 33].join(","));
        assert!(read(&many).unwrap_err().contains("there may be 32"));
        let long = format!(
            r#"{{"descriptors":[{{"entries":[{{"key":"{}"}}]}}]}}"#,
            "k".repeat(MAX_KEY_LEN + 1)
        );
        assert!(read(&long).unwrap_err().contains("entries.key"));
    }
}
