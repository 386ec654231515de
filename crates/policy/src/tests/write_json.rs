//! A policy as the JSON text of a file that says it: reading the text gives the policy again.
//!
//! Properties about readers and about the schema begin with a model, so they need its text. Must not know: how files
//! are read.

use std::fmt;

use tollgate_core::Nanos;

use crate::model::{
    Amount, Burst, ComputedRate, Consistency, Cost, Count, DenyRule, GroupSelection, KeyPart,
    Level, LimitRule, Match, Mode, OnMissing, OnStoreFailure, Penalty, Percent, Period, Policy,
    QuotaOverride, QuotaSpec, RateSpec, Test, Tiers, WhenFull,
};

/// A value of JSON whose fields keep their order: conditions, tiers and groups have one.
pub(super) enum Json {
    /// A number or a truth value.
    Bare(String),
    Text(String),
    List(Vec<Json>),
    Map(Vec<(String, Json)>),
}

impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let quoted = |text: &str| serde_json::Value::from(text).to_string();
        match self {
            Self::Bare(text) => f.write_str(text),
            Self::Text(text) => f.write_str(&quoted(text)),
            Self::List(values) => {
                let values: Vec<String> = values.iter().map(Self::to_string).collect();
                write!(f, "[{}]", values.join(", "))
            }
            Self::Map(fields) => {
                let fields: Vec<String> = fields
                    .iter()
                    .map(|(name, value)| format!("{}: {value}", quoted(name)))
                    .collect();
                write!(f, "{{{}}}", fields.join(", "))
            }
        }
    }
}

fn number(number: impl Into<u64>) -> Json {
    Json::Bare(number.into().to_string())
}

fn text(text: impl fmt::Display) -> Json {
    Json::Text(text.to_string())
}

fn texts<T: fmt::Display>(values: impl IntoIterator<Item = T>) -> Json {
    Json::List(values.into_iter().map(text).collect())
}

/// A map of those fields that are given.
fn map(fields: Vec<(&str, Option<Json>)>) -> Json {
    let given = fields
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), value?)));
    Json::Map(given.collect())
}

/// The value unless it is the default.
fn unless_default<T: PartialEq>(
    value: &T,
    default: &T,
    json: impl FnOnce(&T) -> Json,
) -> Option<Json> {
    (value != default).then(|| json(value))
}

fn list(values: Vec<Json>) -> Option<Json> {
    (!values.is_empty()).then_some(Json::List(values))
}

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
        ("groups", Some(Json::Map(groups.collect()))),
        ("exempt", list(exempt.collect())),
        ("deny", list(policy.deny.iter().map(deny).collect())),
        // Given even if there are none, because a file that says nothing is refused.
        (
            "limits",
            Some(Json::List(policy.limits.iter().map(limit).collect())),
        ),
    ])
    .to_string()
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
        // Always a list: as a single value `absent` would be the word.
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
        (
            "local",
            limit
                .local
                .as_ref()
                .map(|at| alternative_quota(&at.value, own)),
        ),
        (
            "candidate",
            limit
                .candidate
                .as_ref()
                .map(|at| alternative_quota(&at.value, own)),
        ),
        ("cost", unless_default(&limit.cost, &blank.cost, cost)),
        ("count", count(&limit.count)),
        (
            "distinct",
            limit.distinct.as_ref().map(|at| text(&at.value)),
        ),
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
        (
            "colocate",
            limit.colocate.as_ref().map(|at| text(&at.value)),
        ),
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
    }
}

fn failure(failure: OnStoreFailure) -> Option<Json> {
    match failure {
        OnStoreFailure::Local => None,
        OnStoreFailure::Open => Some(text("open")),
        OnStoreFailure::Closed => Some(text("closed")),
    }
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

/// A part by its name, or as a map where it is not as usual.
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
    }
}

fn tiers(tiers: &Tiers, own: &QuotaSpec) -> Json {
    let mut fields = vec![("by", Some(text(&tiers.by.value)))];
    let each = tiers.tiers.iter();
    fields.extend(each.map(|(name, at)| (&*name.value, Some(alternative_quota(&at.value, own)))));
    map(fields)
}

