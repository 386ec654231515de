//! Reads one entry of `limits`.
//!
//! Must not know: other limits.

use serde_json::{Value as Json, json};
use tollgate_core::QuotaUnit;

use super::action::ACTIONS;
use super::cost::{read_cost, read_count, read_statuses, statuses_schema};
use super::field_reader::FieldReader;
use super::field_spec::{Field, FieldDefault, FieldSpec, field_specs, set_if_some};
use super::key::{MISSING, read_key};
use super::matching::read_match;
use super::quota::{
    AMOUNT_FIELDS, OPTION_FIELDS, QuotaContext, QuotaOptions, read_quota, read_quota_options,
};
use super::{TreeReader, shares, tiers};
use crate::model::{Algorithm, Amount, LimitRule, OnMissing, QuotaDetails, QuotaSpec};
use crate::schema::{
    definition_ref, enumeration, list_of, name_pattern, non_empty_list_of, object,
};
use crate::source::{Located, SourceLocation, SourceNode};

/// The largest `id`. Larger ids are for limits without an `id`.
const MAX_ID: u64 = 60_000;

/// A limit while it is read.
pub(crate) struct LimitDraft {
    pub(super) rule: LimitRule,
    name: Option<Located<Box<str>>>,
    /// The default of `missing` for the parts of the key, and its location.
    missing: OnMissing,
    missing_location: Option<SourceLocation>,
    quota_options: QuotaOptions,
    levels_location: Option<SourceLocation>,
    /// The quota that tiers and overrides inherit from. If it could not be read, it is a blank quota, so that mistakes
    /// in tiers are still reported.
    own_quota: QuotaSpec,
}

/// The name is read first, because messages use it.
const NAME: [Field<LimitDraft>; 1] = [Field::new(
    "name",
    FieldDefault::Required("per-user"),
    "Unique in the file. State is kept by it, unless there is an `id`.",
    name_pattern,
    |reader, node, name, limit| limit.name = reader.name(node, name),
)];

/// The fields about which requests it matches and the key.
const SUBJECT: [Field<LimitDraft>; 6] = [
    Field::new(
        "id",
        FieldDefault::Description("the name"),
        "A stable id of the state, so that the name may change.",
        || json!({ "type": "integer", "minimum": 1, "maximum": MAX_ID }),
        |reader, node, name, limit| {
            let id = reader.number(node, name, 1, MAX_ID);
            let id = id.and_then(|id| u16::try_from(id).ok());
            limit.rule.id = id.map(|id| Located::new(id, node.location));
        },
    ),
    Field::new(
        "match",
        FieldDefault::Description("all requests"),
        "Which requests it matches. Default: all.",
        || definition_ref("match"),
        |reader, node, _, limit| set_if_some(&mut limit.rule.matching, read_match(reader, node)),
    ),
    Field::new(
        "group",
        FieldDefault::None,
        "The group it belongs to; see `groups`.",
        name_pattern,
        |reader, node, name, limit| limit.rule.group = reader.name(node, name),
    ),
    Field::new(
        "bucket",
        FieldDefault::None,
        "Limits that name the same bucket share its state.",
        name_pattern,
        |reader, node, name, limit| limit.rule.bucket = reader.name(node, name),
    ),
    Field::new(
        "missing",
        FieldDefault::Value("shared"),
        "What to do if an attribute of the key is absent: `shared` (default), `skip` or `deny`.",
        || enumeration(&MISSING),
        |reader, node, name, limit| {
            limit.missing_location = Some(node.location);
            set_if_some(&mut limit.missing, reader.keyword(node, name, &MISSING));
        },
    ),
    Field::new(
        "key",
        FieldDefault::Description("one quota for all requests"),
        "The attributes of the key; each key has its own quota. Default: one quota for all requests.",
        || definition_ref("key"),
        |reader, node, _, limit| limit.rule.key = read_key(reader, node, limit.missing),
    ),
];

