//! One entry of `limits`.
//!
//! Must not know: other limits.

use serde_json::{Value as Json, json};
use tollgate_core::QuotaUnit;

use super::action::ACTIONS;
use super::cost::{cost, count};
use super::field::{About, Absent, Field, about, put};
use super::fields::FieldReader;
use super::key::{MISSING, key};
use super::matching::conditions;
use super::quota::{AMOUNT, Kind, TERMS, Terms, quota, terms};
use super::{Reader, tiers};
use crate::model::{Algorithm, Amount, LimitRule, Missing, QuotaSpec};
use crate::schema::{enumeration, list_of, name_pattern, object, of, some_of};
use crate::source::{At, SourceLocation, SourceNode};

/// The largest number that a limit may be given; those above are for limits that give none.
const MOST_ID: u64 = 60_000;

/// A limit while it is read.
pub(crate) struct LimitDraft {
    pub(super) rule: LimitRule,
    name: Option<At<Box<str>>>,
    /// What its key does where an attribute is missing, and where it says so.
    missing: Missing,
    missing_at: Option<SourceLocation>,
    terms: Terms,
    levels_at: Option<SourceLocation>,
    /// The quota that tiers and others take over from. Where it could not be read it is a blank one, so that their own
    /// mistakes are still reported.
    own: QuotaSpec,
}

/// The name, which comes first because messages name the limit by it.
const NAME: [Field<LimitDraft>; 1] = [Field::new(
    "name",
    Absent::Required("per-user"),
    "Unique in the file. State is kept by it, unless there is an `id`.",
    name_pattern,
    |reader, node, name, limit| limit.name = reader.name(node, name),
)];

/// Which requests it is about, and whose quota it is.
const SUBJECT: [Field<LimitDraft>; 6] = [
    Field::new(
        "id",
        Absent::Means("the name decides"),
        "A stable number for the state, so that the name may change.",
        || json!({ "type": "integer", "minimum": 1, "maximum": MOST_ID }),
        |reader, node, name, limit| {
            let id = reader.number(node, name, 1, MOST_ID);
            let id = id.and_then(|id| u16::try_from(id).ok());
            limit.rule.id = id.map(|id| At::new(id, node.place));
        },
    ),
    Field::new(
        "match",
        Absent::Means("all requests"),
        "Which requests it is about. Left out: all.",
        || of("match"),
        |reader, node, _, limit| put(&mut limit.rule.matching, conditions(reader, node)),
    ),
    Field::new(
        "group",
        Absent::Nothing,
        "The group it belongs to; see `groups`.",
        name_pattern,
        |reader, node, name, limit| limit.rule.group = reader.name(node, name),
    ),
    Field::new(
        "bucket",
        Absent::Nothing,
        "Limits that name the same bucket share its state.",
        name_pattern,
        |reader, node, name, limit| limit.rule.bucket = reader.name(node, name),
    ),
    Field::new(
        "missing",
        Absent::Default("shared"),
        "What it means if an attribute of the key is absent: `shared` (default), `skip` or `deny`.",
        || enumeration(&MISSING),
        |reader, node, name, limit| {
            limit.missing_at = Some(node.place);
            put(&mut limit.missing, reader.word(node, name, &MISSING));
        },
    ),
    Field::new(
        "key",
        Absent::Means("everyone's together"),
        "Whose quota it is: attributes that together make up the key. Left out: everyone's together.",
        || of("key"),
        |reader, node, _, limit| limit.rule.key = key(reader, node, limit.missing),
    ),
];

/// Quotas beside the limit's own.
const BESIDE: [Field<LimitDraft>; 5] = [
    Field::new(
        "tiers",
        Absent::Nothing,
        "Other quotas by the value of an attribute.",
        || of("tiers"),
        |reader, node, _, limit| limit.rule.tiers = tiers::tiers(reader, node, &limit.own),
    ),
    Field::new(
        "overrides",
        Absent::Nothing,
        "Other quotas for single keys.",
        || list_of(&of("override")),
        |reader, node, _, limit| limit.rule.overrides = tiers::overrides(reader, node, &limit.own),
    ),
    Field::new(
        "local",
        Absent::Nothing,
        "A permissive bucket in this process, asked first.",
        || of("quota"),
        |reader, node, _, limit| limit.rule.local = tiers::local(reader, node, &limit.own),
    ),
    Field::new(
        "candidate",
        Absent::Nothing,
        "A quota that is tried beside the enforced one and never enforced.",
        || of("quota"),
        |reader, node, _, limit| limit.rule.candidate = tiers::candidate(reader, node, &limit.own),
    ),
    Field::new(
        "distinct",
        Absent::Nothing,
        "Counts how many different values this attribute has, not requests.",
        || of("attribute"),
        |reader, node, name, limit| limit.rule.distinct = reader.attribute(node, name),
    ),
];

