//! Explains the effect of a policy on one request: which limits apply and why, the keys, quotas and costs.
//!
//! Must not know: stores. Nothing is decided here.

use std::net::IpAddr;

use serde::Serialize;

use super::limit::{self, QuotaExplanation};
use super::matching;
use super::window::explain_window;
use crate::attributes::{Attribute, Attributes};
use crate::compile::full_key;
use crate::compile::quota::{WindowGrant, compile_quota};
use crate::model::{
    Condition, DenyRule, GroupSelection, KeyPart, LimitRule, Match, OnMissing, Policy,
};
use crate::rules::{
    KeyBuffer, KeyOutcome, ListVerdict, MatchedRules, MeterGrant, MeterRef, Rules, RulesDraft,
    mask_address,
};
use crate::source::Located;

/// The effect of a policy on one request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RequestExplanation {
    /// The list that decides, or how many limits apply.
    pub verdict: String,
    /// The route of the request; of several readings, the most specific one.
    pub route: Option<String>,
    /// The priority class, if anything sheds requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// The ways in which servers may read the path, if there is more than one. Limits apply under any of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub readings: Vec<String>,
    /// All limits, in file order.
    pub limits: Vec<LimitEvaluation>,
}

/// The effect of one limit on a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LimitEvaluation {
    /// The name in the file.
    pub name: String,
    /// Whether the limit applies.
    pub applies: bool,
    /// Why it does not apply, or why it denies without counting.
    pub reason: Option<String>,
    /// Its conditions and their results.
    pub conditions: Vec<ConditionEvaluation>,
    /// The parts of the key, readable. Hashed parts are digests.
    pub key: Vec<KeyPartEvaluation>,
    /// The quota of the request; for a hierarchy that of the widest level.
    pub quota: Option<QuotaExplanation>,
    /// The cost of the request.
    pub cost: u64,
    /// Whether the limit is enforced.
    pub mode: String,
}

/// One condition and its result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ConditionEvaluation {
    /// The condition.
    pub condition: String,
    /// Whether it matched.
    pub held: bool,
    /// The value of the request.
    pub seen: String,
}

/// One part of a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KeyPartEvaluation {
    /// The attribute.
    pub part: String,
    /// Its value in the key.
    pub value: String,
}

/// The maximum number of characters that are shown of a value.
const MAX_VALUE_SHOWN: usize = 80;

/// Explains the effect of a policy on a request. The rules must be compiled from the policy.
#[must_use]
pub fn explain_request(
    policy: &Policy,
    rules: &Rules,
    request: &dyn Attributes,
) -> RequestExplanation {
    let mut matched = MatchedRules::new();
    rules.match_rules(request, &mut matched);
    let explainer = RequestExplainer {
        policy,
        rules,
        request,
        matched: &matched,
    };
    let limits: Vec<_> = policy
        .limits
        .iter()
        .enumerate()
        .map(|(index, limit)| explainer.limit(index, limit))
        .collect();
    RequestExplanation {
        verdict: explainer.verdict(limits.iter().filter(|limit| limit.applies).count()),
        route: rules.route(request, &matched).map(display_bytes),
        class: rules.priorities().and_then(|priorities| {
            let class = priorities.names().get(priorities.class_of(request));
            class.map(ToString::to_string)
        }),
        readings: matched.path_readings().map(display_bytes).collect(),
        limits,
    }
}

struct RequestExplainer<'a> {
    policy: &'a Policy,
    rules: &'a Rules,
    request: &'a dyn Attributes,
    matched: &'a MatchedRules,
}

