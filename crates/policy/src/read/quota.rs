//! How much: `rate` or `concurrency`, with `algorithm`, `burst`, `unit` and `utc_offset`.
//!
//! Must not know: whether core can honour it; `check` asks.

use serde_json::{Value as Json, json};
use tollgate_core::{Nanos, QuotaUnit};

use super::Reader;
use super::field::{Absent, Field, about, put};
use super::fields::FieldReader;
use super::rate::read_rate;
use super::scalar::found;
use crate::model::{Algorithm, Amount, Burst, QuotaSpec};
use crate::schema::{enumeration, object, of, some_of};
use crate::source::{At, SourceLocation, SourceNode, SourceValue};
use crate::words;

/// How long a place is held without being renewed, unless the file says otherwise.
const LEASE: Nanos = Nanos::from_secs(60);
const UNITS: [(&str, QuotaUnit); 3] = [
    ("requests", QuotaUnit::Requests),
    ("bytes", QuotaUnit::Bytes),
    ("tokens", QuotaUnit::Tokens),
];

/// What a quota may leave out or say beyond a plain one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A limit's own or a level's: it says how much.
    Own,
    /// A tier's or an override's: it may also be unlimited.
    Tier,
    /// A candidate's: what it leaves out is the limit's.
    Candidate,
}

/// What everything else in a quota is about: read first, because rates and bursts are written in units.
#[derive(Clone, Copy, Default)]
pub(crate) struct Terms {
    pub(super) algorithm: Option<Algorithm>,
    pub(super) unit: QuotaUnit,
    pub(super) utc_offset_minutes: i16,
}

