//! How much: `rate` or `concurrency`, with `algorithm`, `burst`, `unit` and `utc_offset`.
//!
//! Must not know: whether core can honour it; `check` asks.

use serde_json::{Value as Json, json};
use tollgate_core::{Nanos, QuotaUnit};

use super::TreeReader;
use super::field_reader::FieldReader;
use super::field_spec::{Field, FieldDefault, field_specs, set_if_some};
use super::rate::read_rate;
use super::scalar::describe_node;
use crate::grammar;
use crate::model::{Algorithm, Amount, Burst, QuotaSpec};
use crate::schema::{definition_ref, enumeration, non_empty_list_of, object};
use crate::source::{Located, SourceLocation, SourceNode, SourceValue};

/// How long a place is held without being renewed, unless the file says otherwise.
const DEFAULT_LEASE: Nanos = Nanos::from_secs(60);
const UNITS: [(&str, QuotaUnit); 3] = [
    ("requests", QuotaUnit::Requests),
    ("bytes", QuotaUnit::Bytes),
    ("tokens", QuotaUnit::Tokens),
];

/// What a quota may leave out or say beyond a plain one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum QuotaContext {
    /// A limit's own or a level's: it says how much.
    Own,
    /// A tier's or an override's: it may also be unlimited.
    Tier,
    /// A candidate's: what it leaves out is the limit's.
    Candidate,
}

/// What everything else in a quota is about: read first, because rates and bursts are written in units.
#[derive(Clone, Copy, Default)]
pub(crate) struct QuotaOptions {
    pub(super) algorithm: Option<Algorithm>,
    pub(super) unit: QuotaUnit,
    pub(super) utc_offset_minutes: i16,
}

/// The fields of a quota that say how it is counted.
pub(crate) const OPTION_FIELDS: [Field<QuotaOptions>; 3] = [
    Field::new(
        "algorithm",
        FieldDefault::Value("token_bucket"),
        "How the rate is counted (default token_bucket).",
        || enumeration(&Algorithm::BY_NAME),
        |reader, node, name, terms| {
            let algorithm = reader.keyword(node, name, &Algorithm::BY_NAME);
            terms.algorithm = algorithm.or(terms.algorithm);
        },
    ),
    Field::new(
        "unit",
        FieldDefault::Value("requests"),
        "What is counted (default requests).",
        || enumeration(&UNITS),
        |reader, node, name, terms| {
            set_if_some(&mut terms.unit, reader.keyword(node, name, &UNITS))
        },
    ),
    Field::new(
        "utc_offset",
        FieldDefault::Value("+00:00"),
        "The offset from UTC at which calendar windows turn, such as \"+02:00\".",
        || json!({ "type": "string" }),
        |reader, node, name, terms| {
            let minutes = reader.parse(node, name, grammar::parse_utc_offset);
            set_if_some(&mut terms.utc_offset_minutes, minutes);
        },
    ),
];

/// The fields of a quota that say how much. Read together, because some exclude others.
#[derive(Default)]
pub(crate) struct AmountDraft {
    rate: Option<SourceNode>,
    concurrency: Option<SourceNode>,
    lease: Option<SourceNode>,
    burst: Option<SourceNode>,
    unlimited: Option<SourceNode>,
}

/// The fields of a quota that say how much.
pub(crate) const AMOUNT_FIELDS: [Field<AmountDraft>; 4] = [
    Field::new(
        "rate",
        FieldDefault::Description("required, unless there is `concurrency` or `levels`"),
        "So many per period; several rates all hold. Or computed: `5000/h + 50/h × claim.repos, at most 12500/h`.",
        || definition_ref("rates"),
        |_, node, _, amount| amount.rate = Some(node.clone()),
    ),
    Field::new(
        "concurrency",
        FieldDefault::None,
        "So many at once, instead of a rate.",
        || definition_ref("number"),
        |_, node, _, amount| amount.concurrency = Some(node.clone()),
    ),
    Field::new(
        "lease",
        FieldDefault::Value("60s"),
        "How long a place is held without being renewed (default 60s).",
        || definition_ref("duration"),
        |_, node, _, amount| amount.lease = Some(node.clone()),
    ),
    Field::new(
        "burst",
        FieldDefault::Description("the rate's number"),
        "The most at once, where it is not the rate's own number; `auto` is ten seconds' worth.",
        || json!({ "anyOf": [{ "const": "auto" }, definition_ref("number")] }),
        |_, node, _, amount| amount.burst = Some(node.clone()),
    ),
];