impl RequestExplainer<'_> {
    fn verdict(&self, applying: usize) -> String {
        if let Some(reason) = self
            .matched
            .unreadable()
            .filter(|_| self.rules.is_enforcing())
        {
            return format!("refused with 400: {reason}");
        }
        match self.matched.list_verdict() {
            ListVerdict::Exempt => "exempt: no limit applies".to_owned(),
            ListVerdict::Denied(index) => match self.policy.deny.get(index) {
                Some(deny) => format!(
                    "refused with {}: `deny` matches {}",
                    deny.status,
                    matching::describe_match(&deny.matching)
                ),
                None => "refused by `deny`".to_owned(),
            },
            ListVerdict::Limits => match applying {
                0 => "no limit applies: admitted".to_owned(),
                1 => "1 limit applies".to_owned(),
                many => format!("{many} limits apply"),
            },
        }
    }

    fn limit(&self, index: usize, limit: &LimitRule) -> LimitEvaluation {
        let conditions: Vec<_> = limit
            .matching
            .conditions
            .iter()
            .map(|condition| self.condition(condition))
            .collect();
        let key = full_key(limit);
        let first = MeterRef {
            rule: index,
            meter: 0,
        };
        let mut buffer = KeyBuffer::new();
        let outcome = self
            .rules
            .write_key(first, self.request, self.matched, &mut buffer);
        let is_matched = self.matched.rules().contains(&index);
        let reason = if is_matched {
            self.missing(&key, outcome)
        } else {
            Some(self.why_not(limit, &conditions, self.missing(&key, outcome)))
        };
        LimitEvaluation {
            name: limit.name.value.to_string(),
            applies: is_matched && outcome != KeyOutcome::Skip,
            reason,
            conditions,
            key: key.iter().map(|part| self.part(part)).collect(),
            quota: self.quota(index, limit, buffer.as_bytes()),
            cost: self.rules.cost(index, self.request, self.matched),
            mode: limit::describe_mode(limit.mode.max(self.policy.mode), limit.enforce),
        }
    }

    /// Evaluates one condition alone, through the same index that matches requests.
    fn condition(&self, condition: &Located<Condition>) -> ConditionEvaluation {
        // A `deny` entry matches under any reading of the path, as limits do.
        let alone = RulesDraft {
            deny: vec![DenyRule {
                matching: Match {
                    conditions: vec![condition.clone()],
                },
                status: 403,
                message: None,
            }],
            paths: self.policy.paths,
            ..RulesDraft::default()
        };
        let mut matched = MatchedRules::new();
        let held = Rules::new(alone, [0; 16]).is_ok_and(|rules| {
            rules.match_rules(self.request, &mut matched);
            matched.list_verdict() != ListVerdict::Limits
        });
        ConditionEvaluation {
            condition: matching::describe_condition(&condition.value),
            held,
            seen: self.value(&condition.value.attribute),
        }
    }

    /// The value of an attribute, readable.
    fn value(&self, attribute: &Attribute) -> String {
        let value = match attribute {
            Attribute::Ip => self.request.ip().map(|ip| ip.to_canonical().to_string()),
            Attribute::Route => {
                let route = self
                    .rules
                    .route(self.request, self.matched)
                    .map(display_bytes);
                let path = || self.request.get(&Attribute::Path);
                route.or_else(|| path().map(|path| format!("the path {}", display_bytes(path))))
            }
            other => self.request.get(other).map(display_bytes),
        };
        value.map_or("absent".to_owned(), |value| format!("it is {value}"))
    }

    /// Whether only the narrowest limit of a group applies.
    fn is_narrowest(&self, group: &str) -> bool {
        let mut groups = self.policy.groups.iter();
        groups.any(|one| *one.name.value == *group && one.apply == GroupSelection::Narrowest)
    }

    /// Why a limit was not matched. `missing`: why it has no key, which the index takes for a condition.
    fn why_not(
        &self,
        limit: &LimitRule,
        conditions: &[ConditionEvaluation],
        missing: Option<String>,
    ) -> String {
        if let Some(failed) = conditions.iter().find(|condition| !condition.held) {
            return format!("`{}` does not hold", failed.condition);
        }
        if self.matched.unreadable().is_some() {
            return "the request cannot be read".to_owned();
        }
        match (self.matched.list_verdict(), &limit.group) {
            (ListVerdict::Exempt, _) => "the request is exempt".to_owned(),
            (ListVerdict::Denied(_), _) => "`deny` refuses the request before any limit".to_owned(),
            (ListVerdict::Limits, Some(group)) if self.is_narrowest(&group.value) => {
                format!("a narrower limit of group {} applies instead", group.value)
            }
            (ListVerdict::Limits, _) => {
                missing.unwrap_or_else(|| "its conditions do not match".to_owned())
            }
        }
    }

    fn missing(&self, key: &[KeyPart], outcome: KeyOutcome) -> Option<String> {
        let (meaning, words) = match outcome {
            KeyOutcome::Complete => return None,
            KeyOutcome::Skip => (OnMissing::Skip, "and the limit is skipped without it"),
            KeyOutcome::Deny => (OnMissing::Deny, "and the request is refused without it"),
        };
        let part = key
            .iter()
            .find(|part| part.missing == meaning && !self.is_present(&part.attribute.value))?;
        Some(format!("{} is missing, {words}", part.attribute.value))
    }

    fn is_present(&self, attribute: &Attribute) -> bool {
        match attribute {
            Attribute::Ip => self.request.ip().is_some(),
            other => self
                .rules
                .attribute_value(other, self.request, self.matched)
                .is_some(),
        }
    }

    fn part(&self, part: &KeyPart) -> KeyPartEvaluation {
        let attribute = &part.attribute.value;
        let value = if *attribute == Attribute::Ip {
            let address = self.request.ip();
            address.map(|address| self.address(part, address))
        } else {
            let value = self
                .rules
                .attribute_value(attribute, self.request, self.matched);
            value.map(|value| self.bytes(part, value))
        };
        let absent = match part.missing {
            OnMissing::Shared => "missing, so it shares one quota with all such requests",
            OnMissing::Skip => "missing, so the limit does not apply",
            OnMissing::Deny => "missing, so the request is refused",
        };
        KeyPartEvaluation {
            part: matching::describe_key_part(part),
            value: value.unwrap_or_else(|| absent.to_owned()),
        }
    }

    fn address(&self, part: &KeyPart, address: IpAddr) -> String {
        let network = mask_address(address, part.v4_bits, part.v6_bits);
        match network {
            IpAddr::V4(v4) if part.hash => self.hashed(&v4.octets()),
            IpAddr::V6(v6) if part.hash => self.hashed(&v6.octets()),
            IpAddr::V4(v4) => format!("{v4}/{}", part.v4_bits),
            IpAddr::V6(v6) => format!("{v6}/{}", part.v6_bits),
        }
    }

    fn bytes(&self, part: &KeyPart, value: &[u8]) -> String {
        let value = match part.lower || part.attribute.value == Attribute::Host {
            true => value.to_ascii_lowercase(),
            false => value.to_vec(),
        };
        if part.hash {
            self.hashed(&value)
        } else {
            display_bytes(&value)
        }
    }

    fn hashed(&self, value: &[u8]) -> String {
        let digest = u128::from_be_bytes(self.rules.digest(value));
        format!("hashed {digest:032x}")
    }

    /// The quota of the request.
    fn quota(&self, index: usize, limit: &LimitRule, key: &[u8]) -> Option<QuotaExplanation> {
        let rule = self.rules.rules().get(index)?;
        let variant = self.rules.variant(index, self.request, self.matched, key);
        let tiers = limit.tiers.as_ref().map_or(&[][..], |tiers| &tiers.tiers);
        let (who, spec) = if let Some(level) = limit.levels.first() {
            (format!("level {}", level.name.value), &level.quota)
        } else if let Some(shares) = &limit.shares {
            let max_cost = rule.cost.bounds().1;
            return super::shares::explain_selected(limit, shares, variant, max_cost);
        } else if variant == 0 {
            (limit::own_name(limit), &limit.quota)
        } else if let Some((name, spec)) = tiers.get(variant.saturating_sub(1)) {
            (format!("tier {}", name.value), spec)
        } else {
            let over = limit
                .overrides
                .get(variant.saturating_sub(1 + tiers.len()))?;
            (
                format!("override for {}", over.key.value.join(", ")),
                &over.quota,
            )
        };
        let grant = compile_quota(spec, limit.overdraft).ok()?;
        let max_cost = rule.cost.bounds().1;
        let computed = rule
            .meters
            .iter()
            .find_map(|meter| match meter.grants.get(variant)? {
                MeterGrant::Computed(computed) => Some(computed),
                MeterGrant::Index(_) | MeterGrant::Unlimited => None,
            });
        let Some(computed) = computed else {
            return Some(limit::quota(who, &grant, max_cost));
        };
        let route = self.rules.route(self.request, self.matched);
        let window = WindowGrant {
            location: spec.location,
            builder: computed.builder,
            units: computed.units(self.request, route),
            period: None,
        };
        let built = window.builder.build(window.units).ok()?;
        let window = explain_window(&window, &built, max_cost);
        Some(QuotaExplanation {
            who: format!("{who}, computed by {}", computed.times),
            words: window.words.clone(),
            windows: vec![window],
        })
    }
}

/// The bytes as text: invalid UTF-8 and control characters replaced, long values truncated.
fn display_bytes(value: &[u8]) -> String {
    let text = String::from_utf8_lossy(value);
    let mut shown: String = text
        .chars()
        .take(MAX_VALUE_SHOWN)
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect();
    if text.chars().nth(MAX_VALUE_SHOWN).is_some() {
        shown.push('…');
    }
    if shown.is_empty() {
        "\"\"".to_owned()
    } else {
        shown
    }
}
