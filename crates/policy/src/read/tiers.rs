//! Reads the quotas besides the limit's own: tiers, overrides, levels, a local bucket, a candidate.
//!
//! Must not know: whether they can be combined; `check` does.

use serde_json::Value as Json;

use super::TreeReader;
use super::condition_values::canonical_host;
use super::field_reader::FieldReader;
use super::field_spec::{Field, FieldDefault, field_specs};
use super::key::read_key;
use super::quota::{
    AMOUNT_FIELDS, OPTION_FIELDS, QuotaContext, QuotaOptions, UNLIMITED_FIELD, options_of,
    read_quota, read_quota_options, read_short_quota,
};
use super::scalar::describe_node;
use crate::attributes::Attribute;
use crate::grammar;
use crate::model::{
    Algorithm, Amount, KeyPart, Level, OnMissing, QuotaDetails, QuotaOverride, QuotaSpec, Tiers,
};
use crate::schema::{definition_ref, name_pattern, object, object_with_values, one_or_list};
use crate::source::{Located, SourceNode, SourceValue};

/// The maximum number of levels; they must fit into a batch with other limits.
const MAX_LEVELS: usize = 8;

/// The field of `tiers` besides the tiers.
pub(crate) const TIERS: [Field<Option<Located<Attribute>>>; 1] = [Field::new(
    "by",
    FieldDefault::Required("header.x-plan"),
    "The attribute whose value selects the tier. Any other value gets the limit's own quota.",
    || definition_ref("attribute"),
    |reader, node, name, by| *by = reader.text_attribute(node, name),
)];

/// The key values of an override.
type OverrideKey = Located<Vec<Box<str>>>;

/// The field of an override besides its quota.
pub(crate) const OVERRIDE: [Field<Option<OverrideKey>>; 1] = [Field::new(
    "key",
    FieldDefault::Required("abc"),
    "The values of the key's attributes, in the order of its parts.",
    || one_or_list(&definition_ref("scalar")),
    |reader, node, _, key| *key = read_override_key(reader, node),
)];

/// A level while it is read.
pub(crate) struct LevelDraft {
    name: Option<Located<Box<str>>>,
    key: Vec<KeyPart>,
    missing: OnMissing,
}

/// The fields of a level besides its quota. The name is read first, because messages use it.
pub(crate) const LEVEL: [Field<LevelDraft>; 2] = [
    Field::new(
        "name",
        FieldDefault::Required("org"),
        "The name that verdicts report when it denies.",
        name_pattern,
        |reader, node, name, level| level.name = reader.name(node, name),
    ),
    Field::new(
        "key",
        FieldDefault::None,
        "What this level adds to the key of the level above.",
        || definition_ref("key"),
        |reader, node, _, level| level.key = read_key(reader, node, level.missing),
    ),
];

/// The schema of `tiers`.
pub(crate) fn schema() -> Json {
    object_with_values(field_specs(&TIERS), &definition_ref("quota"))
}

/// The schema of an override.
pub(crate) fn override_schema() -> Json {
    let quota = field_specs(&UNLIMITED_FIELD)
        .chain(field_specs(&OPTION_FIELDS))
        .chain(field_specs(&AMOUNT_FIELDS));
    object(field_specs(&OVERRIDE).chain(quota))
}

/// The schema of a level.
pub(crate) fn level_schema() -> Json {
    object(
        field_specs(&LEVEL)
            .chain(field_specs(&OPTION_FIELDS))
            .chain(field_specs(&AMOUNT_FIELDS)),
    )
}

/// `tiers: { by: header.x-plan, free: 100/min, partner: unlimited }`
pub(super) fn read_tiers(
    reader: &mut TreeReader,
    node: &SourceNode,
    limits: &QuotaSpec,
) -> Option<Tiers> {
    let mut fields = FieldReader::open(
        reader,
        node,
        "`tiers`",
        "tiers: { by: header.x-plan, free: 100/min }",
    )?;
    let mut by = None;
    fields.read(reader, &TIERS, &mut by);
    let mut tiers = Vec::new();
    for entry in fields.unread_entries() {
        let subject = format!("tier `{}`", entry.name.value);
        if let Some(quota) =
            read_nested_quota(reader, &entry.value, &subject, &entry.name.value, limits)
        {
            let name = canonical_value(by.as_ref().map(|by| &by.value), &entry.name.value);
            tiers.push((Located::new(name, entry.name.location), quota));
        }
    }
    if fields.unread_entries().next().is_none() {
        reader.diagnostics.add(
            node.location,
            "`tiers` has no tiers",
            "add at least one tier: `free: 100/min`",
        );
    }
    Some(Tiers { by: by?, tiers })
}

/// Transports provide methods in upper case and hosts in lower case.
pub(super) fn canonical_value(by: Option<&Attribute>, value: &str) -> Box<str> {
    match by {
        Some(Attribute::Method) => value.to_ascii_uppercase().into(),
        Some(Attribute::Host) => canonical_host(value),
        _ => value.into(),
    }
}

