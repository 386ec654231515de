//! Reads quotas: `rate` or `concurrency`, with `algorithm`, `burst` and the other options.
//!
//! Must not know: which quotas core supports; `check` does.

use serde_json::{Value as Json, json};
use tollgate_core::{Nanos, QuotaUnit};

use super::TreeReader;
use super::field_reader::FieldReader;
use super::field_spec::{Field, FieldDefault, field_specs, set_if_some};
use super::rate::read_rate;
use super::scalar::describe_node;
use crate::grammar::{self, GrammarError};
use crate::model::{Algorithm, Amount, Burst, QuotaDetails, QuotaSpec, RefillMode, WindowStart};
use crate::schema::{definition_ref, enumeration, non_empty_list_of, object};
use crate::source::{Located, SourceLocation, SourceNode, SourceValue};

/// The default lease of a permit.
const DEFAULT_LEASE: Nanos = Nanos::from_secs(60);
const UNITS: [(&str, QuotaUnit); 3] = [
    ("requests", QuotaUnit::Requests),
    ("bytes", QuotaUnit::Bytes),
    ("tokens", QuotaUnit::Tokens),
];

const WINDOW_STARTS: [(&str, WindowStart); 2] = [
    ("aligned", WindowStart::Aligned),
    ("first_hit", WindowStart::FirstHit),
];
const REFILL_MODES: [(&str, RefillMode); 2] = [
    ("continuous", RefillMode::Continuous),
    ("interval", RefillMode::Interval),
];

/// Where a quota is written, which decides what it may omit.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum QuotaContext {
    /// In a limit or a level: the amount is required.
    Own,
    /// In a tier or an override: it may be unlimited.
    Tier,
    /// In a candidate: it inherits omitted fields from the limit.
    Candidate,
}

/// The options of a quota. They are read first, because rates and bursts depend on the unit.
#[derive(Clone, Copy, Default)]
pub(crate) struct QuotaOptions {
    pub(super) algorithm: Option<Algorithm>,
    pub(super) unit: QuotaUnit,
    pub(super) utc_offset_minutes: i16,
    pub(super) details: QuotaDetails,
}

/// The option fields of a quota.
pub(crate) const OPTION_FIELDS: [Field<QuotaOptions>; 7] = [
    Field::new(
        "algorithm",
        FieldDefault::Value("token_bucket"),
        "How the rate is counted (default token_bucket).",
        || enumeration(&Algorithm::BY_NAME),
        |reader, node, name, terms| {
            let algorithm = read_algorithm(reader, node, name);
            terms.algorithm = algorithm.or(terms.algorithm);
        },
    ),
    Field::new(
        "unit",
        FieldDefault::Value("requests"),
        "What is counted (default requests).",
        || enumeration(&UNITS),
        |reader, node, name, terms| {
            set_if_some(&mut terms.unit, reader.keyword(node, name, &UNITS));
        },
    ),
    Field::new(
        "utc_offset",
        FieldDefault::Value("+00:00"),
        "The UTC offset of calendar windows, such as \"+02:00\".",
        || json!({ "type": "string" }),
        |reader, node, name, terms| {
            let minutes = reader.parse(node, name, grammar::parse_utc_offset);
            set_if_some(&mut terms.utc_offset_minutes, minutes);
        },
    ),
    Field::new(
        "window",
        FieldDefault::Value("aligned"),
        "Where fixed windows begin: `aligned` (default, the same for every key) or `first_hit` (with a key's first request).",
        || enumeration(&WINDOW_STARTS),
        |reader, node, name, terms| {
            let start = reader.keyword(node, name, &WINDOW_STARTS);
            terms.details.window = unless_default(start, node);
        },
    ),
    Field::new(
        "refill",
        FieldDefault::Value("continuous"),
        "How a token bucket refills: `continuous` (default) or `interval` (all units of the rate together, each period).",
        || enumeration(&REFILL_MODES),
        |reader, node, name, terms| {
            let mode = reader.keyword(node, name, &REFILL_MODES);
            terms.details.refill = unless_default(mode, node);
        },
    ),
    Field::new(
        "initial",
        FieldDefault::Description("the burst"),
        "The units that a new key of a token bucket starts with.",
        || definition_ref("number"),
        |reader, node, name, terms| {
            let units = reader.units(node, name, terms.unit);
            terms.details.initial = units.map(|units| Located::new(units, node.location));
        },
    ),
    Field::new(
        "remember",
        FieldDefault::Description("`1d`"),
        "With `initial`: how long a key is remembered after its bucket is full; then it is new again (default 1d).",
        || definition_ref("duration"),
        |reader, node, name, terms| {
            let span = reader.parse(node, name, grammar::parse_duration);
            terms.details.remember = span.map(|span| Located::new(span, node.location));
        },
    ),
];

