//! Quotas beside the limit's own: tiers, overrides, levels, a local bucket, a candidate.
//!
//! Must not know: whether they fit together; `check` asks.

use serde_json::Value as Json;

use super::Reader;
use super::field::{Absent, Field, about};
use super::fields::FieldReader;
use super::key::key;
use super::quota::{AMOUNT, Kind, TERMS, Terms, UNLIMITED, quota, short, terms, terms_of};
use super::scalar::found;
use crate::attributes::Attribute;
use crate::model::{Algorithm, Amount, KeyPart, Level, Missing, QuotaOverride, QuotaSpec, Tiers};
use crate::schema::{name_pattern, named_values, object, of, one_or_list};
use crate::source::{At, SourceNode, SourceValue};
use crate::words;

/// As many levels as a batch has room for beside other limits.
const MOST_LEVELS: usize = 8;

/// The field of `tiers` that is no tier.
pub(crate) const TIERS: [Field<Option<At<Attribute>>>; 1] = [Field::new(
    "by",
    Absent::Required("header.x-plan"),
    "The attribute whose value names the tier. A value that names none gets the limit's own quota.",
    || of("attribute"),
    |reader, node, name, by| *by = reader.textual(node, name),
)];

/// The values of the key that an override is for.
type OverrideKey = At<Vec<Box<str>>>;

/// The field of an override that is none of its quota's.
pub(crate) const OVERRIDE: [Field<Option<OverrideKey>>; 1] = [Field::new(
    "key",
    Absent::Required("abc"),
    "The values of the key's attributes, in the order of its parts.",
    || one_or_list(&of("scalar")),
    |reader, node, _, key| *key = override_key(reader, node),
)];

/// A level while it is read.
pub(crate) struct LevelDraft {
    name: Option<At<Box<str>>>,
    key: Vec<KeyPart>,
    missing: Missing,
}

/// The fields of a level that are none of its quota's. The name comes first, because messages name the level by it.
pub(crate) const LEVEL: [Field<LevelDraft>; 2] = [
    Field::new(
        "name",
        Absent::Required("org"),
        "As verdicts name it when it is violated.",
        name_pattern,
        |reader, node, name, level| level.name = reader.name(node, name),
    ),
    Field::new(
        "key",
        Absent::Nothing,
        "What this level adds to the key of the level above.",
        || of("key"),
        |reader, node, _, level| level.key = key(reader, node, level.missing),
    ),
];

/// The schema of `tiers`.
pub(crate) fn schema() -> Json {
    named_values(about(&TIERS), &of("quota"))
}

/// The schema of an override.
pub(crate) fn override_schema() -> Json {
    let quota = about(&UNLIMITED).chain(about(&TERMS)).chain(about(&AMOUNT));
    object(about(&OVERRIDE).chain(quota))
}

/// The schema of a level.
pub(crate) fn level_schema() -> Json {
    object(about(&LEVEL).chain(about(&TERMS)).chain(about(&AMOUNT)))
}

/// `tiers: { by: header.x-plan, free: 100/min, partner: unlimited }`
pub(super) fn tiers(reader: &mut Reader, node: &SourceNode, limits: &QuotaSpec) -> Option<Tiers> {
    let mut fields = FieldReader::open(
        reader,
        node,
        "`tiers`",
        "tiers: { by: header.x-plan, free: 100/min }",
    )?;
    let mut by = None;
    fields.read(reader, &TIERS, &mut by);
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
    node: &SourceNode,
    of: &str,
    field: &str,
    limits: &QuotaSpec,
) -> Option<At<QuotaSpec>> {
    if !matches!(node.value, SourceValue::Map(_)) {
        return short(reader, node, field, limits);
    }
    let mut fields = FieldReader::open(reader, node, of, "{ rate: 100/min, burst: 20 }")?;
    // A computed rate is a map too.
    if fields.has("base") || fields.has("at_most") {
        return short_computed(reader, node, limits);
    }
    let terms = terms(reader, &mut fields, terms_of(limits));
    let quota = quota(reader, &mut fields, terms, Some(limits), Kind::Tier);
    fields.finish(reader);
    quota
}

