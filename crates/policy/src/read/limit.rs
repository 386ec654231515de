//! One entry of `limits`.
//!
//! Must not know: other limits.

use super::action::{CHARGES, FAILURES, consistency, penalty};
use super::cost::{cost, count};
use super::fields::Fields;
use super::key::{MISSING, key};
use super::matching::conditions;
use super::quota::{Kind, Terms, quota, terms};
use super::top::MODES;
use super::{Reader, tiers};
use crate::attributes::Attribute;
use crate::model::{Algorithm, Amount, LimitRule, Missing, QuotaSpec};
use crate::source::{At, Node};
use crate::words;

/// The largest number that a limit may be given; those above are for limits that give none.
const MOST_ID: u64 = 60_000;

/// Reads one limit. Everything in it is looked at, even if its name or quota is wrong.
pub(super) fn limit(reader: &mut Reader, node: &Node) -> Option<LimitRule> {
    let mut fields = Fields::open(reader, node, "a limit", "{ name: everyone, rate: 100/s }")?;
    let name = fields
        .require(reader, "name", "per-user")
        .and_then(|node| reader.name(node, "name"));
    if let Some(name) = &name {
        fields.of = format!("limit `{}`", name.value);
    }
    let mut rule = blank();
    subject(reader, &mut fields, &mut rule);
    let missing = default_missing(reader, &mut fields);
    if let Some(node) = fields.take(reader, "key") {
        rule.key = key(reader, node, missing);
    }
    let terms = terms(reader, &mut fields, None);
    let quota = if fields.has("levels") {
        hierarchy(reader, &mut fields, terms, missing, &mut rule)
    } else {
        quota(reader, &mut fields, terms, None, Kind::Own)
    };
    // Where the quota is wrong, what depends on it is read against a blank one: its own mistakes still count.
    let own = quota
        .as_ref()
        .map_or_else(|| rule.quota.value.clone(), |quota| quota.value.clone());
    beside(reader, &mut fields, &mut rule, &own);
    if let Some(node) = fields.take(reader, "cost") {
        rule.cost = cost(reader, node, terms.unit).unwrap_or_default();
    }
    if let Some(node) = fields.take(reader, "count") {
        rule.count = count(reader, node).unwrap_or_default();
    }
    if let Some(node) = fields.take(reader, "overdraft") {
        let units = reader.parse(node, "overdraft", |text| words::amount(text, terms.unit));
        rule.overdraft = units.unwrap_or_default();
    }
    rollout(reader, &mut fields, &mut rule);
    actions(reader, &mut fields, &mut rule);
    fields.finish(reader);
    rule.name = name?;
    rule.quota = quota?;
    Some(rule)
}

/// A limit of which nothing is said.
fn blank() -> LimitRule {
    LimitRule::new(Box::from(""), At::from(none_of_its_own()))
}

/// The quota of a limit whose levels have theirs: unlimited in itself.
fn none_of_its_own() -> QuotaSpec {
    QuotaSpec {
        algorithm: Algorithm::default(),
        amount: Amount::Unlimited,
        burst: None,
        unit: tollgate_core::Unit::default(),
        utc_offset_minutes: 0,
    }
}

/// What it is called and which requests it is about.
fn subject(reader: &mut Reader, fields: &mut Fields<'_>, rule: &mut LimitRule) {
    if let Some(node) = fields.take(reader, "id") {
        let id = reader.number(node, "id", 1, MOST_ID);
        rule.id = id
            .and_then(|id| u16::try_from(id).ok())
            .map(|id| At::new(id, node.place));
    }
    if let Some(node) = fields.take(reader, "match") {
        rule.matching = conditions(reader, node).unwrap_or_default();
    }
    if let Some(node) = fields.take(reader, "group") {
        rule.group = reader.name(node, "group");
    }
    if let Some(node) = fields.take(reader, "bucket") {
        rule.bucket = reader.name(node, "bucket");
    }
}

fn default_missing(reader: &mut Reader, fields: &mut Fields<'_>) -> Missing {
    let Some(node) = fields.take(reader, "missing") else {
        return Missing::default();
    };
    let missing = reader.word(node, "missing", &MISSING).unwrap_or_default();
    if !fields.has("key") && !fields.has("levels") {
        reader.report.say(
            node.place,
            format!(
                "{}: `missing` is about attributes of the key, and there is no `key`",
                fields.of
            ),
            "add a `key`, or leave `missing` out",
        );
    }
    missing
}

