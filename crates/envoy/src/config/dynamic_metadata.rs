//! The dynamic metadata of a reply, which Envoy hands to its other filters: the request, and the `metadata` of its rules.
//!
//! The names and their order are those of envoyproxy/ratelimit. Must not know: protobuf, JSON.

use super::metadata::Metadata;
use super::plan::ChargePlan;
use super::reply::EnvoyReply;
use super::request::{Descriptor, LimitOverride};

impl ChargePlan<'_> {
    /// The dynamic metadata of a reply to this request: `domain`, `descriptors`, `hitsAddend` and `metadata`, the last merged from the
    /// rules that admitted. It allocates.
    #[must_use]
    pub fn dynamic_metadata(&self, reply: &EnvoyReply<'_>) -> Metadata {
        let request = &self.request;
        let descriptors = request.descriptors.iter().map(describe).collect();
        let hits = (request.hits_addend != 0).then(|| number(request.hits_addend.into()));
        map([
            ("domain", Some(text(request.domain))),
            ("descriptors", Some(Metadata::List(descriptors))),
            ("hitsAddend", hits),
            ("metadata", reply.metadata().filter(|all| !all.is_empty())),
        ])
    }
}

fn describe(descriptor: &Descriptor<'_>) -> Metadata {
    let entries = descriptor.entries.iter();
    let entries = entries.map(|entry| text(&format!("{}={}", entry.key, entry.value)));
    map([
        ("entries", Some(Metadata::List(entries.collect()))),
        ("limit", descriptor.limit.map(describe_limit)),
        ("hitsAddend", descriptor.hits_addend.map(number)),
    ])
}

/// The text format of the message, without the fields that are zero.
fn describe_limit(limit: LimitOverride) -> Metadata {
    let unit = format!("unit:{}", limit.unit.name().to_ascii_uppercase());
    match limit.requests_per_unit {
        0 => text(&unit),
        requests => text(&format!("requests_per_unit:{requests} {unit}")),
    }
}

/// A map of the values that are there.
fn map<const N: usize>(entries: [(&str, Option<Metadata>); N]) -> Metadata {
    let entries = entries.into_iter();
    let present = entries.filter_map(|(name, value)| Some((name.into(), value?)));
    Metadata::Map(present.collect())
}

fn text(text: &str) -> Metadata {
    Metadata::Text(text.into())
}

#[expect(
    clippy::cast_precision_loss,
    reason = "numbers of protobuf's Struct are doubles, and envoyproxy/ratelimit converts hits in the same way"
)]
fn number(number: u64) -> Metadata {
    Metadata::Number(number as f64)
}