fn short_computed(
    reader: &mut Reader,
    node: &SourceNode,
    limits: &QuotaSpec,
) -> Option<At<QuotaSpec>> {
    let amount = super::rate::read_rate(reader, node, limits.unit)?;
    let spec = QuotaSpec {
        amount,
        ..limits.clone()
    };
    Some(At::new(spec, node.place))
}

/// `overrides: [{ key: [abc], rate: 9000/min }]`
pub(super) fn overrides(
    reader: &mut Reader,
    node: &SourceNode,
    limits: &QuotaSpec,
) -> Vec<QuotaOverride> {
    let mut overrides = Vec::new();
    for node in reader.list(node, "overrides").unwrap_or_default() {
        let example = "{ key: abc, rate: 9000/min }";
        let Some(mut fields) = FieldReader::open(reader, node, "an override", example) else {
            continue;
        };
        let mut key = None;
        fields.read(reader, &OVERRIDE, &mut key);
        let terms = terms(reader, &mut fields, terms_of(limits));
        let quota = quota(reader, &mut fields, terms, Some(limits), Kind::Tier);
        fields.finish(reader);
        if let (Some(key), Some(quota)) = (key, quota) {
            overrides.push(QuotaOverride { key, quota });
        }
    }
    overrides
}

fn override_key(reader: &mut Reader, node: &SourceNode) -> Option<OverrideKey> {
    let nodes = match &node.value {
        SourceValue::List(nodes) => nodes.as_slice(),
        SourceValue::Scalar { .. } => std::slice::from_ref(node),
        SourceValue::Nothing | SourceValue::Map(_) => {
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
    node: &SourceNode,
    above: Terms,
    missing: Missing,
) -> Vec<Level> {
    let nodes = reader.list(node, "levels").unwrap_or_default();
    if !(1..=MOST_LEVELS).contains(&nodes.len()) && matches!(node.value, SourceValue::List(_)) {
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

fn level(reader: &mut Reader, node: &SourceNode, above: Terms, missing: Missing) -> Option<Level> {
    let example = "{ name: org, key: [claim.org], rate: 10000/min }";
    let mut fields = FieldReader::open(reader, node, "a level", example)?;
    let mut draft = LevelDraft {
        name: None,
        key: Vec::new(),
        missing,
    };
    let [name, key] = LEVEL;
    fields.read(reader, &[name], &mut draft);
    if let Some(name) = &draft.name {
        fields.of = format!("level `{}`", name.value);
    }
    fields.read(reader, &[key], &mut draft);
    let terms = terms(reader, &mut fields, above);
    let quota = quota(reader, &mut fields, terms, None, Kind::Own);
    fields.finish(reader);
    Some(Level {
        name: draft.name?,
        key: draft.key,
        quota: quota?,
    })
}

/// `local: 2000/s`, or with a burst: a token bucket that nothing of the limit's own quota is taken over into but the unit.
pub(super) fn local(
    reader: &mut Reader,
    node: &SourceNode,
    limits: &QuotaSpec,
) -> Option<At<QuotaSpec>> {
    let above = Terms {
        unit: limits.unit,
        ..Terms::default()
    };
    if !matches!(node.value, SourceValue::Map(_)) {
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
    let mut fields = FieldReader::open(reader, node, "`local`", "{ rate: 2000/s, burst: 500 }")?;
    let terms = terms(reader, &mut fields, above);
    let quota = quota(reader, &mut fields, terms, None, Kind::Own);
    fields.finish(reader);
    quota
}

/// `candidate`: another rate or algorithm; what is left out is the limit's.
pub(super) fn candidate(
    reader: &mut Reader,
    node: &SourceNode,
    limits: &QuotaSpec,
) -> Option<At<QuotaSpec>> {
    if !matches!(node.value, SourceValue::Map(_)) {
        return short(reader, node, "candidate", limits);
    }
    let example = "{ rate: 2000/min, algorithm: sliding_window }";
    let mut fields = FieldReader::open(reader, node, "`candidate`", example)?;
    let terms = terms(reader, &mut fields, terms_of(limits));
    let quota = quota(reader, &mut fields, terms, Some(limits), Kind::Candidate);
    fields.finish(reader);
    quota
}