/// Keys and quotas instead of the limit's own.
const LEVELS: [Field<LimitDraft>; 1] = [Field::new(
    "levels",
    Absent::Nothing,
    "A hierarchy, widest first; each level adds to the key of the one above. Instead of `key` and `rate`.",
    || some_of(&of("level")),
    |reader, node, _, limit| {
        limit.levels_at = Some(node.place);
        limit.rule.levels = tiers::levels(reader, node, limit.terms, limit.missing);
    },
)];

/// What is counted.
const COUNTING: [Field<LimitDraft>; 3] = [
    Field::new(
        "cost",
        Absent::Default("1"),
        "What a request costs (default 1).",
        || of("cost"),
        |reader, node, _, limit| put(&mut limit.rule.cost, cost(reader, node, limit.terms.unit)),
    ),
    Field::new(
        "count",
        Absent::Default("requests"),
        "What is counted: `requests`, `denials`, or chosen responses.",
        || of("count"),
        |reader, node, _, limit| put(&mut limit.rule.count, count(reader, node)),
    ),
    Field::new(
        "overdraft",
        Absent::Default("0"),
        "How far below zero later charges may go.",
        || of("number"),
        |reader, node, name, limit| {
            let units = reader.units(node, name, limit.terms.unit);
            put(&mut limit.rule.overdraft, units);
        },
    ),
];

/// All fields of a limit.
pub(crate) fn fields() -> impl Iterator<Item = About> {
    about(&NAME)
        .chain(about(&SUBJECT))
        .chain(about(&TERMS))
        .chain(about(&AMOUNT))
        .chain(about(&BESIDE))
        .chain(about(&LEVELS))
        .chain(about(&COUNTING))
        .chain(about(&ACTIONS))
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
    /// A limit of which nothing is said.
    fn blank() -> Self {
        Self {
            rule: LimitRule::new(Box::from(""), At::from(none_of_its_own())),
            name: None,
            missing: Missing::default(),
            missing_at: None,
            terms: Terms::default(),
            levels_at: None,
            own: none_of_its_own(),
        }
    }
}

/// Reads one limit. Everything in it is looked at, even if its name or quota is wrong.
pub(super) fn limit(reader: &mut Reader, node: &SourceNode) -> Option<LimitRule> {
    let mut fields = FieldReader::open(reader, node, "a limit", "{ name: everyone, rate: 100/s }")?;
    let mut limit = LimitDraft::blank();
    fields.read(reader, &NAME, &mut limit);
    if let Some(name) = &limit.name {
        fields.of = format!("limit `{}`", name.value);
    }
    fields.read(reader, &SUBJECT, &mut limit);
    if let Some(place) = limit.missing_at
        && !fields.has("key")
        && !fields.has("levels")
    {
        reader.report.say(
            place,
            format!(
                "{}: `missing` is about attributes of the key, and there is no `key`",
                fields.of
            ),
            "add a `key`, or leave `missing` out",
        );
    }
    limit.terms = terms(reader, &mut fields, Terms::default());
    let quota = if fields.has("levels") {
        hierarchy(reader, &mut fields, &mut limit)
    } else {
        let quota = quota(reader, &mut fields, limit.terms, None, Kind::Own);
        if let Some(quota) = &quota {
            limit.own = quota.value.clone();
        }
        fields.read(reader, &BESIDE, &mut limit);
        // There are none; read so that the name is known.
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

/// The quota of a limit whose levels have theirs: unlimited in itself.
fn none_of_its_own() -> QuotaSpec {
    QuotaSpec {
        algorithm: Algorithm::default(),
        amount: Amount::Unlimited,
        burst: None,
        unit: QuotaUnit::default(),
        utc_offset_minutes: 0,
    }
}

/// `levels`, which have keys and quotas of their own.
fn hierarchy(
    reader: &mut Reader,
    fields: &mut FieldReader<'_>,
    limit: &mut LimitDraft,
) -> Option<At<QuotaSpec>> {
    fields.read(reader, &LEVELS, limit);
    let place = limit.levels_at?;
    let of_each = about(&AMOUNT).map(|field| field.name);
    for name in ["key"].into_iter().chain(of_each) {
        let help = format!("give each level its own `{name}`");
        refuse_beside_levels(reader, fields, name, &help);
    }
    let of_none = about(&BESIDE).map(|field| field.name);
    for name in of_none.chain(["bucket"]) {
        let help = format!("leave `{name}` out, or write a limit of its own for it");
        refuse_beside_levels(reader, fields, name, &help);
    }
    Some(At::new(none_of_its_own(), place))
}

fn refuse_beside_levels(
    reader: &mut Reader,
    fields: &mut FieldReader<'_>,
    name: &'static str,
    help: &str,
) {
    if let Some(node) = fields.take(reader, name) {
        reader.report.say(
            node.place,
            format!("{}: `{name}` cannot stand beside `levels`", fields.of),
            help,
        );
    }
}