/// `levels`, which have keys and quotas of their own.
fn hierarchy(
    reader: &mut Reader,
    fields: &mut Fields<'_>,
    terms: Terms,
    missing: Missing,
    rule: &mut LimitRule,
) -> Option<At<QuotaSpec>> {
    let node = fields.take(reader, "levels")?;
    rule.levels = tiers::levels(reader, node, terms, missing);
    for name in [
        "key",
        "rate",
        "concurrency",
        "lease",
        "burst",
        "tiers",
        "overrides",
        "distinct",
        "local",
        "candidate",
        "bucket",
    ] {
        if let Some(node) = fields.take(reader, name) {
            reader.report.say(
                node.place,
                format!("{}: `{name}` cannot stand beside `levels`", fields.of),
                if ["key", "rate", "concurrency", "lease", "burst"].contains(&name) {
                    format!("give each level its own `{name}`")
                } else {
                    format!("leave `{name}` out, or write a limit of its own for it")
                },
            );
        }
    }
    Some(At::new(none_of_its_own(), node.place))
}

/// Quotas beside the limit's own.
fn beside(reader: &mut Reader, fields: &mut Fields<'_>, rule: &mut LimitRule, own: &QuotaSpec) {
    if fields.has("levels") {
        return;
    }
    // Asked for although only a hierarchy has them, so that they are known names.
    if let Some(node) = fields.take(reader, "tiers") {
        rule.tiers = tiers::tiers(reader, node, own);
    }
    if let Some(node) = fields.take(reader, "overrides") {
        rule.overrides = tiers::overrides(reader, node, own);
    }
    if let Some(node) = fields.take(reader, "local") {
        rule.local = tiers::local(reader, node, own);
    }
    if let Some(node) = fields.take(reader, "candidate") {
        rule.candidate = tiers::candidate(reader, node, own);
    }
    if let Some(node) = fields.take(reader, "distinct") {
        rule.distinct = reader.attribute(node, "distinct");
    }
    fields.take(reader, "levels");
}

/// Whether its word counts, and for whom.
fn rollout(reader: &mut Reader, fields: &mut Fields<'_>, rule: &mut LimitRule) {
    if let Some(node) = fields.take(reader, "mode") {
        rule.mode = reader.word(node, "mode", &MODES).unwrap_or_default();
    }
    if let Some(node) = fields.take(reader, "enforce") {
        rule.enforce = reader
            .parse(node, "enforce", words::percent)
            .unwrap_or_default();
    }
}

/// What happens when it has decided, and when it could not.
fn actions(reader: &mut Reader, fields: &mut Fields<'_>, rule: &mut LimitRule) {
    if let Some(node) = fields.take(reader, "wait") {
        rule.wait = reader
            .parse(node, "wait", words::duration)
            .map(|wait| At::new(wait, node.place));
    }
    if let Some(node) = fields.take(reader, "penalty") {
        let value = penalty(reader, node).unwrap_or_default();
        rule.penalty = At::new(value, node.place);
    }
    if let Some(node) = fields.take(reader, "charge") {
        rule.charge_always = reader.word(node, "charge", &CHARGES).unwrap_or_default();
    }
    if let Some(node) = fields.take(reader, "on_store_failure") {
        rule.on_store_failure = reader
            .word(node, "on_store_failure", &FAILURES)
            .unwrap_or_default();
    }
    if let Some(node) = fields.take(reader, "consistency") {
        let value = consistency(reader, node).unwrap_or_default();
        rule.consistency = At::new(value, node.place);
    }
    if let Some(node) = fields.take(reader, "colocate") {
        rule.colocate = reader.attribute(node, "colocate");
        if matches!(&rule.colocate, Some(attribute) if attribute.value == Attribute::Path) {
            reader.report.say(
                node.place,
                "`colocate` cannot be the raw `path`",
                "name an attribute of the key",
            );
        }
    }
    if let Some(node) = fields.take(reader, "status") {
        rule.status = reader.status(node).unwrap_or(rule.status);
    }
    if let Some(node) = fields.take(reader, "message") {
        rule.message = reader.message(node);
    }
}
