//! The fields of a limit that say whether its word counts, what happens when it has decided, and when it could not.
//!
//! Must not know: how any of it is carried out.

use serde_json::{Value as Json, json};
use tollgate_core::Nanos;

use super::Reader;
use super::field::{Absent, Field, put};
use super::limit::LimitDraft;
use super::top::MODES;
use crate::attributes::Attribute;
use crate::model::{Consistency, OnStoreFailure, Penalty};
use crate::schema::{enumeration, of};
use crate::source::{At, SourceNode};
use crate::words::{self, Wrong, nearest, quoted};

const FAILURES: [(&str, OnStoreFailure); 3] = [
    ("local", OnStoreFailure::Local),
    ("open", OnStoreFailure::Open),
    ("closed", OnStoreFailure::Closed),
];

/// Whether a limit charges always: `request` or `always`.
const CHARGES: [(&str, bool); 2] = [("request", false), ("always", true)];

/// Whether its word counts and for whom, what happens when it has decided, and when it could not.
pub(super) const ACTIONS: [Field<LimitDraft>; 10] = [
    Field::new(
        "mode",
        Absent::Default("enforce"),
        "`enforce` (default), `shadow` (count and report only) or `off`.",
        || of("mode"),
        |reader, node, name, limit| put(&mut limit.rule.mode, reader.word(node, name, &MODES)),
    ),
    Field::new(
        "enforce",
        Absent::Default("100%"),
        "The share of keys that it is enforced for; the others are shadowed.",
        || of("percent"),
        |reader, node, name, limit| {
            let share = reader.parse(node, name, words::percent);
            put(&mut limit.rule.enforce, share);
        },
    ),
    Field::new(
        "wait",
        Absent::Nothing,
        "A denial that would be over sooner than this becomes a wait.",
        || of("duration"),
        |reader, node, name, limit| {
            let wait = reader.parse(node, name, words::duration);
            limit.rule.wait = wait.map(|wait| At::new(wait, node.place));
        },
    ),
    Field::new(
        "penalty",
        Absent::Default("none"),
        "What a denial costs: `none` (default), `count`, or `block 10m`.",
        penalty_schema,
        |reader, node, _, limit| {
            let penalty = penalty(reader, node).unwrap_or_default();
            limit.rule.penalty = At::new(penalty, node.place);
        },
    ),
    Field::new(
        "charge",
        Absent::Default("request"),
        "`always`: never denies and charges into debt down to the overdraft.",
        || enumeration(&CHARGES),
        |reader, node, name, limit| {
            put(
                &mut limit.rule.charge_always,
                reader.word(node, name, &CHARGES),
            );
        },
    ),
    Field::new(
        "on_store_failure",
        Absent::Default("local"),
        "While the shared store does not answer: `local` (default, a share of the quota), `open` or `closed`.",
        || enumeration(&FAILURES),
        |reader, node, name, limit| {
            let failure = reader.word(node, name, &FAILURES);
            put(&mut limit.rule.on_store_failure, failure);
        },
    ),
    Field::new(
        "consistency",
        Absent::Default("exact"),
        "How exactly a fleet shares the quota: `exact` (default), `leased`, or `async 1s`.",
        consistency_schema,
        |reader, node, _, limit| {
            let consistency = consistency(reader, node).unwrap_or_default();
            limit.rule.consistency = At::new(consistency, node.place);
        },
    ),
    Field::new(
        "colocate",
        Absent::Nothing,
        "Limits with the same attribute here live in one slot of a cluster.",
        || of("attribute"),
        |reader, node, name, limit| limit.rule.colocate = colocate(reader, node, name),
    ),
    Field::new(
        "status",
        Absent::Default("429"),
        "The status of a denial (default 429).",
        || of("status"),
        |reader, node, _, limit| put(&mut limit.rule.status, reader.status(node)),
    ),
    Field::new(
        "message",
        Absent::Nothing,
        "The message of a denial.",
        || json!({ "type": "string" }),
        |reader, node, _, limit| limit.rule.message = reader.message(node),
    ),
];

/// The schema of `penalty`.
fn penalty_schema() -> Json {
    json!({
        "type": "string",
        "pattern": "^\\s*(none|count|block\\s.+)\\s*$",
        "examples": ["none", "count", "block 10m"],
    })
}

/// `none`, `count`, or `block 10m`.
fn penalty(reader: &mut Reader, node: &SourceNode) -> Option<Penalty> {
    reader.parse(node, "penalty", |text| match split(text) {
        ("none", "") => Ok(Penalty::None),
        ("count", "") => Ok(Penalty::Count),
        ("block", span) => with_span("block", span, "10m").map(Penalty::Block),
        _ => Err(unknown(
            text,
            &["none", "count", "block"],
            "it may be `none`, `count` or `block 10m`",
        )),
    })
}

/// The schema of `consistency`.
fn consistency_schema() -> Json {
    json!({
        "type": "string",
        "pattern": "^\\s*(exact|leased|async\\s.+)\\s*$",
        "examples": ["exact", "leased", "async 1s"],
    })
}

/// `exact`, `leased`, or `async 1s`.
fn consistency(reader: &mut Reader, node: &SourceNode) -> Option<Consistency> {
    reader.parse(node, "consistency", |text| match split(text) {
        ("exact", "") => Ok(Consistency::Exact),
        ("leased", "") => Ok(Consistency::Leased),
        ("async", span) => with_span("async", span, "1s").map(Consistency::Async),
        _ => Err(unknown(
            text,
            &["exact", "leased", "async"],
            "it may be `exact`, `leased` or `async 1s`",
        )),
    })
}

fn colocate(reader: &mut Reader, node: &SourceNode, name: &str) -> Option<At<Attribute>> {
    let attribute = reader.attribute(node, name)?;
    if attribute.value == Attribute::Path {
        reader.report.say(
            node.place,
            "`colocate` cannot be the raw `path`",
            "name an attribute of the key",
        );
    }
    Some(attribute)
}

fn split(text: &str) -> (&str, &str) {
    let (word, rest) = text.trim().split_once(' ').unwrap_or((text.trim(), ""));
    (word, rest.trim())
}

fn with_span(word: &str, span: &str, example: &str) -> Result<Nanos, Wrong> {
    if span.is_empty() {
        return Err(Wrong::with(
            format!("`{word}` does not say how long"),
            format!("write `{word} {example}`"),
        ));
    }
    words::duration(span)
}

fn unknown(text: &str, known: &[&str], help: &str) -> Wrong {
    let (word, rest) = split(text);
    match nearest(word, known.iter().copied()) {
        Some(meant) if meant != word => {
            let meant = format!("{meant} {rest}");
            Wrong::with(
                format!("it cannot be {}", quoted(text)),
                format!("did you mean {}?", quoted(meant.trim())),
            )
        }
        _ => Wrong::with(format!("it cannot be {}", quoted(text)), help),
    }
}