/// The field of tiers and overrides that limit nothing. Others may not have it, and are told so.
pub(crate) const UNLIMITED_FIELD: [Field<AmountDraft>; 1] = [Field::new(
    "unlimited",
    FieldDefault::None,
    "No limit at all.",
    || json!({ "const": true }),
    |_, node, _, amount| amount.unlimited = Some(node.clone()),
)];

/// The schema of a quota beside a limit's own: a rate, `unlimited`, its fields, or how many at once where the limit says
/// that.
pub(crate) fn schema() -> Json {
    let fields = object(
        field_specs(&UNLIMITED_FIELD)
            .chain(field_specs(&OPTION_FIELDS))
            .chain(field_specs(&AMOUNT_FIELDS)),
    );
    let unlimited = json!({ "const": "unlimited" });
    json!({ "anyOf": [definition_ref("rate"), unlimited, non_empty_list_of(&definition_ref("rate")), definition_ref("number"), fields] })
}

/// `algorithm`, `unit` and `utc_offset`; what is left out is as in `above`.
pub(super) fn read_quota_options(
    reader: &mut TreeReader,
    fields: &mut FieldReader<'_>,
    above: QuotaOptions,
) -> QuotaOptions {
    let mut terms = above;
    fields.read(reader, &OPTION_FIELDS, &mut terms);
    terms
}

/// The terms that a quota was read with, for those that stand inside it.
pub(super) const fn options_of(quota: &QuotaSpec) -> QuotaOptions {
    QuotaOptions {
        algorithm: Some(quota.algorithm),
        unit: quota.unit,
        utc_offset_minutes: quota.utc_offset_minutes,
    }
}

/// A quota out of the fields of a map. `limits` is the quota of the limit that it stands in, where it does.
pub(super) fn read_quota(
    reader: &mut TreeReader,
    fields: &mut FieldReader<'_>,
    terms: QuotaOptions,
    limits: Option<&QuotaSpec>,
    kind: QuotaContext,
) -> Option<Located<QuotaSpec>> {
    let mut draft = AmountDraft::default();
    fields.read(reader, &AMOUNT_FIELDS, &mut draft);
    fields.read(reader, &UNLIMITED_FIELD, &mut draft);
    let (rate, places) = (draft.rate.as_ref(), draft.concurrency.as_ref());
    let (lease, unlimited) = (draft.lease.as_ref(), draft.unlimited.as_ref());
    let lease_span = lease.and_then(|node| reader.parse(node, "lease", grammar::parse_duration));
    if let (Some(node), None) = (lease, places) {
        reader.diagnostics.add(
            node.location,
            "`lease` is for `concurrency`: it is how long a place is held without being renewed",
            "leave `lease` out, or say `concurrency` instead of `rate`",
        );
    }
    reject_several(
        reader,
        &[
            ("rate", rate),
            ("concurrency", places),
            ("unlimited", unlimited),
        ],
    )?;
    let burst = draft.burst.as_ref();
    let burst = burst.and_then(|node| read_burst(reader, node, terms.unit));
    let (place, amount) = if let Some(node) = rate {
        (node.location, read_rate(reader, node, terms.unit)?)
    } else if let Some(node) = places {
        let lease = lease_span.unwrap_or(match limits.map(|quota| &quota.amount) {
            Some(Amount::Concurrency { lease, .. }) => *lease,
            _ => DEFAULT_LEASE,
        });
        let places = reader.parse(node, "concurrency", grammar::parse_count)?;
        (
            node.location,
            Amount::Concurrency {
                permits: places,
                lease,
            },
        )
    } else if let Some(node) = unlimited {
        (node.location, read_unlimited(reader, node, kind)?)
    } else if let (QuotaContext::Candidate, Some(quota)) = (kind, limits) {
        (fields.place, quota.amount.clone())
    } else if fields.has("rate") || fields.has("concurrency") {
        // The name stands there without a value, which is already reported.
        return None;
    } else {
        reader.diagnostics.add(
            fields.place,
            format!("{} does not say how much", fields.subject),
            "add `rate: 100/min`, or `concurrency: 20`",
        );
        return None;
    };
    let algorithm = resolve_algorithm(reader, fields, terms, &amount, place)?;
    let burst = burst.or_else(|| {
        limits.and_then(|limits| inherited_burst(limits, algorithm, &amount, rate.is_none()))
    });
    let spec = QuotaSpec {
        algorithm,
        amount,
        burst,
        unit: terms.unit,
        utc_offset_minutes: terms.utc_offset_minutes,
    };
    Some(Located::new(spec, place))
}