/// Reads the name of an algorithm, and suggests ours for the names that other programs have.
fn read_algorithm(reader: &mut TreeReader, node: &SourceNode, field: &str) -> Option<Algorithm> {
    if let SourceValue::Scalar { text, .. } = &node.value
        && let Some(meant) = Algorithm::by_other_name(text)
    {
        reader.diagnostics.add(
            node.location,
            format!("`{field}` cannot be `{text}`"),
            format!("did you mean `{}`?", meant.name()),
        );
        return None;
    }
    reader.keyword(node, field, &Algorithm::BY_NAME)
}

/// The amount fields of a quota. They are read together, because some are mutually exclusive.
#[derive(Default)]
pub(crate) struct AmountDraft {
    rate: Option<SourceNode>,
    concurrency: Option<SourceNode>,
    lease: Option<SourceNode>,
    burst: Option<SourceNode>,
    unlimited: Option<SourceNode>,
}

/// The amount fields of a quota.
pub(crate) const AMOUNT_FIELDS: [Field<AmountDraft>; 4] = [
    Field::new(
        "rate",
        FieldDefault::Description("required, unless there is `concurrency` or `levels`"),
        "An amount per period; of several rates all must admit. Or computed: `5000/h + 50/h × claim.repos, at most 12500/h`.",
        || definition_ref("rates"),
        |_, node, _, amount| amount.rate = Some(node.clone()),
    ),
    Field::new(
        "concurrency",
        FieldDefault::None,
        "The maximum number of requests in flight, instead of a rate.",
        || definition_ref("number"),
        |_, node, _, amount| amount.concurrency = Some(node.clone()),
    ),
    Field::new(
        "lease",
        FieldDefault::Value("60s"),
        "How long a permit is held without renewal (default 60s).",
        || definition_ref("duration"),
        |_, node, _, amount| amount.lease = Some(node.clone()),
    ),
    Field::new(
        "burst",
        FieldDefault::Description("the rate's number"),
        "The maximum at once, if it is not the number of the rate; `auto` is the units of ten seconds.",
        || json!({ "anyOf": [{ "const": "auto" }, definition_ref("number")] }),
        |_, node, _, amount| amount.burst = Some(node.clone()),
    ),
];

/// The value with its location, unless it is the default, which every algorithm has.
fn unless_default<T: Default + PartialEq>(
    value: Option<T>,
    node: &SourceNode,
) -> Option<Located<T>> {
    value
        .filter(|value| *value != T::default())
        .map(|value| Located::new(value, node.location))
}

/// `unlimited`, for tiers and overrides. Elsewhere it is reported.
pub(crate) const UNLIMITED_FIELD: [Field<AmountDraft>; 1] = [Field::new(
    "unlimited",
    FieldDefault::None,
    "No limit at all.",
    || json!({ "const": true }),
    |_, node, _, amount| amount.unlimited = Some(node.clone()),
)];

/// The schema of a tier, override or candidate: a rate, `unlimited`, a map of fields, or a number of permits.
pub(crate) fn schema() -> Json {
    let fields = object(
        field_specs(&UNLIMITED_FIELD)
            .chain(field_specs(&OPTION_FIELDS))
            .chain(field_specs(&AMOUNT_FIELDS)),
    );
    let unlimited = json!({ "const": "unlimited" });
    json!({ "anyOf": [definition_ref("rate"), unlimited, non_empty_list_of(&definition_ref("rate")), definition_ref("number"), fields] })
}

/// Reads the options of a quota; omitted fields are as in `above`.
pub(super) fn read_quota_options(
    reader: &mut TreeReader,
    fields: &mut FieldReader<'_>,
    above: QuotaOptions,
) -> QuotaOptions {
    let mut terms = above;
    fields.read(reader, &OPTION_FIELDS, &mut terms);
    terms
}

/// The options of a quota, for the quotas that inherit from it.
pub(super) const fn options_of(quota: &QuotaSpec) -> QuotaOptions {
    QuotaOptions {
        algorithm: Some(quota.algorithm),
        unit: quota.unit,
        utc_offset_minutes: quota.utc_offset_minutes,
        details: quota.details,
    }
}

