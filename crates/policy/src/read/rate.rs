//! Reads `rate`: one, several, or a computed one.
//!
//! Must not know: the fields beside `rate`.

use serde_json::{Value as Json, json};
use tollgate_core::QuotaUnit;

use super::TreeReader;
use super::field_reader::FieldReader;
use super::field_spec::{Field, FieldDefault, field_specs};
use super::scalar::describe_node;
use crate::attributes::Attribute;
use crate::grammar;
use crate::model::{Amount, ComputedRate, RateSpec};
use crate::schema::{definition_ref, non_empty_list_of, object};
use crate::source::{Located, SourceNode, SourceValue};

/// The maximum number of windows; each is a state per key.
const MAX_RATES: usize = 8;

/// A computed rate while it is read in its long form.
#[derive(Default)]
pub(crate) struct ComputedDraft {
    unit: QuotaUnit,
    base: Option<Located<RateSpec>>,
    each: Option<Located<RateSpec>>,
    times: Option<Attribute>,
    at_most: Option<Located<RateSpec>>,
}

/// The fields of a computed rate in its long form.
pub(crate) const COMPUTED_RATE: [Field<ComputedDraft>; 4] = [
    Field::new(
        "base",
        FieldDefault::Required("5000/h"),
        "What everyone gets.",
        || definition_ref("rate"),
        |reader, node, name, rate| rate.base = read_one_rate(reader, node, name, rate.unit),
    ),
    Field::new(
        "each",
        FieldDefault::Required("50/h"),
        "What each unit of the attribute adds.",
        || definition_ref("rate"),
        |reader, node, name, rate| rate.each = read_one_rate(reader, node, name, rate.unit),
    ),
    Field::new(
        "times",
        FieldDefault::Required("claim.repos"),
        "The attribute whose number is multiplied.",
        || definition_ref("attribute"),
        |reader, node, name, rate| {
            rate.times = reader.text_attribute(node, name).map(|at| at.value);
        },
    ),
    Field::new(
        "at_most",
        FieldDefault::Required("12500/h"),
        "The most that anyone gets.",
        || definition_ref("rate"),
        |reader, node, name, rate| rate.at_most = read_one_rate(reader, node, name, rate.unit),
    ),
];

/// The schema of `rate`: one, several, or a computed one.
pub(crate) fn schema() -> Json {
    json!({ "anyOf": [definition_ref("rate"), non_empty_list_of(&definition_ref("rate")), object(field_specs(&COMPUTED_RATE))] })
}

/// One rate, several, or a computed one.
pub(super) fn read_rate(
    reader: &mut TreeReader,
    node: &SourceNode,
    unit: QuotaUnit,
) -> Option<Amount> {
    match &node.value {
        SourceValue::Scalar { text, .. } if grammar::is_computed_rate(text) => {
            let (base, each, times, at_most) = reader.parse(node, "rate", |text| {
                grammar::parse_computed_rate(text, unit)
            })?;
            reject_ip(reader, node, &times)?;
            Some(Amount::Computed(ComputedRate {
                base: Located::new(base, node.location),
                each: Located::new(each, node.location),
                times,
                at_most: Located::new(at_most, node.location),
            }))
        }
        SourceValue::List(nodes) => read_rates(reader, node, nodes, unit),
        SourceValue::Map(entries) => {
            let is_computed = entries.iter().any(|entry| {
                COMPUTED_RATE
                    .iter()
                    .any(|field| field.spec.name == &*entry.name.value)
            });
            if is_computed {
                return read_computed(reader, node, unit);
            }
            reader.diagnostics.add(
                node.location,
                format!(
                    "`rate` must be an amount per period, found {}",
                    describe_node(node)
                ),
                "write it as one text: `rate: 10/s` or `rate: 100/min`",
            );
            None
        }
        SourceValue::Null | SourceValue::Scalar { .. } => Some(Amount::Rates(vec![read_one_rate(
            reader, node, "rate", unit,
        )?])),
    }
}

fn read_one_rate(
    reader: &mut TreeReader,
    node: &SourceNode,
    field: &str,
    unit: QuotaUnit,
) -> Option<Located<RateSpec>> {
    let rate = reader.parse(node, field, |text| grammar::parse_rate(text, unit))?;
    Some(Located::new(rate, node.location))
}

fn read_rates(
    reader: &mut TreeReader,
    node: &SourceNode,
    nodes: &[SourceNode],
    unit: QuotaUnit,
) -> Option<Amount> {
    if nodes.is_empty() || nodes.len() > MAX_RATES {
        reader.diagnostics.add(
            node.location,
            format!("`rate` lists {} rates", nodes.len()),
            format!("list from 1 to {MAX_RATES}, as in `[10/s, 1000/h]`"),
        );
        return None;
    }
    let mut rates: Vec<Located<RateSpec>> = Vec::new();
    for node in nodes {
        let Some(rate) = read_one_rate(reader, node, "rate", unit) else {
            continue;
        };
        if rates
            .iter()
            .any(|first| first.value.period == rate.value.period)
        {
            reader.diagnostics.add(
                node.location,
                "`rate` lists two rates for the same period",
                "keep the lower one",
            );
        }
        rates.push(rate);
    }
    (rates.len() == nodes.len()).then_some(Amount::Rates(rates))
}

/// The long form of a computed rate.
fn read_computed(reader: &mut TreeReader, node: &SourceNode, unit: QuotaUnit) -> Option<Amount> {
    let example = "{ base: 5000/h, each: 50/h, times: claim.repos, at_most: 12500/h }";
    let mut fields = FieldReader::open(reader, node, "a computed `rate`", example)?;
    let mut draft = ComputedDraft {
        unit,
        ..ComputedDraft::default()
    };
    fields.read(reader, &COMPUTED_RATE, &mut draft);
    fields.finish(reader);
    Some(Amount::Computed(ComputedRate {
        base: draft.base?,
        each: draft.each?,
        times: draft.times?,
        at_most: draft.at_most?,
    }))
}

fn reject_ip(reader: &mut TreeReader, node: &SourceNode, times: &Attribute) -> Option<()> {
    if *times != Attribute::Ip {
        return Some(());
    }
    reader.diagnostics.add(
        node.location,
        "`rate` cannot be computed from `ip`: an address is not a number",
        "name a claim or a header whose value is a number",
    );
    None
}
