//! What a step expects, read.
//!
//! Must not know: engines, how anything is compared.

use tollgate_engine::Reason;
use tollgate_policy::source::{At, Node, Value};

use super::fields::{Reader, found};
use super::model::{Divergence, Expect, Retry, Shadow};
use super::read::{instant, named};

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
pub(super) fn expect(reader: &mut Reader, node: &Node, send: u64) -> Expect {
    let mut expect = Expect::default();
    if !matches!(node.value, Value::Map(_)) {
        let word = reader.word(node, "expect", &["allowed", "denied"]);
        match word.map(|word| word.value) {
            Some("allowed") => expect.allowed = Some(At::new(send, node.place)),
            Some(_) => expect.denied = Some(At::new(send, node.place)),
            None => {}
        }
        return expect;
    }
    let Some(mut fields) = reader.fields(node, "`expect`") else {
        return expect;
    };
    let mut number = |reader: &mut Reader, name, most| {
        let node = fields.take(name)?;
        reader.number(node, name, most)
    };
    expect.allowed = number(reader, "allowed", u64::MAX);
    expect.denied = number(reader, "denied", u64::MAX);
    expect.status = number(reader, "status", 599);
    let mut text = |reader: &mut Reader, name| {
        let node = fields.take(name)?;
        named(reader, node, name)
    };
    expect.limit = text(reader, "limit");
    expect.level = text(reader, "level");
    expect.message = text(reader, "message");
    expect.reason = fields
        .take("reason")
        .and_then(|node| reader.word(node, "reason", &Reason::ALL.map(Reason::word)));
    expect.retry_after = fields.take("retry_after").and_then(|node| {
        reader.parse(node, "retry_after", |text| match text {
            "never" => Ok(Retry::Never),
            _ => instant(text).map(Retry::After),
        })
    });
    expect.waits = fields.take("waits").map(|node| {
        let waits = reader.list(node).iter();
        let waits = waits.filter_map(|node| reader.parse(node, "waits", instant));
        At::new(waits.map(|wait| wait.value).collect(), node.place)
    });
    if let Some(node) = fields.take("remaining") {
        expect.remaining = by_name(reader, node, "remaining");
    }
    expect.matched = fields.take("matched").map(|node| {
        let names = reader.list(node).iter();
        let names = names.filter_map(|node| named(reader, node, "matched"));
        At::new(names.collect(), node.place)
    });
    expect.shadow_denied = fields.take("shadow_denied").and_then(|node| {
        let shadow = match node.value {
            Value::Map(_) => Shadow::By(by_name(reader, node, "shadow_denied")),
            _ => Shadow::Any(reader.number(node, "shadow_denied", u64::MAX)?.value),
        };
        Some(At::new(shadow, node.place))
    });
    if let Some(node) = fields.take("candidates") {
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
fn candidates(reader: &mut Reader, node: &Node) -> Vec<(At<Box<str>>, Divergence)> {
    let Value::Map(entries) = &node.value else {
        reader.say(
            node.place,
            format!("`candidates` must be a map, found {}", found(node)),
            "write `candidates: { LIMIT: { would_deny: 3, would_allow: 0 } }`",
        );
        return Vec::new();
    };
    let mut all = Vec::new();
    for entry in entries {
        let Some(mut fields) = reader.fields(&entry.value, "a candidate") else {
            continue;
        };
        let mut number = |reader: &mut Reader, name| {
            let node = fields.take(name)?;
            reader.number(node, name, u64::MAX)
        };
        let divergence = Divergence {
            would_deny: number(reader, "would_deny"),
            would_allow: number(reader, "would_allow"),
        };
        fields.finish(reader);
        all.push((entry.name.clone(), divergence));
    }
    all
}

/// Numbers by name.
fn by_name(reader: &mut Reader, node: &Node, field: &'static str) -> Vec<(At<Box<str>>, At<u64>)> {
    let Value::Map(entries) = &node.value else {
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
            let number = reader.number(&entry.value, field, u64::MAX)?;
            Some((entry.name.clone(), number))
        })
        .collect()
}