/// Reads a quota inside a limit: a single value, or a map that inherits omitted fields from the limit.
fn read_nested_quota(
    reader: &mut TreeReader,
    node: &SourceNode,
    subject: &str,
    field: &str,
    limits: &QuotaSpec,
) -> Option<Located<QuotaSpec>> {
    if !matches!(node.value, SourceValue::Map(_)) {
        return read_short_quota(reader, node, field, limits);
    }
    let mut fields = FieldReader::open(reader, node, subject, "{ rate: 100/min, burst: 20 }")?;
    // A computed rate is also a map.
    if fields.has("base") || fields.has("at_most") {
        return read_computed_quota(reader, node, limits);
    }
    let terms = read_quota_options(reader, &mut fields, options_of(limits));
    let quota = read_quota(reader, &mut fields, terms, Some(limits), QuotaContext::Tier);
    fields.finish(reader);
    quota
}

fn read_computed_quota(
    reader: &mut TreeReader,
    node: &SourceNode,
    limits: &QuotaSpec,
) -> Option<Located<QuotaSpec>> {
    let amount = super::rate::read_rate(reader, node, limits.unit)?;
    let spec = QuotaSpec {
        amount,
        ..limits.clone()
    };
    Some(Located::new(spec, node.location))
}

/// `overrides: [{ key: [abc], rate: 9000/min }]`
pub(super) fn read_overrides(
    reader: &mut TreeReader,
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
        let terms = read_quota_options(reader, &mut fields, options_of(limits));
        let quota = read_quota(reader, &mut fields, terms, Some(limits), QuotaContext::Tier);
        fields.finish(reader);
        if let (Some(key), Some(quota)) = (key, quota) {
            overrides.push(QuotaOverride { key, quota });
        }
    }
    overrides
}

fn read_override_key(reader: &mut TreeReader, node: &SourceNode) -> Option<OverrideKey> {
    let nodes = match &node.value {
        SourceValue::List(nodes) => nodes.as_slice(),
        SourceValue::Scalar { .. } => std::slice::from_ref(node),
        SourceValue::Null | SourceValue::Map(_) => {
            reader.diagnostics.add(
                node.location,
                format!(
                    "the `key` of an override must be a list of values, found {}",
                    describe_node(node)
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
    (values.len() == nodes.len()).then(|| Located::new(values, node.location))
}

/// `levels`: a hierarchy, widest first.
pub(super) fn read_levels(
    reader: &mut TreeReader,
    node: &SourceNode,
    above: QuotaOptions,
    missing: OnMissing,
) -> Vec<Level> {
    let nodes = reader.list(node, "levels").unwrap_or_default();
    if !(1..=MAX_LEVELS).contains(&nodes.len()) && matches!(node.value, SourceValue::List(_)) {
        reader.diagnostics.add(
            node.location,
            format!("`levels` has {} levels", nodes.len()),
            format!("write from 1 to {MAX_LEVELS}, the widest first"),
        );
    }
    let mut levels: Vec<Level> = Vec::new();
    for node in nodes {
        let Some(read_level) = level(reader, node, above, missing) else {
            continue;
        };
        levels.push(read_level);
    }
    levels
}

fn level(
    reader: &mut TreeReader,
    node: &SourceNode,
    above: QuotaOptions,
    missing: OnMissing,
) -> Option<Level> {
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
        fields.subject = format!("level `{}`", name.value);
    }
    fields.read(reader, &[key], &mut draft);
    let terms = read_quota_options(reader, &mut fields, above);
    let quota = read_quota(reader, &mut fields, terms, None, QuotaContext::Own);
    fields.finish(reader);
    Some(Level {
        name: draft.name?,
        key: draft.key,
        quota: quota?,
    })
}

/// `local` or `spillover`: a rate such as `2000/s`, or a map with a burst. It inherits only the unit of the limit.
pub(super) fn read_second_quota(
    reader: &mut TreeReader,
    node: &SourceNode,
    field: &str,
    example: &str,
    limits: &QuotaSpec,
) -> Option<Located<QuotaSpec>> {
    let above = QuotaOptions {
        unit: limits.unit,
        ..QuotaOptions::default()
    };
    if !matches!(node.value, SourceValue::Map(_)) {
        let rate = reader.parse(node, field, |text| grammar::parse_rate(text, limits.unit))?;
        let spec = QuotaSpec {
            algorithm: Algorithm::TokenBucket,
            amount: Amount::Rates(vec![Located::new(rate, node.location)]),
            burst: None,
            unit: limits.unit,
            utc_offset_minutes: 0,
            details: QuotaDetails::default(),
        };
        return Some(Located::new(spec, node.location));
    }
    let mut fields = FieldReader::open(reader, node, format!("`{field}`"), example)?;
    let terms = read_quota_options(reader, &mut fields, above);
    let quota = read_quota(reader, &mut fields, terms, None, QuotaContext::Own);
    fields.finish(reader);
    quota
}

/// `candidate`: another rate or algorithm; it inherits omitted fields from the limit.
pub(super) fn read_candidate(
    reader: &mut TreeReader,
    node: &SourceNode,
    limits: &QuotaSpec,
) -> Option<Located<QuotaSpec>> {
    if !matches!(node.value, SourceValue::Map(_)) {
        return read_short_quota(reader, node, "candidate", limits);
    }
    let example = "{ rate: 2000/min, algorithm: sliding_window }";
    let mut fields = FieldReader::open(reader, node, "`candidate`", example)?;
    let terms = read_quota_options(reader, &mut fields, options_of(limits));
    let quota = read_quota(
        reader,
        &mut fields,
        terms,
        Some(limits),
        QuotaContext::Candidate,
    );
    fields.finish(reader);
    quota
}