fn quota_override(one: &QuotaOverride, own: &QuotaSpec) -> Json {
    let mut fields = vec![("key", Some(texts(&one.key.value)))];
    fields.extend(quota(&one.quota.value, Some(own)));
    map(fields)
}

fn alternative_quota(other: &QuotaSpec, own: &QuotaSpec) -> Json {
    let unlimited = QuotaSpec {
        amount: Amount::Unlimited,
        burst: None,
        ..own.clone()
    };
    if *other == unlimited {
        return text("unlimited");
    }
    map(quota(other, Some(own)))
}

/// The fields of a quota. Beside a limit's own quota everything is given that is no default there or here, so that
/// nothing is taken over by accident.
fn quota(quota: &QuotaSpec, own: Option<&QuotaSpec>) -> Vec<(&'static str, Option<Json>)> {
    let mut fields = match &quota.amount {
        Amount::Rates(rates) => {
            let rates = rates.iter().map(|at| rate(&at.value));
            vec![("rate", Some(texts(rates)))]
        }
        Amount::Concurrency {
            permits: places,
            lease,
        } => vec![
            ("concurrency", Some(number(*places))),
            ("lease", Some(text(duration(*lease)))),
        ],
        Amount::Computed(one) => vec![("rate", Some(computed(one)))],
        Amount::Unlimited => vec![("unlimited", Some(Json::Bare("true".to_owned())))],
    };
    let burst = quota.burst.as_ref().map(|burst| match burst.value {
        Burst::Units(units) => number(units),
        Burst::Auto => text("auto"),
    });
    let is_named =
        !quota.algorithm.is_concurrency() && is_explicit(quota, own, |one| one.algorithm);
    let minutes = quota.utc_offset_minutes;
    let offset = || {
        let sign = if minutes < 0 { '-' } else { '+' };
        let minutes = minutes.unsigned_abs();
        text(format!("{sign}{:02}:{:02}", minutes / 60, minutes % 60))
    };
    fields.extend([
        ("algorithm", is_named.then(|| text(quota.algorithm.name()))),
        ("burst", burst),
        (
            "unit",
            is_explicit(quota, own, |one| one.unit).then(|| text(quota.unit.name())),
        ),
        (
            "utc_offset",
            is_explicit(quota, own, |one| one.utc_offset_minutes).then(offset),
        ),
    ]);
    fields
}

/// Whether a property is no default, of this quota or of the one beside it.
fn is_explicit<T: Default + PartialEq>(
    quota: &QuotaSpec,
    own: Option<&QuotaSpec>,
    property: impl Fn(&QuotaSpec) -> T,
) -> bool {
    property(quota) != T::default() || own.is_some_and(|own| property(own) != T::default())
}

fn computed(rate_of: &ComputedRate) -> Json {
    map(vec![
        ("base", Some(text(rate(&rate_of.base.value)))),
        ("each", Some(text(rate(&rate_of.each.value)))),
        ("times", Some(text(&rate_of.times))),
        ("at_most", Some(text(rate(&rate_of.at_most.value)))),
    ])
}

fn rate(rate: &RateSpec) -> String {
    let period = match rate.period {
        Period::Month => "month".to_owned(),
        Period::Year => "year".to_owned(),
        Period::Span(span) => duration(span),
    };
    format!("{}/{period}", rate.units)
}

/// `1h30m`
fn duration(span: Nanos) -> String {
    let mut rest = span.as_nanos();
    let mut out = String::new();
    for (nanos, name) in [
        (3_600_000_000_000, "h"),
        (1_000_000_000, "s"),
        (1_000_000, "ms"),
        (1_000, "us"),
        (1, "ns"),
    ] {
        if rest >= nanos {
            out.push_str(&format!("{}{name}", rest / nanos));
            rest %= nanos;
        }
    }
    if out.is_empty() { "0s".to_owned() } else { out }
}
