//! Reads the expectations of a step.
//!
//! Must not know: engines, how expectations are compared.

use tollgate_engine::DenialReason;
use tollgate_policy::read::{TreeReader, describe_node};
use tollgate_policy::source::{Located, SourceNode, SourceValue};

use super::model::{Expectations, ExpectedDivergence, ExpectedRetry, ExpectedShadowDenials};
use super::read::{as_list, open_fields, parse_offset, read_name, read_number, with_location};

/// The fields of `expect`. A step that has one of them outside `expect` gets a hint.
pub(super) const EXPECT_FIELDS: [&str; 13] = [
    "allowed",
    "denied",
    "waits",
    "limit",
    "level",
    "reason",
    "status",
    "message",
    "retry_after",
    "remaining",
    "matched",
    "shadow_denied",
    "candidates",
];

/// Reads the expectations of a step that sends `send` requests.
pub(super) fn read_expectations(
    reader: &mut TreeReader,
    node: &SourceNode,
    send: u64,
) -> Expectations {
    let mut expect = Expectations::default();
    if !matches!(node.value, SourceValue::Map(_)) {
        match reader.keyword(node, "expect", &[("allowed", true), ("denied", false)]) {
            Some(true) => expect.allowed = Some(Located::new(send, node.location)),
            Some(false) => expect.denied = Some(Located::new(send, node.location)),
            None => {}
        }
        return expect;
    }
    let Some(mut fields) = open_fields(reader, node, "`expect`") else {
        return expect;
    };
    let mut up_to = |reader: &mut TreeReader, name, most| {
        let node = fields.take(reader, name)?;
        read_number(reader, node, name, most)
    };
    expect.allowed = up_to(reader, "allowed", u64::MAX);
    expect.denied = up_to(reader, "denied", u64::MAX);
    expect.status = up_to(reader, "status", 599);
    let mut text = |reader: &mut TreeReader, name| {
        let node = fields.take(reader, name)?;
        read_name(reader, node, name)
    };
    expect.limit = text(reader, "limit");
    expect.level = text(reader, "level");
    expect.message = text(reader, "message");
    expect.reason = fields.take(reader, "reason").and_then(|node| {
        let words = DenialReason::ALL.map(|reason| (reason.as_str(), reason.as_str()));
        with_location(node, reader.keyword(node, "reason", &words))
    });
    expect.retry_after = fields.take(reader, "retry_after").and_then(|node| {
        let retry = reader.parse(node, "retry_after", |text| match text {
            "never" => Ok(ExpectedRetry::Never),
            _ => parse_offset(text).map(ExpectedRetry::After),
        });
        with_location(node, retry)
    });
    expect.waits = fields.find("waits").map(|node| {
        let waits = as_list(node).iter();
        let waits = waits.filter_map(|node| reader.parse(node, "waits", parse_offset));
        Located::new(waits.collect(), node.location)
    });
    if let Some(node) = fields.take(reader, "remaining") {
        expect.remaining = read_counts_by_name(reader, node, "remaining");
    }
    expect.matched = fields.find("matched").map(|node| {
        let names = as_list(node).iter();
        let names = names.filter_map(|node| read_name(reader, node, "matched"));
        Located::new(names.collect(), node.location)
    });
    expect.shadow_denied = fields.take(reader, "shadow_denied").and_then(|node| {
        let shadow = match node.value {
            SourceValue::Map(_) => {
                ExpectedShadowDenials::By(read_counts_by_name(reader, node, "shadow_denied"))
            }
            _ => ExpectedShadowDenials::Any(reader.number(node, "shadow_denied", 0, u64::MAX)?),
        };
        Some(Located::new(shadow, node.location))
    });
    if let Some(node) = fields.take(reader, "candidates") {
        expect.candidates = read_candidates(reader, node);
    }
    fields.finish(reader);
    check_sum(reader, &expect, send);
    expect
}

/// Checks that `allowed` and `denied` add up to the number of requests.
fn check_sum(reader: &mut TreeReader, expect: &Expectations, send: u64) {
    let parts = [&expect.allowed, &expect.denied];
    let Some(first) = parts.into_iter().flatten().next() else {
        return;
    };
    let sum = parts
        .into_iter()
        .flatten()
        .fold(0_u64, |sum, part| sum.saturating_add(part.value));
    let is_whole = parts.iter().all(|part| part.is_some());
    if sum > send || (is_whole && sum < send) {
        reader.report(
            first.location,
            format!("{sum} decisions are expected of {send} requests"),
            "every request is either allowed or denied",
        );
    }
}

/// Reads the expected divergence of candidates, by limit name.
fn read_candidates(
    reader: &mut TreeReader,
    node: &SourceNode,
) -> Vec<(Located<Box<str>>, ExpectedDivergence)> {
    let SourceValue::Map(entries) = &node.value else {
        reader.report(
            node.location,
            format!("`candidates` must be a map, found {}", describe_node(node)),
            "write `candidates: { LIMIT: { would_deny: 3, would_allow: 0 } }`",
        );
        return Vec::new();
    };
    let mut all = Vec::new();
    for entry in entries {
        let Some(mut fields) = open_fields(reader, &entry.value, "a candidate") else {
            continue;
        };
        let mut count = |reader: &mut TreeReader, name| {
            let node = fields.take(reader, name)?;
            read_number(reader, node, name, u64::MAX)
        };
        let divergence = ExpectedDivergence {
            would_deny: count(reader, "would_deny"),
            would_allow: count(reader, "would_allow"),
        };
        fields.finish(reader);
        all.push((entry.name.clone(), divergence));
    }
    all
}

/// Reads numbers by limit name.
fn read_counts_by_name(
    reader: &mut TreeReader,
    node: &SourceNode,
    field: &'static str,
) -> Vec<(Located<Box<str>>, Located<u64>)> {
    let SourceValue::Map(entries) = &node.value else {
        let message = format!("`{field}` must be a map, found {}", describe_node(node));
        reader.report(
            node.location,
            message,
            format!("write `{field}: {{ LIMIT: 3 }}`"),
        );
        return Vec::new();
    };
    entries
        .iter()
        .filter_map(|entry| {
            let number = read_number(reader, &entry.value, field, u64::MAX)?;
            Some((entry.name.clone(), number))
        })
        .collect()
}
