//! What a policy does with one request: which limits apply and why, whose quota is asked and which, and what it costs.
//!
//! Must not know: stores; nothing is decided here.

use std::net::IpAddr;

use serde::Serialize;

use super::limit::{self, QuotaExplanation};
use super::matching;
use super::window::explain_window;
use crate::attributes::{Attribute, Attributes};
use crate::compile::full_key;
use crate::compile::quota::{WindowGrant, compile_quota};
use crate::model::{Condition, KeyPart, LimitRule, Match, OnMissing, Policy};
use crate::rules::{
    KeyBuffer, KeyOutcome, ListVerdict, MatchedRules, MeterGrant, MeterRef, Rules, RulesDraft,
    mask_address,
};
use crate::source::Located;

/// What a policy does with one request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RequestExplanation {
    /// What the lists say, or how many limits apply.
    pub verdict: String,
    /// The route that the request belongs to.
    pub route: Option<String>,
    /// Every limit, in the order of the file.
    pub limits: Vec<LimitEvaluation>,
}

/// What one limit makes of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LimitEvaluation {
    /// As the file names it.
    pub name: String,
    /// Whether it is asked.
    pub applies: bool,
    /// Why it is not, or what else decides.
    pub reason: Option<String>,
    /// Its conditions, each with what it saw.
    pub conditions: Vec<ConditionEvaluation>,
    /// The parts of the key, readable; hashed ones as they are kept.
    pub key: Vec<KeyPartEvaluation>,
    /// The quota that the request falls under; for a hierarchy the widest level's.
    pub quota: Option<QuotaExplanation>,
    /// What the request costs.
    pub cost: u64,
    /// Whether the limit decides.
    pub mode: String,
}

/// One condition and what it saw.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ConditionEvaluation {
    /// What was asked.
    pub condition: String,
    /// Whether it held.
    pub held: bool,
    /// What the request says.
    pub seen: String,
}

/// One part of a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KeyPartEvaluation {
    /// The attribute.
    pub part: String,
    /// Its value as the key has it.
    pub value: String,
}

/// So much of a value is shown.
const MAX_VALUE_SHOWN: usize = 80;

/// Explains what a policy does with a request. The rules must be those of the policy.
#[must_use]
pub fn explain_request(
    policy: &Policy,
    rules: &Rules,
    request: &dyn Attributes,
) -> RequestExplanation {
    let mut found = MatchedRules::new();
    rules.match_rules(request, &mut found);
    let seen = RequestExplainer {
        policy,
        rules,
        request,
        found: &found,
    };
    let limits: Vec<_> = policy
        .limits
        .iter()
        .enumerate()
        .map(|(index, limit)| seen.limit(index, limit))
        .collect();
    RequestExplanation {
        verdict: seen.verdict(limits.iter().filter(|limit| limit.applies).count()),
        route: rules.route(request, &found).map(display_bytes),
        limits,
    }
}

struct RequestExplainer<'a> {
    policy: &'a Policy,
    rules: &'a Rules,
    request: &'a dyn Attributes,
    found: &'a MatchedRules,
}

