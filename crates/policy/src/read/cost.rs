//! `cost` and `count`: what a request costs, and which requests are counted.
//!
//! Must not know: how costs are charged.

use tollgate_core::Unit;

use super::Reader;
use super::fields::Fields;
use super::scalar::found;
use super::tiers::spelled;
use crate::model::{Cost, Count, StatusClass};
use crate::source::{Node, Value};
use crate::words;

const FORMS: &str = "write `cost: 5`, `cost: { by: method, POST: 5, otherwise: 1 }`, `cost: { from: header.x-cost }` or `cost: { response: x-tokens-used }`";

/// `cost`: a number, or by a value, from an attribute or from the response.
pub(super) fn cost(reader: &mut Reader, node: &Node, unit: Unit) -> Option<Cost> {
    if let Value::Scalar { .. } = node.value {
        return Some(Cost::Fixed(
            reader.parse(node, "cost", |text| words::amount(text, unit))?,
        ));
    }
    let mut fields = Fields::open(reader, node, "`cost`", "cost: 5")?;
    let forms = ["by", "from", "response"];
    if forms.iter().filter(|form| fields.has(form)).count() != 1 {
        reader.report.say(
            node.place,
            "`cost` must have one of `by`, `from` and `response`",
            FORMS,
        );
        return None;
    }
    if fields.has("by") {
        by_value(reader, fields, unit)
    } else if fields.has("from") {
        from_attribute(reader, fields, unit)
    } else {
        let node = fields.take(reader, "response");
        let header = node.and_then(|node| {
            let text = reader.text(node, "response")?;
            let name = text.strip_prefix("header.").unwrap_or(text);
            reader.made(node.place, "response", words::header(name))
        });
        let estimate = fields.units(reader, "estimate", unit).unwrap_or(1);
        let at_most = fields.units(reader, "at_most", unit).unwrap_or(u64::MAX);
        fields.finish(reader);
        Some(Cost::Response {
            header: header?,
            estimate,
            at_most,
        })
    }
}

fn by_value(reader: &mut Reader, mut fields: Fields<'_>, unit: Unit) -> Option<Cost> {
    let attribute = fields
        .take(reader, "by")
        .and_then(|node| reader.textual(node, "by"));
    let otherwise = fields.units(reader, "otherwise", unit).unwrap_or(1);
    let mut values = Vec::new();
    for entry in fields.rest() {
        let cost = reader.parse(&entry.value, &entry.name.value, |text| {
            words::amount(text, unit)
        });
        let value = spelled(attribute.as_ref().map(|by| &by.value), &entry.name.value);
        values.extend(cost.map(|cost| (value, cost)));
    }
    if fields.rest().next().is_none() {
        reader.report.say(
            fields.place,
            "`cost` names no value",
            "add one for each value that costs something else: `POST: 5`",
        );
    }
    Some(Cost::ByValue {
        attribute: attribute?.value,
        values,
        otherwise,
    })
}

fn from_attribute(reader: &mut Reader, mut fields: Fields<'_>, unit: Unit) -> Option<Cost> {
    let attribute = fields
        .take(reader, "from")
        .and_then(|node| reader.textual(node, "from"));
    let at_least = fields.units(reader, "at_least", unit).unwrap_or(1);
    let at_most = fields.units(reader, "at_most", unit).unwrap_or(u64::MAX);
    let otherwise = fields.units(reader, "otherwise", unit).unwrap_or(at_least);
    fields.finish(reader);
    Some(Cost::Attribute {
        attribute: attribute?.value,
        at_least,
        at_most,
        otherwise,
    })
}

impl Fields<'_> {
    /// A field that is a number of units.
    fn units(&mut self, reader: &mut Reader, name: &'static str, unit: Unit) -> Option<u64> {
        let node = self.take(reader, name)?;
        reader.parse(node, name, |text| words::amount(text, unit))
    }
}

/// `count: requests`, `count: denials`, `count: { responses: [401, 5xx] }`
pub(super) fn count(reader: &mut Reader, node: &Node) -> Option<Count> {
    if let Value::Scalar { .. } = node.value {
        let words = [("requests", false), ("denials", true)];
        let denials = reader.word(node, "count", &words)?;
        return Some(if denials {
            Count::Denials
        } else {
            Count::Requests
        });
    }
    let mut fields = Fields::open(reader, node, "`count`", "count: { responses: [401, 5xx] }")?;
    let classes = fields
        .require(reader, "responses", "[401, 5xx]")
        .and_then(|node| responses(reader, node));
    fields.finish(reader);
    classes.map(Count::Responses)
}

fn responses(reader: &mut Reader, node: &Node) -> Option<Vec<StatusClass>> {
    let nodes = match &node.value {
        Value::List(nodes) if !nodes.is_empty() => nodes.as_slice(),
        Value::Scalar { .. } => std::slice::from_ref(node),
        _ => {
            reader.report.say(
                node.place,
                format!("`responses` must have statuses, found {}", found(node)),
                "write them in brackets: `[401, 5xx]`",
            );
            return None;
        }
    };
    let classes: Vec<StatusClass> = nodes
        .iter()
        .filter_map(|node| reader.parse(node, "responses", words::status_class))
        .collect();
    (classes.len() == nodes.len()).then_some(classes)
}
