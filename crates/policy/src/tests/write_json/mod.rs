//! Writes a policy as JSON. Reading the text returns the same policy.
//!
//! Property tests of readers and of the schema generate a model and need its text. Must not know: how files are read.

mod gateway;
mod overload;
mod quota;
mod value;

use crate::attributes::Attribute;
use crate::model::{
    Consistency, Cost, Count, DenyRule, DuplicateRule, DuplicateSetting, GroupSelection,
    JwkMembers, JwtSettings, KeyPart, Level, LimitRule, Located, Match, Mode, OnMissing,
    OnStoreFailure, PathCase, PathParameters, PathSettings, Penalty, Percent, Period, Policy,
    QuotaSpec, RateSpec, Test, WhenFull,
};
use quota::{alternative_quota, duration, quota, quota_override, shares, tiers};
use value::{Json, list, map, number, text, texts, unless_default};

/// The text of a policy.
pub(super) fn policy(policy: &Policy) -> String {
    let groups = policy.groups.iter().map(|group| {
        let apply = match group.apply {
            GroupSelection::All => "all",
            GroupSelection::Narrowest => "narrowest",
        };
        let group_fields = map(vec![("apply", Some(text(apply)))]);
        (group.name.value.to_string(), group_fields)
    });
    let exempt = policy.exempt.iter();
    let exempt = exempt.map(|one| map(vec![("match", Some(conditions(one)))]));
    let nodes = policy.nodes.map(|n| map(vec![("nodes", Some(number(n)))]));
    map(vec![
        ("mode", mode(policy.mode)),
        ("fleet", nodes),
        (
            "divergence_threshold",
            unless_default(
                &policy.divergence_threshold,
                &Policy::DIVERGENCE_THRESHOLD,
                |share| text(share),
            ),
        ),
        (
            "routes",
            Some(texts(policy.routes.iter().map(|route| &route.value.0))),
        ),
        ("paths", Some(paths(policy.paths))),
        (
            "duplicates",
            Some(Json::Map(policy.duplicates.iter().map(duplicate).collect())),
        ),
        ("jwt", policy.jwt.as_ref().map(jwt)),
        ("preflights", Some(preflights(policy.preflights.as_ref()))),
        ("groups", Some(Json::Map(groups.collect()))),
        ("exempt", list(exempt.collect())),
        ("deny", list(policy.deny.iter().map(deny).collect())),
        ("gateway", policy.gateway.as_ref().map(gateway::gateway)),
        ("priorities", overload::priorities(&policy.priorities)),
        (
            "overload",
            Some(overload::overload(&policy.overload, &policy.retries)),
        ),
        // Always written, because an empty file is rejected.
        (
            "limits",
            list(policy.limits.iter().map(limit).collect()).or_else(|| Some(text("none"))),
        ),
    ])
    .to_string()
}

fn jwt(jwt: &JwtSettings) -> Json {
    let key = |key: &Located<JwkMembers>| {
        let members = key.value.iter();
        Json::Map(
            members
                .map(|(name, value)| (name.to_string(), text(value)))
                .collect(),
        )
    };
    let optional = |values: &[Box<str>]| (!values.is_empty()).then(|| texts(values.iter()));
    map(vec![
        ("keys", list(jwt.keys.iter().map(key).collect())),
        (
            "keys_file",
            jwt.keys_file.as_ref().map(|path| text(&path.value)),
        ),
        ("issuers", optional(&jwt.issuers)),
        ("audiences", optional(&jwt.audiences)),
        ("from", Some(text(&jwt.from))),
        ("leeway", Some(text(duration(jwt.leeway)))),
        ("max_bytes", Some(number(jwt.max_bytes))),
    ])
}

fn preflights(rate: Option<&Located<RateSpec>>) -> Json {
    match rate.map(|rate| rate.value) {
        Some(RateSpec {
            units,
            period: Period::Span(span),
        }) => text(format!("{units}/{}", duration(span))),
        Some(_) => unreachable!("no test has months"),
        None => text("none"),
    }
}