impl RequestExplainer<'_> {
    fn verdict(&self, applying: usize) -> String {
        match self.found.list_verdict() {
            ListVerdict::Exempt => "exempt: no limit is asked".to_owned(),
            ListVerdict::Denied(index) => match self.policy.deny.get(index) {
                Some(deny) => format!(
                    "refused with {}: the list denies {}",
                    deny.status,
                    matching::describe_match(&deny.matching)
                ),
                None => "refused by the list".to_owned(),
            },
            ListVerdict::Limits if self.found.is_truncated() => {
                "more limits match than one request may fall under".to_owned()
            }
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
        let keyed = self
            .rules
            .write_key(first, self.request, self.found, &mut buffer);
        let is_found = self.found.rules().contains(&index);
        let reason = if is_found {
            self.missing(&key, keyed)
        } else {
            Some(self.why_not(limit, &conditions))
        };
        LimitEvaluation {
            name: limit.name.value.to_string(),
            applies: is_found && keyed != KeyOutcome::Skip,
            reason,
            conditions,
            key: key.iter().map(|part| self.part(part)).collect(),
            quota: self.quota(index, limit, buffer.as_bytes()),
            cost: self.rules.cost(index, self.request, self.found),
            mode: limit::describe_mode(limit.mode.max(self.policy.mode), limit.enforce),
        }
    }

    /// A condition alone, asked through the same index as all of them.
    fn condition(&self, condition: &Located<Condition>) -> ConditionEvaluation {
        let alone = RulesDraft {
            exempt: vec![Match {
                conditions: vec![condition.clone()],
            }],
            ..RulesDraft::default()
        };
        let mut found = MatchedRules::new();
        let held = Rules::new(alone, [0; 16]).is_ok_and(|rules| {
            rules.match_rules(self.request, &mut found);
            found.list_verdict() == ListVerdict::Exempt
        });
        ConditionEvaluation {
            condition: matching::describe_condition(&condition.value),
            held,
            seen: self.value(&condition.value.attribute),
        }
    }

    /// What the request says, readable.
    fn value(&self, attribute: &Attribute) -> String {
        let value = match attribute {
            Attribute::Ip => self.request.ip().map(|ip| ip.to_canonical().to_string()),
            Attribute::Route => {
                let route = self
                    .rules
                    .route(self.request, self.found)
                    .map(display_bytes);
                let path = || self.request.get(&Attribute::Path);
                route.or_else(|| path().map(|path| format!("the path {}", display_bytes(path))))
            }
            other => self.request.get(other).map(display_bytes),
        };
        value.map_or("absent".to_owned(), |value| format!("it is {value}"))
    }

    fn why_not(&self, limit: &LimitRule, conditions: &[ConditionEvaluation]) -> String {
        if let Some(failed) = conditions.iter().find(|condition| !condition.held) {
            return format!("`{}` does not hold", failed.condition);
        }
        match (self.found.list_verdict(), &limit.group) {
            (ListVerdict::Exempt, _) => "the request is exempt".to_owned(),
            (ListVerdict::Denied(_), _) => {
                "the request is refused before any limit is asked".to_owned()
            }
            (ListVerdict::Limits, _) if self.found.is_truncated() => {
                "more limits match than one request may fall under".to_owned()
            }
            (ListVerdict::Limits, Some(group)) => {
                format!("a narrower limit of group {} applies instead", group.value)
            }
            (ListVerdict::Limits, None) => "its conditions do not hold together".to_owned(),
        }
    }

    fn missing(&self, key: &[KeyPart], keyed: KeyOutcome) -> Option<String> {
        let (meaning, words) = match keyed {
            KeyOutcome::Complete => return None,
            KeyOutcome::Skip => (OnMissing::Skip, "and the limit is skipped without it"),
            KeyOutcome::Deny => (OnMissing::Deny, "and the request is refused without it"),
        };
        let part = key
            .iter()
            .find(|part| part.missing == meaning && !self.is_there(&part.attribute.value))?;
        Some(format!("{} is missing, {words}", part.attribute.value))
    }

    fn is_there(&self, attribute: &Attribute) -> bool {
        match attribute {
            Attribute::Ip => self.request.ip().is_some(),
            other => self
                .rules
                .attribute_value(other, self.request, self.found)
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
                .attribute_value(attribute, self.request, self.found);
            value.map(|value| self.bytes(part, value))
        };
        let absent = match part.missing {
            OnMissing::Shared => "missing, so it shares a quota with all such requests",
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

    /// The quota that the request falls under.
    fn quota(&self, index: usize, limit: &LimitRule, key: &[u8]) -> Option<QuotaExplanation> {
        let rule = self.rules.rules().get(index)?;
        let variant = self.rules.variant(index, self.request, self.found, key);
        let tiers = limit.tiers.as_ref().map_or(&[][..], |tiers| &tiers.tiers);
        let (who, spec) = if let Some(level) = limit.levels.first() {
            (format!("level {}", level.name.value), &level.quota)
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
        let granted = compile_quota(spec, limit.overdraft).ok()?;
        let dearest = rule.cost.bounds().1;
        let computed = rule
            .meters
            .iter()
            .find_map(|meter| match meter.grants.get(variant)? {
                MeterGrant::Computed(computed) => Some(computed),
                MeterGrant::Index(_) | MeterGrant::Unlimited => None,
            });
        let Some(computed) = computed else {
            return Some(limit::quota(who, &granted, dearest));
        };
        let route = self.rules.route(self.request, self.found);
        let granting = WindowGrant {
            location: spec.location,
            builder: computed.builder,
            units: computed.units(self.request, route),
            period: None,
        };
        let built = granting.builder.build(granting.units).ok()?;
        let window = explain_window(&granting, &built, dearest);
        Some(QuotaExplanation {
            who: format!("{who}, computed by {}", computed.times),
            words: window.words.clone(),
            windows: vec![window],
        })
    }
}

/// Bytes as far as they can be read, and not too many of them.
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
