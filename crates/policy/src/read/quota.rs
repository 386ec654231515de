//! How much: `rate` or `concurrency`, with `algorithm`, `burst`, `unit` and `utc_offset`.
//!
//! Must not know: whether core can honour it; `check` asks.

use tollgate_core::{Nanos, Unit};

use super::Reader;
use super::fields::Fields;
use super::scalar::found;
use crate::model::{Algorithm, Amount, Burst, Computed, QuotaSpec, RateSpec};
use crate::source::{At, Node, Place, Value};
use crate::words;

/// How long a place is held without being renewed, unless the file says otherwise.
const LEASE: Nanos = Nanos::from_secs(60);
/// As many windows as anybody needs; each is a state per key.
const MOST_RATES: usize = 8;

const ALGORITHMS: [(&str, Algorithm); 6] = [
    ("token_bucket", Algorithm::TokenBucket),
    ("leaky_bucket", Algorithm::LeakyBucket),
    ("leaky_queue", Algorithm::LeakyQueue),
    ("fixed_window", Algorithm::FixedWindow),
    ("sliding_window", Algorithm::SlidingWindow),
    ("sliding_log", Algorithm::SlidingLog),
];
const UNITS: [(&str, Unit); 3] = [
    ("requests", Unit::Requests),
    ("bytes", Unit::Bytes),
    ("tokens", Unit::Tokens),
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

/// What everything else in a quota is about: taken first, because rates and bursts are written in units.
#[derive(Clone, Copy)]
pub(super) struct Terms {
    pub(super) algorithm: Option<Algorithm>,
    pub(super) unit: Unit,
    pub(super) utc_offset_minutes: i16,
}

/// `algorithm`, `unit` and `utc_offset`; what is left out is as in `above`.
pub(super) fn terms(reader: &mut Reader, fields: &mut Fields<'_>, above: Option<Terms>) -> Terms {
    let mut terms = above.unwrap_or(Terms {
        algorithm: None,
        unit: Unit::default(),
        utc_offset_minutes: 0,
    });
    if let Some(node) = fields.take(reader, "algorithm") {
        terms.algorithm = reader
            .word(node, "algorithm", &ALGORITHMS)
            .or(terms.algorithm);
    }
    if let Some(node) = fields.take(reader, "unit") {
        terms.unit = reader.word(node, "unit", &UNITS).unwrap_or(terms.unit);
    }
    if let Some(node) = fields.take(reader, "utc_offset") {
        terms.utc_offset_minutes = reader
            .parse(node, "utc_offset", words::utc_offset)
            .unwrap_or(terms.utc_offset_minutes);
    }
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
    fields: &mut Fields<'_>,
    terms: Terms,
    limits: Option<&QuotaSpec>,
    kind: Kind,
) -> Option<At<QuotaSpec>> {
    let rate = fields.take(reader, "rate");
    let places = fields.take(reader, "concurrency");
    let lease = fields.take(reader, "lease");
    let burst = fields.take(reader, "burst");
    let unlimited = fields.take(reader, "unlimited");
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
    node: &Node,
    field: &str,
    limits: &QuotaSpec,
) -> Option<At<QuotaSpec>> {
    let terms = terms_of(limits);
    let text = match &node.value {
        Value::Scalar { text, .. } => &**text,
        Value::List(_) => "",
        Value::Nothing | Value::Map(_) => {
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
    let buckets = matches!(
        algorithm,
        Algorithm::TokenBucket | Algorithm::LeakyBucket | Algorithm::LeakyQueue
    );
    let rates = matches!(amount, Amount::Rates(_) | Amount::Computed(_));
    limits
        .burst
        .filter(|burst| buckets && rates && (same_rate || burst.value == Burst::Auto))
}

fn only_one(reader: &mut Reader, given: &[(&str, Option<&Node>)]) -> Option<()> {
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
    fields: &Fields<'_>,
    terms: Terms,
    amount: &Amount,
    place: Place,
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

fn read_unlimited(reader: &mut Reader, node: &Node, kind: Kind) -> Option<Amount> {
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

fn read_burst(reader: &mut Reader, node: &Node, unit: Unit) -> Option<At<Burst>> {
    let burst = reader.parse(node, "burst", |text| match text {
        "auto" => Ok(Burst::Auto),
        text => words::amount(text, unit).map(Burst::Units),
    })?;
    Some(At::new(burst, node.place))
}

/// One rate, several, or a computed one.
pub(super) fn read_rate(reader: &mut Reader, node: &Node, unit: Unit) -> Option<Amount> {
    match &node.value {
        Value::Scalar { text, .. } if words::is_computed(text) => {
            let (base, each, times, at_most) =
                reader.parse(node, "rate", |text| words::computed(text, unit))?;
            not_an_address(reader, node, &times)?;
            Some(Amount::Computed(Computed {
                base: At::new(base, node.place),
                each: At::new(each, node.place),
                times,
                at_most: At::new(at_most, node.place),
            }))
        }
        Value::List(nodes) => read_rates(reader, node, nodes, unit),
        Value::Map(_) => read_computed(reader, node, unit),
        Value::Nothing | Value::Scalar { .. } => {
            Some(Amount::Rates(vec![one_rate(reader, node, "rate", unit)?]))
        }
    }
}

fn one_rate(reader: &mut Reader, node: &Node, field: &str, unit: Unit) -> Option<At<RateSpec>> {
    let rate = reader.parse(node, field, |text| words::rate(text, unit))?;
    Some(At::new(rate, node.place))
}

fn read_rates(reader: &mut Reader, node: &Node, nodes: &[Node], unit: Unit) -> Option<Amount> {
    if nodes.is_empty() || nodes.len() > MOST_RATES {
        reader.report.say(
            node.place,
            format!("`rate` lists {} rates", nodes.len()),
            format!("list from 1 to {MOST_RATES}, as in `[10/s, 1000/h]`"),
        );
        return None;
    }
    let mut rates: Vec<At<RateSpec>> = Vec::new();
    for node in nodes {
        let Some(rate) = one_rate(reader, node, "rate", unit) else {
            continue;
        };
        if rates
            .iter()
            .any(|first| first.value.period == rate.value.period)
        {
            reader.report.say(
                node.place,
                "`rate` lists two rates for the same period",
                "keep the smaller: it is the one that would decide",
            );
        }
        rates.push(rate);
    }
    (rates.len() == nodes.len()).then_some(Amount::Rates(rates))
}

/// The long form of a computed rate.
fn read_computed(reader: &mut Reader, node: &Node, unit: Unit) -> Option<Amount> {
    let example = "{ base: 5000/h, each: 50/h, times: claim.repos, at_most: 12500/h }";
    let mut fields = Fields::open(reader, node, "a computed `rate`", example)?;
    let base = fields
        .require(reader, "base", "5000/h")
        .and_then(|node| one_rate(reader, node, "base", unit));
    let each = fields
        .require(reader, "each", "50/h")
        .and_then(|node| one_rate(reader, node, "each", unit));
    let times = fields
        .require(reader, "times", "claim.repos")
        .and_then(|node| reader.textual(node, "times"));
    let at_most = fields
        .require(reader, "at_most", "12500/h")
        .and_then(|node| one_rate(reader, node, "at_most", unit));
    fields.finish(reader);
    Some(Amount::Computed(Computed {
        base: base?,
        each: each?,
        times: times?.value,
        at_most: at_most?,
    }))
}

fn not_an_address(
    reader: &mut Reader,
    node: &Node,
    times: &crate::attributes::Attribute,
) -> Option<()> {
    if *times != crate::attributes::Attribute::Ip {
        return Some(());
    }
    reader.report.say(
        node.place,
        "`rate` cannot be computed from `ip`: an address is no number",
        "name a claim or a header whose value is a number",
    );
    None
}
