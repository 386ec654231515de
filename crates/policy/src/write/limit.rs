//! One limit as the fields of a file.
//!
//! Must not know: other limits.

use crate::model::{
    Consistency, Cost, Count, KeyPart, Level, LimitRule, Missing, OnStoreFailure, Penalty, Percent,
};

use super::out::{Fields, Out};
use super::{matching, mode, quota, words};

/// The status of a denial where a limit says none.
const STATUS: u16 = 429;

/// All fields of a limit that are no defaults.
pub(super) fn limit(limit: &LimitRule) -> Out {
    let mut fields = Fields::default();
    fields.add("name", Out::text(&limit.name.value));
    fields.some("id", limit.id.map(|id| Out::number(id.value)));
    if !limit.matching.conditions.is_empty() {
        fields.add("match", matching::conditions(&limit.matching));
    }
    whose_and_how_much(&mut fields, limit);
    what_is_counted(&mut fields, limit);
    what_happens_then(&mut fields, limit);
    fields.into()
}

fn whose_and_how_much(fields: &mut Fields, limit: &LimitRule) {
    let text = |text: &crate::model::At<Box<str>>| Out::text(&text.value);
    fields.some("group", limit.group.as_ref().map(text));
    fields.some("bucket", limit.bucket.as_ref().map(text));
    let own = &limit.quota.value;
    if limit.levels.is_empty() {
        key(fields, &limit.key);
        quota::own(fields, own);
    } else {
        fields.list("levels", limit.levels.iter().map(level));
    }
    let tiers = limit.tiers.as_ref();
    fields.some("tiers", tiers.map(|tiers| quota::tiers(tiers, own)));
    let overrides = limit.overrides.iter();
    fields.list(
        "overrides",
        overrides.map(|one| quota::overriding(one, own)),
    );
    for (name, other) in [("local", &limit.local), ("candidate", &limit.candidate)] {
        let other = other.as_ref();
        fields.some(name, other.map(|other| quota::beside(&other.value, own)));
    }
}

fn level(level: &Level) -> Out {
    let mut fields = Fields::default();
    fields.add("name", Out::text(&level.name.value));
    key(&mut fields, &level.key);
    quota::own(&mut fields, &level.quota.value);
    fields.into()
}

fn key(fields: &mut Fields, parts: &[KeyPart]) {
    if !parts.is_empty() {
        fields.add(
            "key",
            Out::one_or_list(parts.iter().map(key_part).collect()),
        );
    }
}

/// A part of a key by its name, or as a map where it is not as usual.
fn key_part(part: &KeyPart) -> Out {
    let attribute = Out::text(&part.attribute.value.to_string());
    let usual = KeyPart::plain(part.attribute.clone());
    if *part == usual {
        return attribute;
    }
    let mut fields = Fields::default();
    fields.add("attribute", attribute);
    for (name, set) in [("lower", part.lower), ("hash", part.hash)] {
        fields.some(name, set.then(|| Out::word("true")));
    }
    if part.v4_bits != usual.v4_bits {
        fields.add("v4", Out::number(part.v4_bits));
    }
    if part.v6_bits != usual.v6_bits {
        fields.add("v6", Out::number(part.v6_bits));
    }
    let missing = match part.missing {
        Missing::Shared => None,
        Missing::Skip => Some("skip"),
        Missing::Deny => Some("deny"),
    };
    fields.some("missing", missing.map(Out::word));
    fields.into()
}

fn what_is_counted(fields: &mut Fields, limit: &LimitRule) {
    if limit.cost != Cost::default() {
        fields.add("cost", cost(&limit.cost));
    }
    match &limit.count {
        Count::Requests => {}
        Count::Denials => fields.add("count", Out::word("denials")),
        Count::Responses(statuses) => {
            let mut count = Fields::default();
            let statuses = statuses.iter().map(Out::word).collect();
            count.add("responses", Out::List(statuses));
            fields.add("count", count.into());
        }
    }
    let distinct = limit.distinct.as_ref();
    fields.some(
        "distinct",
        distinct.map(|at| Out::text(&at.value.to_string())),
    );
}

fn cost(cost: &Cost) -> Out {
    let mut fields = Fields::default();
    match cost {
        Cost::Fixed(units) => return Out::number(*units),
        Cost::ByValue {
            attribute,
            values,
            otherwise,
        } => {
            fields.add("by", Out::text(&attribute.to_string()));
            for (value, units) in values {
                fields.add(value, Out::number(*units));
            }
            fields.add("otherwise", Out::number(*otherwise));
        }
        Cost::Attribute {
            attribute,
            at_least,
            at_most,
            otherwise,
        } => {
            fields.add("from", Out::text(&attribute.to_string()));
            fields.add("at_least", Out::number(*at_least));
            fields.add("at_most", Out::number(*at_most));
            fields.add("otherwise", Out::number(*otherwise));
        }
        Cost::Response {
            header,
            estimate,
            at_most,
        } => {
            fields.add("response", Out::text(header));
            fields.add("estimate", Out::number(*estimate));
            fields.add("at_most", Out::number(*at_most));
        }
    }
    fields.into()
}

fn what_happens_then(fields: &mut Fields, limit: &LimitRule) {
    fields.some("mode", mode(limit.mode));
    if limit.enforce != Percent::ALL {
        fields.add("enforce", Out::word(limit.enforce));
    }
    let wait = limit.wait.as_ref();
    fields.some("wait", wait.map(|at| Out::word(words::duration(at.value))));
    match limit.penalty.value {
        Penalty::None => {}
        Penalty::Count => fields.add("penalty", Out::word("count")),
        Penalty::Block(span) => {
            let block = format!("block {}", words::duration(span));
            fields.add("penalty", Out::word(block));
        }
    }
    fields.some("charge", limit.charge_always.then(|| Out::word("always")));
    if limit.overdraft != 0 {
        fields.add("overdraft", Out::number(limit.overdraft));
    }
    let failure = match limit.on_store_failure {
        OnStoreFailure::Local => None,
        OnStoreFailure::Open => Some("open"),
        OnStoreFailure::Closed => Some("closed"),
    };
    fields.some("on_store_failure", failure.map(Out::word));
    let consistency = match limit.consistency.value {
        Consistency::Exact => None,
        Consistency::Leased => Some("leased".to_owned()),
        Consistency::Async(span) => Some(format!("async {}", words::duration(span))),
    };
    fields.some("consistency", consistency.map(Out::word));
    let colocate = limit.colocate.as_ref();
    fields.some(
        "colocate",
        colocate.map(|at| Out::text(&at.value.to_string())),
    );
    if limit.status != STATUS {
        fields.add("status", Out::number(limit.status));
    }
    fields.some("message", limit.message.as_deref().map(Out::text));
}
