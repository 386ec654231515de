//! What a step expects, read.
//!
//! Must not know: engines, how anything is compared.

use tollgate_engine::DenialReason;
use tollgate_policy::read::{Reader, found};
use tollgate_policy::source::{At, SourceNode, SourceValue};

use super::model::{Divergence, Expect, Retry, Shadow};
use super::read::{fields, instant, named, number, one_or_more, placed};

/// What stands in `expect`, and not beside it.
pub(super) const NAMES: [&str; 13] = [
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

/// Reads what is expected of so many requests.
pub(super) fn expect(reader: &mut Reader, node: &SourceNode, send: u64) -> Expect {
    let mut expect = Expect::default();
    if !matches!(node.value, SourceValue::Map(_)) {
        match reader.word(node, "expect", &[("allowed", true), ("denied", false)]) {
            Some(true) => expect.allowed = Some(At::new(send, node.place)),
            Some(false) => expect.denied = Some(At::new(send, node.place)),
            None => {}
        }
        return expect;
    }
    let Some(mut fields) = fields(reader, node, "`expect`") else {
        return expect;
    };
    let mut up_to = |reader: &mut Reader, name, most| {
        let node = fields.take(reader, name)?;
        number(reader, node, name, most)
    };
    expect.allowed = up_to(reader, "allowed", u64::MAX);
    expect.denied = up_to(reader, "denied", u64::MAX);
    expect.status = up_to(reader, "status", 599);
    let mut text = |reader: &mut Reader, name| {
        let node = fields.take(reader, name)?;
        named(reader, node, name)
    };
    expect.limit = text(reader, "limit");
    expect.level = text(reader, "level");
    expect.message = text(reader, "message");
    expect.reason = fields.take(reader, "reason").and_then(|node| {
        let words = DenialReason::ALL.map(|reason| (reason.word(), reason.word()));
        placed(node, reader.word(node, "reason", &words))
    });
    expect.retry_after = fields.take(reader, "retry_after").and_then(|node| {
        let retry = reader.parse(node, "retry_after", |text| match text {
            "never" => Ok(Retry::Never),
            _ => instant(text).map(Retry::After),
        });
        placed(node, retry)
    });
    expect.waits = fields.find("waits").map(|node| {
        let waits = one_or_more(node).iter();
        let waits = waits.filter_map(|node| reader.parse(node, "waits", instant));
        At::new(waits.collect(), node.place)
    });
    if let Some(node) = fields.take(reader, "remaining") {
        expect.remaining = by_name(reader, node, "remaining");
    }
    expect.matched = fields.find("matched").map(|node| {
        let names = one_or_more(node).iter();
        let names = names.filter_map(|node| named(reader, node, "matched"));
        At::new(names.collect(), node.place)
    });
    expect.shadow_denied = fields.take(reader, "shadow_denied").and_then(|node| {
        let shadow = match node.value {
            SourceValue::Map(_) => Shadow::By(by_name(reader, node, "shadow_denied")),
            _ => Shadow::Any(reader.number(node, "shadow_denied", 0, u64::MAX)?),
        };
        Some(At::new(shadow, node.place))
    });
    if let Some(node) = fields.take(reader, "candidates") {
        expect.candidates = candidates(reader, node);
    }
    fields.finish(reader);
    check_sum(reader, &expect, send);
    expect
}

/// Whatever is not allowed is denied, so the two make up what is sent.
fn check_sum(reader: &mut Reader, expect: &Expect, send: u64) {
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
        reader.say(
            first.place,
            format!("{sum} cannot come of {send} that are sent"),
            "every request is either allowed or denied",
        );
    }
}

/// How often candidates differ, by the names of their limits.
fn candidates(reader: &mut Reader, node: &SourceNode) -> Vec<(At<Box<str>>, Divergence)> {
    let SourceValue::Map(entries) = &node.value else {
        reader.say(
            node.place,
            format!("`candidates` must be a map, found {}", found(node)),
            "write `candidates: { LIMIT: { would_deny: 3, would_allow: 0 } }`",
        );
        return Vec::new();
    };
    let mut all = Vec::new();
    for entry in entries {
        let Some(mut fields) = fields(reader, &entry.value, "a candidate") else {
            continue;
        };
        let mut count = |reader: &mut Reader, name| {
            let node = fields.take(reader, name)?;
            number(reader, node, name, u64::MAX)
        };
        let divergence = Divergence {
            would_deny: count(reader, "would_deny"),
            would_allow: count(reader, "would_allow"),
        };
        fields.finish(reader);
        all.push((entry.name.clone(), divergence));
    }
    all
}

/// Numbers by name.
fn by_name(
    reader: &mut Reader,
    node: &SourceNode,
    field: &'static str,
) -> Vec<(At<Box<str>>, At<u64>)> {
    let SourceValue::Map(entries) = &node.value else {
        let message = format!("`{field}` must be a map, found {}", found(node));
        reader.say(
            node.place,
            message,
            format!("write `{field}: {{ LIMIT: 3 }}`"),
        );
        return Vec::new();
    };
    entries
        .iter()
        .filter_map(|entry| {
            let number = number(reader, &entry.value, field, u64::MAX)?;
            Some((entry.name.clone(), number))
        })
        .collect()
}