/// A quota as a single value: `100/min`, `unlimited`, or how many at once where the limit counts that.
pub(super) fn read_short_quota(
    reader: &mut TreeReader,
    node: &SourceNode,
    field: &str,
    limits: &QuotaSpec,
) -> Option<Located<QuotaSpec>> {
    let terms = options_of(limits);
    let text = match &node.value {
        SourceValue::Scalar { text, .. } => &**text,
        SourceValue::List(_) => "",
        SourceValue::Null | SourceValue::Map(_) => {
            reader.diagnostics.add(
                node.location,
                format!("`{field}` must say how much, found {}", describe_node(node)),
                "write a rate such as `100/min`, or `unlimited`",
            );
            return None;
        }
    };
    let amount = match (&limits.amount, text) {
        (_, "unlimited") => Amount::Unlimited,
        (Amount::Concurrency { lease, .. }, text) if !text.is_empty() && !text.contains('/') => {
            Amount::Concurrency {
                permits: reader.parse(node, field, grammar::parse_count)?,
                lease: *lease,
            }
        }
        _ => read_rate(reader, node, terms.unit)?,
    };
    let algorithm = match (&amount, limits.algorithm) {
        (Amount::Rates(_) | Amount::Computed(_), Algorithm::Concurrency) => Algorithm::default(),
        (_, algorithm) => algorithm,
    };
    let burst = inherited_burst(limits, algorithm, &amount, false);
    let spec = QuotaSpec {
        algorithm,
        amount,
        burst,
        unit: terms.unit,
        utc_offset_minutes: terms.utc_offset_minutes,
    };
    Some(Located::new(spec, node.location))
}

/// `auto` is a rule that holds for every rate; a number belongs to the rate that it stands beside.
fn inherited_burst(
    limits: &QuotaSpec,
    algorithm: Algorithm,
    amount: &Amount,
    same_rate: bool,
) -> Option<Located<Burst>> {
    let rates = matches!(amount, Amount::Rates(_) | Amount::Computed(_));
    limits
        .burst
        .filter(|burst| algorithm.has_burst() && rates && (same_rate || burst.value == Burst::Auto))
}

fn reject_several(reader: &mut TreeReader, given: &[(&str, Option<&SourceNode>)]) -> Option<()> {
    let mut given = given
        .iter()
        .filter_map(|(name, node)| Some((*name, (*node)?)));
    let first = given.next();
    let second = given.next();
    if let (Some((first, _)), Some((name, node))) = (first, second) {
        reader.diagnostics.add(
            node.location,
            format!("`{name}` and `{first}` exclude each other"),
            "keep one of them; two limits with the same key may have one each",
        );
        return None;
    }
    Some(())
}

fn resolve_algorithm(
    reader: &mut TreeReader,
    fields: &FieldReader<'_>,
    terms: QuotaOptions,
    amount: &Amount,
    place: SourceLocation,
) -> Option<Algorithm> {
    match (amount, terms.algorithm) {
        (Amount::Concurrency { .. }, Some(other))
            if other != Algorithm::Concurrency && fields.has("algorithm") =>
        {
            reader.diagnostics.add(
                place,
                format!(
                    "{}: `concurrency` is counted by itself, not by an algorithm",
                    fields.subject
                ),
                "leave `algorithm` out, or say `rate` instead of `concurrency`",
            );
            None
        }
        (Amount::Concurrency { .. }, _) => Some(Algorithm::Concurrency),
        (Amount::Rates(_) | Amount::Computed(_), Some(Algorithm::Concurrency)) => {
            Some(Algorithm::default())
        }
        (_, algorithm) => Some(algorithm.unwrap_or_default()),
    }
}

fn read_unlimited(
    reader: &mut TreeReader,
    node: &SourceNode,
    kind: QuotaContext,
) -> Option<Amount> {
    let is_true = reader.boolean(node, "unlimited")?;
    if is_true && kind == QuotaContext::Tier {
        return Some(Amount::Unlimited);
    }
    reader.diagnostics.add(
        node.location,
        "`unlimited` is for tiers and overrides: a limit that limits nothing is none",
        "say `rate: 100/min`, or switch the limit off with `mode: off`",
    );
    None
}

fn read_burst(
    reader: &mut TreeReader,
    node: &SourceNode,
    unit: QuotaUnit,
) -> Option<Located<Burst>> {
    let burst = reader.parse(node, "burst", |text| match text {
        "auto" => Ok(Burst::Auto),
        text => grammar::parse_amount(text, unit).map(Burst::Units),
    })?;
    Some(Located::new(burst, node.location))
}