/// Quotas besides the limit's own.
const ALTERNATIVE_QUOTAS: [Field<LimitDraft>; 7] = [
    Field::new(
        "tiers",
        FieldDefault::None,
        "Other quotas by the value of an attribute.",
        || definition_ref("tiers"),
        |reader, node, _, limit| {
            limit.rule.tiers = tiers::read_tiers(reader, node, &limit.own_quota);
        },
    ),
    Field::new(
        "overrides",
        FieldDefault::None,
        "Other quotas for single keys.",
        || list_of(&definition_ref("override")),
        |reader, node, _, limit| {
            limit.rule.overrides = tiers::read_overrides(reader, node, &limit.own_quota);
        },
    ),
    Field::new(
        "local",
        FieldDefault::None,
        "A permissive bucket in this process, checked first.",
        || definition_ref("quota"),
        |reader, node, name, limit| {
            let example = "{ rate: 2000/s, burst: 500 }";
            limit.rule.local =
                tiers::read_second_quota(reader, node, name, example, &limit.own_quota);
        },
    ),
    Field::new(
        "spillover",
        FieldDefault::None,
        "A second quota of the same key, charged when the limit's own has no room; denied only if neither has.",
        || definition_ref("quota"),
        |reader, node, name, limit| {
            let example = "{ rate: 1000/month, burst: 500 }";
            limit.rule.spillover =
                tiers::read_second_quota(reader, node, name, example, &limit.own_quota);
        },
    ),
    Field::new(
        "shares",
        FieldDefault::None,
        "Guaranteed parts of the quota by the value of an attribute; what an owner does not use is lent.",
        || definition_ref("shares"),
        |reader, node, _, limit| limit.rule.shares = shares::read_shares(reader, node),
    ),
    Field::new(
        "candidate",
        FieldDefault::None,
        "A quota that is evaluated beside the enforced one and never enforced.",
        || definition_ref("quota"),
        |reader, node, _, limit| {
            limit.rule.candidate = tiers::read_candidate(reader, node, &limit.own_quota);
        },
    ),
    Field::new(
        "distinct",
        FieldDefault::None,
        "Counts distinct values of this attribute, not requests.",
        || definition_ref("attribute"),
        |reader, node, name, limit| limit.rule.distinct = reader.attribute(node, name),
    ),
];

/// Levels, which have their own keys and quotas.
const LEVELS: [Field<LimitDraft>; 1] = [Field::new(
    "levels",
    FieldDefault::None,
    "A hierarchy, widest first; each level adds to the key of the one above. Instead of `key` and `rate`.",
    || non_empty_list_of(&definition_ref("level")),
    |reader, node, _, limit| {
        limit.levels_location = Some(node.location);
        limit.rule.levels = tiers::read_levels(reader, node, limit.quota_options, limit.missing);
    },
)];

/// What is counted.
const COUNTING: [Field<LimitDraft>; 4] = [
    Field::new(
        "cost",
        FieldDefault::Value("1"),
        "What a request costs (default 1).",
        || definition_ref("cost"),
        |reader, node, _, limit| {
            set_if_some(
                &mut limit.rule.cost,
                read_cost(reader, node, limit.quota_options.unit),
            );
        },
    ),
    Field::new(
        "count",
        FieldDefault::Value("requests"),
        "What is counted: `requests`, `denials`, or chosen responses.",
        || definition_ref("count"),
        |reader, node, _, limit| set_if_some(&mut limit.rule.count, read_count(reader, node)),
    ),
    Field::new(
        "refund",
        FieldDefault::None,
        "Statuses such as 503, or classes such as 5xx: a request with such a response gets its charge back.",
        statuses_schema,
        |reader, node, name, limit| {
            set_if_some(&mut limit.rule.refund, read_statuses(reader, node, name));
        },
    ),
    Field::new(
        "overdraft",
        FieldDefault::Value("0"),
        "How far below zero later charges may go.",
        || definition_ref("number"),
        |reader, node, name, limit| {
            let units = reader.units(node, name, limit.quota_options.unit);
            set_if_some(&mut limit.rule.overdraft, units);
        },
    ),
];

/// All fields of a limit.
pub(crate) fn fields() -> impl Iterator<Item = FieldSpec> {
    field_specs(&NAME)
        .chain(field_specs(&SUBJECT))
        .chain(field_specs(&OPTION_FIELDS))
        .chain(field_specs(&AMOUNT_FIELDS))
        .chain(field_specs(&ALTERNATIVE_QUOTAS))
        .chain(field_specs(&LEVELS))
        .chain(field_specs(&COUNTING))
        .chain(field_specs(&ACTIONS))
}

