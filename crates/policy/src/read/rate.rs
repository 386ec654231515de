//! `rate`: one, several, or one that attributes of the request add to.
//!
//! Must not know: what stands beside a rate.

use serde_json::{Value as Json, json};
use tollgate_core::QuotaUnit;

use super::Reader;
use super::field::{Absent, Field, about};
use super::fields::FieldReader;
use crate::attributes::Attribute;
use crate::model::{Amount, Computed, RateSpec};
use crate::schema::{object, of, some_of};
use crate::source::{At, SourceNode, SourceValue};
use crate::words;

/// As many windows as anybody needs; each is a state per key.
const MOST_RATES: usize = 8;

/// A computed rate while it is read in its long form.
#[derive(Default)]
pub(crate) struct ComputedDraft {
    unit: QuotaUnit,
    base: Option<At<RateSpec>>,
    each: Option<At<RateSpec>>,
    times: Option<Attribute>,
    at_most: Option<At<RateSpec>>,
}

/// The fields of a computed rate in its long form.
pub(crate) const COMPUTED: [Field<ComputedDraft>; 4] = [
    Field::new(
        "base",
        Absent::Required("5000/h"),
        "What everyone gets.",
        || of("rate"),
        |reader, node, name, rate| rate.base = one_rate(reader, node, name, rate.unit),
    ),
    Field::new(
        "each",
        Absent::Required("50/h"),
        "What each unit of the attribute adds.",
        || of("rate"),
        |reader, node, name, rate| rate.each = one_rate(reader, node, name, rate.unit),
    ),
    Field::new(
        "times",
        Absent::Required("claim.repos"),
        "The attribute whose number is multiplied.",
        || of("attribute"),
        |reader, node, name, rate| rate.times = reader.textual(node, name).map(|at| at.value),
    ),
    Field::new(
        "at_most",
        Absent::Required("12500/h"),
        "The most that anyone gets.",
        || of("rate"),
        |reader, node, name, rate| rate.at_most = one_rate(reader, node, name, rate.unit),
    ),
];

/// The schema of `rate`: one, several, or a computed one.
pub(crate) fn schema() -> Json {
    json!({ "anyOf": [of("rate"), some_of(&of("rate")), object(about(&COMPUTED))] })
}

/// One rate, several, or a computed one.
pub(super) fn read_rate(reader: &mut Reader, node: &SourceNode, unit: QuotaUnit) -> Option<Amount> {
    match &node.value {
        SourceValue::Scalar { text, .. } if words::is_computed(text) => {
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
        SourceValue::List(nodes) => read_rates(reader, node, nodes, unit),
        SourceValue::Map(_) => read_computed(reader, node, unit),
        SourceValue::Nothing | SourceValue::Scalar { .. } => {
            Some(Amount::Rates(vec![one_rate(reader, node, "rate", unit)?]))
        }
    }
}

fn one_rate(
    reader: &mut Reader,
    node: &SourceNode,
    field: &str,
    unit: QuotaUnit,
) -> Option<At<RateSpec>> {
    let rate = reader.parse(node, field, |text| words::rate(text, unit))?;
    Some(At::new(rate, node.place))
}

fn read_rates(
    reader: &mut Reader,
    node: &SourceNode,
    nodes: &[SourceNode],
    unit: QuotaUnit,
) -> Option<Amount> {
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
fn read_computed(reader: &mut Reader, node: &SourceNode, unit: QuotaUnit) -> Option<Amount> {
    let example = "{ base: 5000/h, each: 50/h, times: claim.repos, at_most: 12500/h }";
    let mut fields = FieldReader::open(reader, node, "a computed `rate`", example)?;
    let mut draft = ComputedDraft {
        unit,
        ..ComputedDraft::default()
    };
    fields.read(reader, &COMPUTED, &mut draft);
    fields.finish(reader);
    Some(Amount::Computed(Computed {
        base: draft.base?,
        each: draft.each?,
        times: draft.times?,
        at_most: draft.at_most?,
    }))
}

fn not_an_address(reader: &mut Reader, node: &SourceNode, times: &Attribute) -> Option<()> {
    if *times != Attribute::Ip {
        return Some(());
    }
    reader.report.say(
        node.place,
        "`rate` cannot be computed from `ip`: an address is no number",
        "name a claim or a header whose value is a number",
    );
    None
}