/// The fields of a quota that say how it is counted.
pub(crate) const TERMS: [Field<Terms>; 3] = [
    Field::new(
        "algorithm",
        Absent::Default("token_bucket"),
        "How the rate is counted (default token_bucket).",
        || enumeration(&Algorithm::NAMED),
        |reader, node, name, terms| {
            let algorithm = reader.word(node, name, &Algorithm::NAMED);
            terms.algorithm = algorithm.or(terms.algorithm);
        },
    ),
    Field::new(
        "unit",
        Absent::Default("requests"),
        "What is counted (default requests).",
        || enumeration(&UNITS),
        |reader, node, name, terms| put(&mut terms.unit, reader.word(node, name, &UNITS)),
    ),
    Field::new(
        "utc_offset",
        Absent::Default("+00:00"),
        "The offset from UTC at which calendar windows turn, such as \"+02:00\".",
        || json!({ "type": "string" }),
        |reader, node, name, terms| {
            let minutes = reader.parse(node, name, words::utc_offset);
            put(&mut terms.utc_offset_minutes, minutes);
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
pub(crate) const AMOUNT: [Field<AmountDraft>; 4] = [
    Field::new(
        "rate",
        Absent::Means("required, unless there is `concurrency` or `levels`"),
        "So many per period; several rates all hold. Or computed: `5000/h + 50/h × claim.repos, at most 12500/h`.",
        || of("rates"),
        |_, node, _, amount| amount.rate = Some(node.clone()),
    ),
    Field::new(
        "concurrency",
        Absent::Nothing,
        "So many at once, instead of a rate.",
        || of("number"),
        |_, node, _, amount| amount.concurrency = Some(node.clone()),
    ),
    Field::new(
        "lease",
        Absent::Default("60s"),
        "How long a place is held without being renewed (default 60s).",
        || of("duration"),
        |_, node, _, amount| amount.lease = Some(node.clone()),
    ),
    Field::new(
        "burst",
        Absent::Means("the rate's number"),
        "The most at once, where it is not the rate's own number; `auto` is ten seconds' worth.",
        || json!({ "anyOf": [{ "const": "auto" }, of("number")] }),
        |_, node, _, amount| amount.burst = Some(node.clone()),
    ),
];

/// The field of tiers and overrides that limit nothing. Others may not have it, and are told so.
pub(crate) const UNLIMITED: [Field<AmountDraft>; 1] = [Field::new(
    "unlimited",
    Absent::Nothing,
    "No limit at all.",
    || json!({ "const": true }),
    |_, node, _, amount| amount.unlimited = Some(node.clone()),
)];

/// The schema of a quota beside a limit's own: a rate, `unlimited`, its fields, or how many at once where the limit says
/// that.
pub(crate) fn schema() -> Json {
    let fields = object(about(&UNLIMITED).chain(about(&TERMS)).chain(about(&AMOUNT)));
    let unlimited = json!({ "const": "unlimited" });
    json!({ "anyOf": [of("rate"), unlimited, some_of(&of("rate")), of("number"), fields] })
}

/// `algorithm`, `unit` and `utc_offset`; what is left out is as in `above`.
pub(super) fn terms(reader: &mut Reader, fields: &mut FieldReader<'_>, above: Terms) -> Terms {
    let mut terms = above;
    fields.read(reader, &TERMS, &mut terms);
    terms
}

/// The terms that a quota was read with, for those that stand inside it.
pub(super) const fn terms_of(quota: &QuotaSpec) -> Terms {
    Terms {
        algorithm: Some(quota.algorithm),
        unit: quota.unit,
        utc_offset_minutes: quota.utc_offset_minutes,
    }
}

/// A quota out of the fields of a map. `limits` is the quota of the limit that it stands in, where it does.
pub(super) fn quota(
    reader: &mut Reader,
    fields: &mut FieldReader<'_>,
    terms: Terms,
    limits: Option<&QuotaSpec>,
    kind: Kind,
) -> Option<At<QuotaSpec>> {
    let mut draft = AmountDraft::default();
    fields.read(reader, &AMOUNT, &mut draft);
    fields.read(reader, &UNLIMITED, &mut draft);
    let (rate, places) = (draft.rate.as_ref(), draft.concurrency.as_ref());
    let (lease, unlimited) = (draft.lease.as_ref(), draft.unlimited.as_ref());
    let lease_span = lease.and_then(|node| reader.parse(node, "lease", words::duration));
    if let (Some(node), None) = (lease, places) {
        reader.report.say(
            node.place,
            "`lease` is for `concurrency`: it is how long a place is held without being renewed",
            "leave `lease` out, or say `concurrency` instead of `rate`",
        );
    }
    only_one(
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
        (node.place, read_rate(reader, node, terms.unit)?)
    } else if let Some(node) = places {
        let lease = lease_span.unwrap_or(match limits.map(|quota| &quota.amount) {
            Some(Amount::AtOnce { lease, .. }) => *lease,
            _ => LEASE,
        });
        let places = reader.parse(node, "concurrency", words::count)?;
        (node.place, Amount::AtOnce { places, lease })
    } else if let Some(node) = unlimited {
        (node.place, read_unlimited(reader, node, kind)?)
    } else if let (Kind::Candidate, Some(quota)) = (kind, limits) {
        (fields.place, quota.amount.clone())
    } else if fields.has("rate") || fields.has("concurrency") {
        // The name stands there without a value, which is already reported.
        return None;
    } else {
        reader.report.say(
            fields.place,
            format!("{} does not say how much", fields.of),
            "add `rate: 100/min`, or `concurrency: 20`",
        );
        return None;
    };
    let algorithm = algorithm(reader, fields, terms, &amount, place)?;
    let burst = burst.or_else(|| {
        limits.and_then(|limits| burst_above(limits, algorithm, &amount, rate.is_none()))
    });
    let spec = QuotaSpec {
        algorithm,
        amount,
        burst,
        unit: terms.unit,
        utc_offset_minutes: terms.utc_offset_minutes,
    };
    Some(At::new(spec, place))
}

/// A quota as a single value: `100/min`, `unlimited`, or how many at once where the limit counts that.
pub(super) fn short(
    reader: &mut Reader,
    node: &SourceNode,
    field: &str,
    limits: &QuotaSpec,
) -> Option<At<QuotaSpec>> {
    let terms = terms_of(limits);
    let text = match &node.value {
        SourceValue::Scalar { text, .. } => &**text,
        SourceValue::List(_) => "",
        SourceValue::Nothing | SourceValue::Map(_) => {
            reader.report.say(
                node.place,
                format!("`{field}` must say how much, found {}", found(node)),
                "write a rate such as `100/min`, or `unlimited`",
            );
            return None;
        }
    };
    let amount = match (&limits.amount, text) {
        (_, "unlimited") => Amount::Unlimited,
        (Amount::AtOnce { lease, .. }, text) if !text.is_empty() && !text.contains('/') => {
            Amount::AtOnce {
                places: reader.parse(node, field, words::count)?,
                lease: *lease,
            }
        }
        _ => read_rate(reader, node, terms.unit)?,
    };
    let algorithm = match (&amount, limits.algorithm) {
        (Amount::Rates(_) | Amount::Computed(_), Algorithm::Concurrency) => Algorithm::default(),
        (_, algorithm) => algorithm,
    };
    let burst = burst_above(limits, algorithm, &amount, false);
    let spec = QuotaSpec {
        algorithm,
        amount,
        burst,
        unit: terms.unit,
        utc_offset_minutes: terms.utc_offset_minutes,
    };
    Some(At::new(spec, node.place))
}

/// `auto` is a rule that holds for every rate; a number belongs to the rate that it stands beside.
fn burst_above(
    limits: &QuotaSpec,
    algorithm: Algorithm,
    amount: &Amount,
    same_rate: bool,
) -> Option<At<Burst>> {
    let rates = matches!(amount, Amount::Rates(_) | Amount::Computed(_));
    limits
        .burst
        .filter(|burst| algorithm.has_burst() && rates && (same_rate || burst.value == Burst::Auto))
}

fn only_one(reader: &mut Reader, given: &[(&str, Option<&SourceNode>)]) -> Option<()> {
    let mut given = given
        .iter()
        .filter_map(|(name, node)| Some((*name, (*node)?)));
    let first = given.next();
    let second = given.next();
    if let (Some((first, _)), Some((name, node))) = (first, second) {
        reader.report.say(
            node.place,
            format!("`{name}` and `{first}` exclude each other"),
            "keep one of them; two limits with the same key may have one each",
        );
        return None;
    }
    Some(())
}

fn algorithm(
    reader: &mut Reader,
    fields: &FieldReader<'_>,
    terms: Terms,
    amount: &Amount,
    place: SourceLocation,
) -> Option<Algorithm> {
    match (amount, terms.algorithm) {
        (Amount::AtOnce { .. }, Some(other))
            if other != Algorithm::Concurrency && fields.has("algorithm") =>
        {
            reader.report.say(
                place,
                format!(
                    "{}: `concurrency` is counted by itself, not by an algorithm",
                    fields.of
                ),
                "leave `algorithm` out, or say `rate` instead of `concurrency`",
            );
            None
        }
        (Amount::AtOnce { .. }, _) => Some(Algorithm::Concurrency),
        (Amount::Rates(_) | Amount::Computed(_), Some(Algorithm::Concurrency)) => {
            Some(Algorithm::default())
        }
        (_, algorithm) => Some(algorithm.unwrap_or_default()),
    }
}

fn read_unlimited(reader: &mut Reader, node: &SourceNode, kind: Kind) -> Option<Amount> {
    let is_true = reader.truth(node, "unlimited")?;
    if is_true && kind == Kind::Tier {
        return Some(Amount::Unlimited);
    }
    reader.report.say(
        node.place,
        "`unlimited` is for tiers and overrides: a limit that limits nothing is none",
        "say `rate: 100/min`, or switch the limit off with `mode: off`",
    );
    None
}

fn read_burst(reader: &mut Reader, node: &SourceNode, unit: QuotaUnit) -> Option<At<Burst>> {
    let burst = reader.parse(node, "burst", |text| match text {
        "auto" => Ok(Burst::Auto),
        text => words::amount(text, unit).map(Burst::Units),
    })?;
    Some(At::new(burst, node.place))
}
