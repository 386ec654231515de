//! Quotas beside the limit's own: tiers, overrides, levels, a local bucket, a candidate.
//!
//! Must not know: whether they fit together; `check` asks.

use super::Reader;
use super::fields::Fields;
use super::key::key;
use super::quota::{Kind, Terms, quota, short, terms, terms_of};
use super::scalar::found;
use crate::attributes::Attribute;
use crate::model::{Algorithm, Amount, KeyPart, Level, Missing, Override, QuotaSpec, Tiers};
use crate::source::{At, Node, Value};
use crate::words;

/// As many levels as a batch has room for beside other limits.
const MOST_LEVELS: usize = 8;

/// `tiers: { by: header.x-plan, free: 100/min, partner: unlimited }`
pub(super) fn tiers(reader: &mut Reader, node: &Node, limits: &QuotaSpec) -> Option<Tiers> {
    let mut fields = Fields::open(
        reader,
        node,
        "`tiers`",
        "tiers: { by: header.x-plan, free: 100/min }",
    )?;
    let by = fields
        .require(reader, "by", "header.x-plan")
        .and_then(|node| reader.textual(node, "by"));
    let mut tiers = Vec::new();
    for entry in fields.rest() {
        let of = format!("tier `{}`", entry.name.value);
        if let Some(quota) = nested(reader, &entry.value, &of, &entry.name.value, limits) {
            let name = spelled(by.as_ref().map(|by| &by.value), &entry.name.value);
            tiers.push((At::new(name, entry.name.place), quota));
        }
    }
    if fields.rest().next().is_none() {
        reader.report.say(
            node.place,
            "`tiers` names no tier",
            "add one for each value: `free: 100/min`",
        );
    }
    Some(Tiers { by: by?, tiers })
}

/// Values are compared as transports give them: methods in upper case, hosts in lower.
pub(super) fn spelled(by: Option<&Attribute>, value: &str) -> Box<str> {
    match by {
        Some(Attribute::Method) => value.to_ascii_uppercase().into(),
        Some(Attribute::Host) => value.to_ascii_lowercase().into(),
        _ => value.into(),
    }
}

/// A quota that stands inside a limit: short, or a map in which what is left out is the limit's.
fn nested(
    reader: &mut Reader,
    node: &Node,
    of: &str,
    field: &str,
    limits: &QuotaSpec,
) -> Option<At<QuotaSpec>> {
    if !matches!(node.value, Value::Map(_)) {
        return short(reader, node, field, limits);
    }
    let mut fields = Fields::open(reader, node, of, "{ rate: 100/min, burst: 20 }")?;
    // A computed rate is a map too.
    if fields.has("base") || fields.has("at_most") {
        return short_computed(reader, node, limits);
    }
    let terms = terms(reader, &mut fields, Some(terms_of(limits)));
    let quota = quota(reader, &mut fields, terms, Some(limits), Kind::Tier);
    fields.finish(reader);
    quota
}

fn short_computed(reader: &mut Reader, node: &Node, limits: &QuotaSpec) -> Option<At<QuotaSpec>> {
    let amount = super::quota::read_rate(reader, node, limits.unit)?;
    let spec = QuotaSpec {
        amount,
        ..limits.clone()
    };
    Some(At::new(spec, node.place))
}

/// `overrides: [{ key: [abc], rate: 9000/min }]`
pub(super) fn overrides(reader: &mut Reader, node: &Node, limits: &QuotaSpec) -> Vec<Override> {
    let mut overrides = Vec::new();
    for node in reader.list(node, "overrides").unwrap_or_default() {
        let example = "{ key: abc, rate: 9000/min }";
        let Some(mut fields) = Fields::open(reader, node, "an override", example) else {
            continue;
        };
        let key = fields
            .require(reader, "key", "abc")
            .and_then(|node| override_key(reader, node));
        let terms = terms(reader, &mut fields, Some(terms_of(limits)));
        let quota = quota(reader, &mut fields, terms, Some(limits), Kind::Tier);
        fields.finish(reader);
        if let (Some(key), Some(quota)) = (key, quota) {
            overrides.push(Override { key, quota });
        }
    }
    overrides
}