/// The schema of a limit.
pub(crate) fn schema() -> Json {
    let mut limit = object(fields());
    if let Some(limit) = limit.as_object_mut() {
        let one = |field: &str| json!({ "required": [field] });
        limit.insert(
            "anyOf".into(),
            json!([one("rate"), one("concurrency"), one("levels")]),
        );
    }
    limit
}

impl LimitDraft {
    /// A limit with defaults only.
    fn blank() -> Self {
        Self {
            rule: LimitRule::new(Box::from(""), Located::from(no_own_quota())),
            name: None,
            missing: OnMissing::default(),
            missing_location: None,
            quota_options: QuotaOptions::default(),
            levels_location: None,
            own_quota: no_own_quota(),
        }
    }
}

/// Reads one limit. Reads all fields even if the name or the quota is invalid.
pub(super) fn read_limit(reader: &mut TreeReader, node: &SourceNode) -> Option<LimitRule> {
    let mut fields = FieldReader::open(reader, node, "a limit", "{ name: everyone, rate: 100/s }")?;
    let mut limit = LimitDraft::blank();
    fields.read(reader, &NAME, &mut limit);
    if let Some(name) = &limit.name {
        fields.subject = format!("limit `{}`", name.value);
    }
    fields.read(reader, &SUBJECT, &mut limit);
    if let Some(location) = limit.missing_location
        && !fields.has("key")
        && !fields.has("levels")
    {
        reader.diagnostics.add(
            location,
            format!("{}: `missing` needs a `key`", fields.subject),
            "add a `key`, or leave `missing` out",
        );
    }
    limit.quota_options = read_quota_options(reader, &mut fields, QuotaOptions::default());
    let quota = if fields.has("levels") {
        read_levels_only(reader, &mut fields, &mut limit)
    } else {
        let quota = read_quota(
            reader,
            &mut fields,
            limit.quota_options,
            None,
            QuotaContext::Own,
        );
        if let Some(quota) = &quota {
            limit.own_quota = quota.value.clone();
        }
        fields.read(reader, &ALTERNATIVE_QUOTAS, &mut limit);
        // Absent here; read so that its name is known.
        fields.read(reader, &LEVELS, &mut limit);
        quota
    };
    fields.read(reader, &COUNTING, &mut limit);
    fields.read(reader, &ACTIONS, &mut limit);
    fields.finish(reader);
    let mut rule = limit.rule;
    rule.name = limit.name?;
    rule.quota = quota?;
    Some(rule)
}

/// The own quota of a limit with levels: unlimited.
fn no_own_quota() -> QuotaSpec {
    QuotaSpec {
        algorithm: Algorithm::default(),
        amount: Amount::Unlimited,
        burst: None,
        unit: QuotaUnit::default(),
        utc_offset_minutes: 0,
        details: QuotaDetails::default(),
    }
}

/// Reads `levels`, and rejects fields that cannot be combined with them.
fn read_levels_only(
    reader: &mut TreeReader,
    fields: &mut FieldReader<'_>,
    limit: &mut LimitDraft,
) -> Option<Located<QuotaSpec>> {
    fields.read(reader, &LEVELS, limit);
    let location = limit.levels_location?;
    let of_each = field_specs(&AMOUNT_FIELDS).map(|field| field.name);
    for name in ["key"].into_iter().chain(of_each) {
        let help = format!("give each level its own `{name}`");
        reject_beside_levels(reader, fields, name, &help);
    }
    let of_none = field_specs(&ALTERNATIVE_QUOTAS).map(|field| field.name);
    for name in of_none.chain(["bucket"]) {
        let help = format!("leave `{name}` out, or use a separate limit for it");
        reject_beside_levels(reader, fields, name, &help);
    }
    Some(Located::new(no_own_quota(), location))
}

fn reject_beside_levels(
    reader: &mut TreeReader,
    fields: &mut FieldReader<'_>,
    name: &'static str,
    help: &str,
) {
    if let Some(node) = fields.take(reader, name) {
        reader.diagnostics.add(
            node.location,
            format!(
                "{}: `{name}` cannot be combined with `levels`",
                fields.subject
            ),
            help,
        );
    }
}
