//! Reads the fields of a limit about enforcement, denials and store failures.
//!
//! Must not know: how the engine carries it out.

use serde_json::{Value as Json, json};
use tollgate_core::Nanos;

use super::TreeReader;
use super::field_spec::{Field, FieldDefault, set_if_some};
use super::limit::LimitDraft;
use super::policy::MODES;
use crate::attributes::Attribute;
use crate::grammar::{self, GrammarError, nearest_name, quote};
use crate::model::{BlockSteps, Consistency, OnStoreFailure, Penalty, WhenFull};
use crate::schema::{definition_ref, enumeration};
use crate::source::{Located, SourceNode};

const FAILURES: [(&str, OnStoreFailure); 3] = [
    ("local", OnStoreFailure::Local),
    ("open", OnStoreFailure::Open),
    ("closed", OnStoreFailure::Closed),
];

const WHEN_FULL: [(&str, WhenFull); 2] =
    [("forget", WhenFull::Forget), ("refuse", WhenFull::Refuse)];

/// Whether a limit always charges: `request` or `always`.
const CHARGE_MODES: [(&str, bool); 2] = [("request", false), ("always", true)];

/// The fields about enforcement, denials and store failures.
pub(super) const ACTIONS: [Field<LimitDraft>; 11] = [
    Field::new(
        "mode",
        FieldDefault::Value("enforce"),
        "`enforce` (default), `shadow` (count and report only) or `off`.",
        || definition_ref("mode"),
        |reader, node, name, limit| {
            set_if_some(&mut limit.rule.mode, reader.keyword(node, name, &MODES));
        },
    ),
    Field::new(
        "enforce",
        FieldDefault::Value("100%"),
        "The percentage of keys that it is enforced for; other keys are in shadow mode.",
        || definition_ref("percent"),
        |reader, node, name, limit| {
            let share = reader.parse(node, name, grammar::parse_percent);
            set_if_some(&mut limit.rule.enforce, share);
        },
    ),
    Field::new(
        "wait",
        FieldDefault::None,
        "A request that would be admitted within this time waits instead of being denied.",
        || definition_ref("duration"),
        |reader, node, name, limit| {
            let wait = reader.parse(node, name, grammar::parse_duration);
            limit.rule.wait = wait.map(|wait| Located::new(wait, node.location));
        },
    ),
    Field::new(
        "penalty",
        FieldDefault::Value("none"),
        "What a denial costs: `none` (default), `count`, `block 10m`, or blocks that grow: `block 10m, 1h, until lifted, forget 7d`.",
        penalty_schema,
        |reader, node, _, limit| {
            let penalty = read_penalty(reader, node).unwrap_or_default();
            limit.rule.penalty = Located::new(penalty, node.location);
        },
    ),
    Field::new(
        "charge",
        FieldDefault::Value("request"),
        "`always`: never denies; charges may go into debt down to `overdraft`.",
        || enumeration(&CHARGE_MODES),
        |reader, node, name, limit| {
            set_if_some(
                &mut limit.rule.charge_always,
                reader.keyword(node, name, &CHARGE_MODES),
            );
        },
    ),
    Field::new(
        "on_store_failure",
        FieldDefault::Value("local"),
        "While the shared store does not answer: `local` (default, a fallback quota on each node), `open` or `closed`.",
        || enumeration(&FAILURES),
        |reader, node, name, limit| {
            let failure = reader.keyword(node, name, &FAILURES);
            set_if_some(&mut limit.rule.on_store_failure, failure);
        },
    ),
    Field::new(
        "when_full",
        FieldDefault::Description("`forget` if clients choose a part of the key, else `refuse`"),
        "When memory is full of other keys: `refuse` (503 rather than more than the limit) or `forget` (start fresh).",
        || enumeration(&WHEN_FULL),
        |reader, node, name, limit| limit.rule.when_full = reader.keyword(node, name, &WHEN_FULL),
    ),
    Field::new(
        "consistency",
        FieldDefault::Value("exact"),
        "How exactly a fleet shares the quota: `exact` (default), `leased`, or `async 1s`.",
        consistency_schema,
        |reader, node, _, limit| {
            let consistency = read_consistency(reader, node).unwrap_or_default();
            limit.rule.consistency = Located::new(consistency, node.location);
        },
    ),
    Field::new(
        "colocate",
        FieldDefault::None,
        "Limits with the same `colocate` attribute keep their state in one cluster slot.",
        || definition_ref("attribute"),
        |reader, node, name, limit| limit.rule.colocate = read_colocate(reader, node, name),
    ),
    Field::new(
        "status",
        FieldDefault::Value("429"),
        "The status of a denial (default 429).",
        || definition_ref("status"),
        |reader, node, _, limit| set_if_some(&mut limit.rule.status, reader.status(node)),
    ),
    Field::new(
        "message",
        FieldDefault::None,
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
        "examples": ["none", "count", "block 10m", "block 10m, 1h, 24h", "block 1h, until lifted, forget 30d"],
    })
}