fn override_key(reader: &mut Reader, node: &Node) -> Option<At<Vec<Box<str>>>> {
    let nodes = match &node.value {
        Value::List(nodes) => nodes.as_slice(),
        Value::Scalar { .. } => std::slice::from_ref(node),
        Value::Nothing | Value::Map(_) => {
            reader.report.say(
                node.place,
                format!(
                    "the `key` of an override must be values, found {}",
                    found(node)
                ),
                "write the values in the order of the limit's key: `[abc, POST]`",
            );
            return None;
        }
    };
    let values: Vec<Box<str>> = nodes
        .iter()
        .filter_map(|node| reader.text(node, "key").map(Into::into))
        .collect();
    (values.len() == nodes.len()).then(|| At::new(values, node.place))
}

/// `levels`: a hierarchy, the widest first.
pub(super) fn levels(
    reader: &mut Reader,
    node: &Node,
    above: Terms,
    missing: Missing,
) -> Vec<Level> {
    let nodes = reader.list(node, "levels").unwrap_or_default();
    if !(1..=MOST_LEVELS).contains(&nodes.len()) && matches!(node.value, Value::List(_)) {
        reader.report.say(
            node.place,
            format!("`levels` has {} levels", nodes.len()),
            format!("write from 1 to {MOST_LEVELS}, the widest first"),
        );
    }
    let mut levels: Vec<Level> = Vec::new();
    for node in nodes {
        let Some(level) = level(reader, node, above, missing) else {
            continue;
        };
        levels.push(level);
    }
    levels
}

fn level(reader: &mut Reader, node: &Node, above: Terms, missing: Missing) -> Option<Level> {
    let example = "{ name: org, key: [claim.org], rate: 10000/min }";
    let mut fields = Fields::open(reader, node, "a level", example)?;
    let name = fields
        .require(reader, "name", "org")
        .and_then(|node| reader.name(node, "name"));
    if let Some(name) = &name {
        fields.of = format!("level `{}`", name.value);
    }
    let key: Vec<KeyPart> = fields
        .take(reader, "key")
        .map(|node| key(reader, node, missing))
        .unwrap_or_default();
    let terms = terms(reader, &mut fields, Some(above));
    let quota = quota(reader, &mut fields, terms, None, Kind::Own);
    fields.finish(reader);
    Some(Level {
        name: name?,
        key,
        quota: quota?,
    })
}

/// `local: 2000/s`, or with a burst: a token bucket that nothing of the limit's own quota is taken over into but the unit.
pub(super) fn local(reader: &mut Reader, node: &Node, limits: &QuotaSpec) -> Option<At<QuotaSpec>> {
    let above = Terms {
        algorithm: None,
        unit: limits.unit,
        utc_offset_minutes: 0,
    };
    if !matches!(node.value, Value::Map(_)) {
        let rate = reader.parse(node, "local", |text| words::rate(text, limits.unit))?;
        let spec = QuotaSpec {
            algorithm: Algorithm::TokenBucket,
            amount: Amount::Rates(vec![At::new(rate, node.place)]),
            burst: None,
            unit: limits.unit,
            utc_offset_minutes: 0,
        };
        return Some(At::new(spec, node.place));
    }
    let mut fields = Fields::open(reader, node, "`local`", "{ rate: 2000/s, burst: 500 }")?;
    let terms = terms(reader, &mut fields, Some(above));
    let quota = quota(reader, &mut fields, terms, None, Kind::Own);
    fields.finish(reader);
    quota
}

/// `candidate`: another rate or algorithm; what is left out is the limit's.
pub(super) fn candidate(
    reader: &mut Reader,
    node: &Node,
    limits: &QuotaSpec,
) -> Option<At<QuotaSpec>> {
    if !matches!(node.value, Value::Map(_)) {
        return short(reader, node, "candidate", limits);
    }
    let example = "{ rate: 2000/min, algorithm: sliding_window }";
    let mut fields = Fields::open(reader, node, "`candidate`", example)?;
    let terms = terms(reader, &mut fields, Some(terms_of(limits)));
    let quota = quota(reader, &mut fields, terms, Some(limits), Kind::Candidate);
    fields.finish(reader);
    quota
}