fn paths(paths: PathSettings) -> Json {
    let case = match paths.case {
        PathCase::Any => None,
        PathCase::Sensitive => Some("sensitive"),
        PathCase::Insensitive => Some("insensitive"),
    };
    let parameters = match paths.parameters {
        PathParameters::Any => None,
        PathParameters::Keep => Some("keep"),
        PathParameters::Strip => Some("strip"),
    };
    map(vec![
        ("case", case.map(text)),
        ("parameters", parameters.map(text)),
    ])
}

fn duplicate(setting: &DuplicateSetting) -> (String, Json) {
    let rule = match setting.rule {
        DuplicateRule::First => "first",
        DuplicateRule::Last => "last",
        DuplicateRule::Joined => "joined",
        DuplicateRule::Refused => "refused",
    };
    (setting.attribute.value.to_string(), text(rule))
}

fn deny(rule: &DenyRule) -> Json {
    map(vec![
        ("match", Some(conditions(&rule.matching))),
        ("status", unless_default(&rule.status, &403, |s| number(*s))),
        ("message", rule.message.as_ref().map(text)),
    ])
}

fn mode(mode: Mode) -> Option<Json> {
    match mode {
        Mode::Enforce => None,
        Mode::Shadow => Some(text("shadow")),
        Mode::Off => Some(text("off")),
    }
}

fn conditions(matching: &Match) -> Json {
    let conditions = matching.conditions.iter().map(|condition| {
        let condition = &condition.value;
        (condition.attribute.to_string(), test(&condition.test))
    });
    Json::Map(conditions.collect())
}

fn test(test: &Test) -> Json {
    match test {
        // Always a list, because the single value `absent` is a keyword.
        Test::OneOf(values) => texts(values),
        Test::Route(routes) => texts(routes.iter().map(|route| &route.0)),
        Test::Within(networks) => texts(networks),
        Test::Glob(globs) => map(vec![("glob", Some(texts(globs.iter().map(|g| &g.0))))]),
        Test::Present => text("present"),
        Test::Absent => text("absent"),
        Test::Not(inner) => map(vec![("not", Some(self::test(inner)))]),
    }
}

fn limit(limit: &LimitRule) -> Json {
    let blank = LimitRule::new(limit.name.clone(), limit.quota.clone());
    let own = &limit.quota.value;
    let has_levels = !limit.levels.is_empty();
    let second = |other: &Option<Located<QuotaSpec>>| {
        let other = other.as_ref();
        other.map(|at| alternative_quota(&at.value, own))
    };
    let mut fields = vec![
        ("name", Some(text(&limit.name.value))),
        ("id", limit.id.map(|id| number(id.value))),
        ("match", Some(conditions(&limit.matching))),
        ("group", limit.group.as_ref().map(|at| text(&at.value))),
        ("bucket", limit.bucket.as_ref().map(|at| text(&at.value))),
        ("key", key(&limit.key)),
        ("levels", list(limit.levels.iter().map(level).collect())),
        ("tiers", limit.tiers.as_ref().map(|all| tiers(all, own))),
        (
            "overrides",
            list(
                limit
                    .overrides
                    .iter()
                    .map(|one| quota_override(one, own))
                    .collect(),
            ),
        ),
        ("local", second(&limit.local)),
        ("spillover", second(&limit.spillover)),
        ("shares", limit.shares.as_ref().map(shares)),
        ("candidate", second(&limit.candidate)),
        ("cost", unless_default(&limit.cost, &blank.cost, cost)),
        ("count", count(&limit.count)),
        (
            "refund",
            (!limit.refund.is_empty()).then(|| texts(&limit.refund)),
        ),
        ("distinct", limit.distinct.as_ref().map(attribute)),
        ("mode", mode(limit.mode)),
        (
            "enforce",
            unless_default(&limit.enforce, &Percent::ALL, |share| text(share)),
        ),
        ("wait", limit.wait.map(|at| text(duration(at.value)))),
        ("penalty", penalty(limit.penalty.value)),
        ("charge", limit.charge_always.then(|| text("always"))),
        (
            "overdraft",
            unless_default(&limit.overdraft, &0, |n| number(*n)),
        ),
        ("on_store_failure", failure(limit.on_store_failure)),
        ("when_full", limit.when_full.map(when_full)),
        ("consistency", consistency(limit.consistency.value)),
        ("colocate", limit.colocate.as_ref().map(attribute)),
        (
            "status",
            unless_default(&limit.status, &blank.status, |s| number(*s)),
        ),
        ("message", limit.message.as_ref().map(text)),
    ];
    if !has_levels {
        fields.extend(quota(own, None));
    }
    map(fields)
}