/// `10m`, or a list of lengths that grow: `10m, 1h, until lifted, forget 7d`.
fn parse_block(text: &str) -> Result<Penalty, GrammarError> {
    let is_list = text.contains(',') || ["until", "forget"].contains(&split_keyword(text).0);
    if !is_list {
        return parse_keyword_duration("block", text, "10m").map(Penalty::Block);
    }
    let help = "write lengths that grow, as in `block 10m, 1h, 24h, forget 7d` or `block 1h, until lifted`";
    let (mut lengths, mut forget) = (Vec::new(), None);
    for part in text.split(',').map(str::trim) {
        let invalid =
            |reason: &str| GrammarError::with_help(format!("{}: {reason}", quote(part)), help);
        if forget.is_some() {
            return Err(invalid("`forget` must be last"));
        }
        match split_keyword(part) {
            ("forget", span) => forget = Some(parse_keyword_duration("forget", span, "7d")?),
            ("until", "lifted") => lengths.push(BlockSteps::UNTIL_LIFTED),
            _ => lengths.push(grammar::parse_duration(part)?),
        }
        if lengths.len() > BlockSteps::MAX {
            return Err(invalid("a penalty has at most 8 lengths"));
        }
        if let [.., before, last] = lengths.as_slice()
            && before >= last
        {
            return Err(invalid("it is not longer than the length before"));
        }
    }
    // While a key is blocked for the longest time that ends by itself, at most one offence is forgotten.
    let finite = lengths
        .iter()
        .filter(|length| **length < BlockSteps::UNTIL_LIFTED);
    let longest = finite.max().copied().unwrap_or(Nanos::DAY);
    let forget = forget.unwrap_or(longest.max(Nanos::DAY));
    BlockSteps::new(&lengths, forget)
        .map(Penalty::Escalate)
        .ok_or_else(|| GrammarError::with_help("`block` has no length", help))
}

/// `none`, `count`, or `block 10m`.
fn read_penalty(reader: &mut TreeReader, node: &SourceNode) -> Option<Penalty> {
    reader.parse(node, "penalty", |text| match split_keyword(text) {
        ("none", "") => Ok(Penalty::None),
        ("count", "") => Ok(Penalty::Count),
        ("block", lengths) => parse_block(lengths),
        _ => Err(unknown_keyword(
            text,
            &["none", "count", "block"],
            "write `none`, `count` or `block 10m`",
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
fn read_consistency(reader: &mut TreeReader, node: &SourceNode) -> Option<Consistency> {
    reader.parse(node, "consistency", |text| match split_keyword(text) {
        ("exact", "") => Ok(Consistency::Exact),
        ("leased", "") => Ok(Consistency::Leased),
        ("async", span) => parse_keyword_duration("async", span, "1s").map(Consistency::Async),
        _ => Err(unknown_keyword(
            text,
            &["exact", "leased", "async"],
            "write `exact`, `leased` or `async 1s`",
        )),
    })
}

fn read_colocate(
    reader: &mut TreeReader,
    node: &SourceNode,
    name: &str,
) -> Option<Located<Attribute>> {
    let attribute = reader.attribute(node, name)?;
    if attribute.value == Attribute::Path {
        reader.diagnostics.add(
            node.location,
            "`colocate` cannot be the raw `path`",
            "use an attribute of the key",
        );
    }
    Some(attribute)
}

fn split_keyword(text: &str) -> (&str, &str) {
    let (keyword, rest) = text.trim().split_once(' ').unwrap_or((text.trim(), ""));
    (keyword, rest.trim())
}

fn parse_keyword_duration(keyword: &str, span: &str, example: &str) -> Result<Nanos, GrammarError> {
    if span.is_empty() {
        return Err(GrammarError::with_help(
            format!("`{keyword}` has no duration"),
            format!("write `{keyword} {example}`"),
        ));
    }
    grammar::parse_duration(span)
}

fn unknown_keyword(text: &str, known: &[&str], help: &str) -> GrammarError {
    let (keyword, rest) = split_keyword(text);
    match nearest_name(keyword, known.iter().copied()) {
        Some(meant) if meant != keyword => {
            let meant = format!("{meant} {rest}");
            GrammarError::with_help(
                format!("unknown value {}", quote(text)),
                format!("did you mean {}?", quote(meant.trim())),
            )
        }
        _ => GrammarError::with_help(format!("unknown value {}", quote(text)), help),
    }
}