/// Reads a quota from the fields of a map. `limits` is the quota of the limit, for quotas inside a limit.
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
    let (rate, permits) = (draft.rate.as_ref(), draft.concurrency.as_ref());
    let (lease, unlimited) = (draft.lease.as_ref(), draft.unlimited.as_ref());
    let lease_span = lease.and_then(|node| reader.parse(node, "lease", grammar::parse_duration));
    if let (Some(node), None) = (lease, permits) {
        reader.diagnostics.add(
            node.location,
            "`lease` is only for `concurrency`: a permit that is not renewed expires after its lease",
            "leave `lease` out, or use `concurrency` instead of `rate`",
        );
    }
    reject_several(
        reader,
        &[
            ("rate", rate),
            ("concurrency", permits),
            ("unlimited", unlimited),
        ],
    )?;
    let burst = draft.burst.as_ref();
    let burst = burst.and_then(|node| read_burst(reader, node, terms.unit));
    let (location, amount) = if let Some(node) = rate {
        (node.location, read_rate(reader, node, terms.unit)?)
    } else if let Some(node) = permits {
        let lease = lease_span.unwrap_or(match limits.map(|quota| &quota.amount) {
            Some(Amount::Concurrency { lease, .. }) => *lease,
            _ => DEFAULT_LEASE,
        });
        let permits = reader.parse(node, "concurrency", grammar::parse_count)?;
        (node.location, Amount::Concurrency { permits, lease })
    } else if let Some(node) = unlimited {
        (node.location, read_unlimited(reader, node, kind)?)
    } else if let (QuotaContext::Candidate, Some(quota)) = (kind, limits) {
        (fields.location, quota.amount.clone())
    } else if fields.has("rate") || fields.has("concurrency") {
        // The name has no value, which is already reported.
        return None;
    } else {
        reader.diagnostics.add(
            fields.location,
            format!("{} has no `rate` and no `concurrency`", fields.subject),
            "add `rate: 100/min`, or `concurrency: 20`",
        );
        return None;
    };
    let algorithm = resolve_algorithm(reader, fields, terms, &amount, location)?;
    let burst = burst.or_else(|| {
        limits.and_then(|limits| inherited_burst(limits, algorithm, &amount, rate.is_none()))
    });
    let details = match limits {
        // What only the limit's algorithm has is not inherited by another.
        Some(limits) if limits.algorithm != algorithm => {
            terms.details.without_inherited(&limits.details)
        }
        _ => terms.details,
    };
    let spec = QuotaSpec {
        algorithm,
        amount,
        burst,
        unit: terms.unit,
        utc_offset_minutes: terms.utc_offset_minutes,
        details,
    };
    Some(Located::new(spec, location))
}

/// Reads a quota as a single value: `100/min`, `unlimited`, or a number of permits if the limit has `concurrency`.
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
                format!("`{field}` must be a rate, found {}", describe_node(node)),
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
        details: terms.details,
    };
    Some(Located::new(spec, node.location))
}

/// `auto` applies to every rate; a number applies only to the rate beside it.
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

fn reject_several(reader: &mut TreeReader, set: &[(&str, Option<&SourceNode>)]) -> Option<()> {
    let mut set = set
        .iter()
        .filter_map(|(name, node)| Some((*name, (*node)?)));
    let first = set.next();
    let second = set.next();
    if let (Some((first, _)), Some((name, node))) = (first, second) {
        reader.diagnostics.add(
            node.location,
            format!("`{name}` and `{first}` are mutually exclusive"),
            "keep one of them, or use two limits with the same key",
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
    location: SourceLocation,
) -> Option<Algorithm> {
    match (amount, terms.algorithm) {
        (Amount::Concurrency { .. }, Some(other))
            if other != Algorithm::Concurrency && fields.has("algorithm") =>
        {
            reader.diagnostics.add(
                location,
                format!("{}: `concurrency` has no `algorithm`", fields.subject),
                "leave `algorithm` out, or use `rate` instead of `concurrency`",
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
        "`unlimited` is only for tiers and overrides",
        "write `rate: 100/min`, or switch the limit off with `mode: off`",
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
        text => match grammar::parse_amount(text, unit) {
            Ok(units) => Ok(Burst::Units(units)),
            // As for a burst of 0, which is refused with the rate beside it.
            Err(error) if text.starts_with('-') => Err(GrammarError {
                help: Some("write a whole number of at least 1".into()),
                ..error
            }),
            Err(error) => Err(error),
        },
    })?;
    Some(Located::new(burst, node.location))
}