fn penalty(penalty: Penalty) -> Option<Json> {
    match penalty {
        Penalty::None => None,
        Penalty::Count => Some(text("count")),
        Penalty::Block(span) => Some(text(format!("block {}", duration(span)))),
        Penalty::Escalate(steps) => {
            let lengths = steps.lengths().iter();
            let lengths: Vec<_> = lengths.map(|length| duration(*length)).collect();
            let forget = duration(steps.forget);
            Some(text(format!(
                "block {}, forget {forget}",
                lengths.join(", ")
            )))
        }
    }
}

fn failure(failure: OnStoreFailure) -> Option<Json> {
    match failure {
        OnStoreFailure::Local => None,
        OnStoreFailure::Open => Some(text("open")),
        OnStoreFailure::Closed => Some(text("closed")),
    }
}

fn attribute(attribute: &Located<Attribute>) -> Json {
    text(&attribute.value)
}

fn when_full(when_full: WhenFull) -> Json {
    match when_full {
        WhenFull::Forget => text("forget"),
        WhenFull::Refuse => text("refuse"),
    }
}

fn consistency(consistency: Consistency) -> Option<Json> {
    match consistency {
        Consistency::Exact => None,
        Consistency::Leased => Some(text("leased")),
        Consistency::Async(span) => Some(text(format!("async {}", duration(span)))),
    }
}

fn level(level: &Level) -> Json {
    let mut fields = vec![
        ("name", Some(text(&level.name.value))),
        ("key", key(&level.key)),
    ];
    fields.extend(quota(&level.quota.value, None));
    map(fields)
}

fn key(parts: &[KeyPart]) -> Option<Json> {
    list(parts.iter().map(key_part).collect())
}

/// A part as its name, or as a map if it has options.
fn key_part(part: &KeyPart) -> Json {
    let usual = KeyPart::new(part.attribute.clone());
    let attribute = text(&part.attribute.value);
    if *part == usual {
        return attribute;
    }
    let missing = match part.missing {
        OnMissing::Shared => None,
        OnMissing::Skip => Some(text("skip")),
        OnMissing::Deny => Some(text("deny")),
    };
    let set = |is_set: bool| is_set.then(|| Json::Bare("true".to_owned()));
    map(vec![
        ("attribute", Some(attribute)),
        ("lower", set(part.lower)),
        ("hash", set(part.hash)),
        (
            "v4",
            unless_default(&part.v4_bits, &usual.v4_bits, |n| number(*n)),
        ),
        (
            "v6",
            unless_default(&part.v6_bits, &usual.v6_bits, |n| number(*n)),
        ),
        ("missing", missing),
    ])
}

fn count(count: &Count) -> Option<Json> {
    match count {
        Count::Requests => None,
        Count::Denials => Some(text("denials")),
        Count::Responses(statuses) => Some(map(vec![("responses", Some(texts(statuses)))])),
    }
}

fn cost(cost: &Cost) -> Json {
    match cost {
        Cost::Fixed(units) => number(*units),
        Cost::ByValue {
            attribute,
            values,
            otherwise,
        } => {
            let mut fields = vec![
                ("by", Some(text(attribute))),
                ("otherwise", Some(number(*otherwise))),
            ];
            fields.extend(values.iter().map(|(value, n)| (&**value, Some(number(*n)))));
            map(fields)
        }
        Cost::Attribute {
            attribute,
            at_least,
            at_most,
            otherwise,
        } => map(vec![
            ("from", Some(text(attribute))),
            ("at_least", Some(number(*at_least))),
            ("at_most", Some(number(*at_most))),
            ("otherwise", Some(number(*otherwise))),
        ]),
        Cost::Response {
            header,
            estimate,
            at_most,
        } => map(vec![
            ("response", Some(text(header))),
            ("estimate", Some(number(*estimate))),
            ("at_most", Some(number(*at_most))),
        ]),
        Cost::ResponseBody { estimate, at_most } => map(vec![
            ("response_body", Some(text("bytes"))),
            ("estimate", Some(number(*estimate))),
            ("at_most", Some(number(*at_most))),
        ]),
    }
}
