//! Plans a request: for each descriptor the rule that applies, the counter to charge, and the hits.
//!
//! A plan does no IO. The caller charges the counters in its store, and [`ChargePlan::reply`] builds the reply from the store's
//! statuses. Nothing here allocates. Must not know: stores, clocks.

use tollgate_core::limit::{Limit, Op};

use super::EnvoyPolicy;
use super::counter_key::CounterKey;
use super::descriptor_tree::DescriptorPath;
use super::metric_name::MetricName;
use super::request::{BadRequest, Descriptor, LimitOverride, MAX_DESCRIPTORS, RlsRequest};
use super::rule::{EnvoyRule, RuleQuota, RuleStateIndex};
use super::window_unit::WindowUnit;

/// The charges of a request.
#[derive(Debug)]
pub struct ChargePlan<'a> {
    pub(super) policy: &'a EnvoyPolicy,
    pub(super) request: RlsRequest<'a>,
    pub(super) descriptors: [PlannedDescriptor<'a>; MAX_DESCRIPTORS],
}

/// The treatment of one descriptor.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PlannedDescriptor<'a> {
    pub(super) treatment: Treatment,
    /// The rule that it matches, unless it has an override.
    pub(super) rule: Option<&'a EnvoyRule>,
    pub(super) path: DescriptorPath,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) enum Treatment {
    /// No rule applies, or another rule replaces it: the descriptor is admitted, and its status has no limit.
    #[default]
    Free,
    /// The rule is `unlimited`: the descriptor is admitted and not counted.
    Unlimited,
    /// The descriptor is counted.
    Counted(CountedDescriptor),
}

/// The part of a charge that cannot be derived from other fields. It is small, because a plan is built for every request.
#[derive(Clone, Copy, Debug)]
pub(super) struct CountedDescriptor {
    pub(super) hits: u64,
    pub(super) requests_per_unit: u32,
    pub(super) state: RuleStateIndex,
    pub(super) unit: WindowUnit,
    pub(super) round: u8,
    /// Whether the hits are refunded.
    pub(super) is_refund: bool,
}

/// A counter to charge.
#[derive(Clone, Copy, Debug)]
pub struct Charge {
    /// The index of the descriptor in the request.
    pub descriptor: usize,
    /// The index of the identity under which it is counted.
    pub state: RuleStateIndex,
    /// How often the same counter occurs earlier in the request. A store takes a counter once in a batch, so charges with the
    /// same round form one batch, and rounds are sent in order. No charge can deny, so it does not matter that a batch is
    /// charged as a whole.
    pub round: u8,
    /// The counter. Its limit is one more than the rule's.
    pub limit: Limit,
    /// The operation: charge hits unconditionally, or refund them.
    pub op: Op,
    /// The rule's limit for each window.
    pub requests_per_unit: u32,
    /// The length of the window.
    pub unit: WindowUnit,
}

impl EnvoyPolicy {
    /// Plans the charges of a request.
    ///
    /// # Errors
    /// The request is invalid. envoyproxy/ratelimit also returns an error, or has no such bound.
    pub fn plan<'a>(&'a self, request: &RlsRequest<'a>) -> Result<ChargePlan<'a>, BadRequest> {
        request.check()?;
        let mut plan = ChargePlan {
            policy: self,
            request: *request,
            descriptors: [PlannedDescriptor::default(); MAX_DESCRIPTORS],
        };
        if let Some(domain) = self.tree.domain(request.domain) {
            for index in 0..request.descriptors.len() {
                plan.find(domain, index)?;
            }
            plan.replace();
            plan.assign_rounds();
        }
        Ok(plan)
    }
}

impl<'a> ChargePlan<'a> {
    /// The counters to charge, in the order of their descriptors.
    pub fn charges(&self) -> impl Iterator<Item = Charge> {
        let parts = self.descriptors.iter().take(self.request.descriptors.len());
        parts.enumerate().filter_map(|(descriptor, part)| {
            let Treatment::Counted(counted) = part.treatment else {
                return None;
            };
            let limit = match part.rule.map(|rule| rule.quota) {
                Some(RuleQuota::Limited { counter, .. }) => counter,
                // Cannot fail: the plan has built the same limit before.
                _ => counted.unit.limit(counted.requests_per_unit).ok()?,
            };
            Some(Charge {
                descriptor,
                state: counted.state,
                round: counted.round,
                limit,
                op: if counted.is_refund {
                    Op::Credit(counted.hits)
                } else {
                    Op::ChargeAlways(counted.hits)
                },
                requests_per_unit: counted.requests_per_unit,
                unit: counted.unit,
            })
        })
    }

    /// Builds the key under which a charge is counted. `secret` keys the digests of long keys; all processes that share a
    /// store must use the same.
    pub fn key(&self, charge: &Charge, secret: [u8; 16], key: &mut CounterKey) {
        let index = charge.descriptor;
        let domain = std::iter::once(self.request.domain);
        key.fill(secret, domain.chain(self.counted_parts(index)));
    }

    /// The policy of the plan.
    #[must_use]
    pub const fn policy(&self) -> &'a EnvoyPolicy {
        self.policy
    }

    /// The rule that a descriptor matches, even if another replaces it. `None` if the descriptor has an override.
    #[must_use]
    pub fn rule(&self, descriptor: usize) -> Option<&'a EnvoyRule> {
        self.descriptors.get(descriptor)?.rule
    }

    /// The name of a descriptor's metric, if a limit applies to it.
    #[must_use]
    pub fn metric(&self, descriptor: usize) -> Option<MetricName<'_>> {
        let part = self.descriptors.get(descriptor)?;
        let own = self.request.descriptors.get(descriptor)?;
        let counted = matches!(part.treatment, Treatment::Counted(_));
        (part.rule.is_some() || counted).then_some(MetricName {
            tree: &self.policy.tree,
            domain: self.request.domain,
            entries: own.entries,
            rule: part.rule,
            path: part.path,
        })
    }

    /// Finds the limit of one descriptor.
    fn find(&mut self, domain: u32, index: usize) -> Result<(), BadRequest> {
        let request = self.request;
        let (Some(own), Some(part)) = (
            request.descriptors.get(index),
            self.descriptors.get_mut(index),
        ) else {
            return Ok(());
        };
        let found = self.policy.tree.find(domain, own.entries);
        let matched = found.and_then(|(rule, path)| Some((self.policy.rule(rule)?, path)));
        if let Some(limit) = own.limit {
            part.treatment = Treatment::Counted(count_override(&request, own, limit, matched)?);
            return Ok(());
        }
        let Some((rule, path)) = matched else {
            return Ok(());
        };
        part.rule = Some(rule);
        part.path = path;
        part.treatment = match rule.quota {
            RuleQuota::Unlimited => Treatment::Unlimited,
            RuleQuota::Limited {
                requests_per_unit,
                unit,
                state,
                ..
            } => Treatment::Counted(CountedDescriptor {
                hits: request.hits(own),
                requests_per_unit,
                state,
                unit,
                round: 0,
                is_refund: own.is_negative_hits,
            }),
        };
        Ok(())
    }

    /// Drops the limits that other rules of this request replace. An unlimited rule can replace others but is not replaced.
    fn replace(&mut self) {
        for index in 0..self.request.descriptors.len() {
            let replaced = self.rule(index).map_or(&[][..], |rule| &rule.replaced_ids);
            // Most rules replace nothing.
            for name in replaced {
                for part in self
                    .descriptors
                    .iter_mut()
                    .take(self.request.descriptors.len())
                {
                    let counted = matches!(part.treatment, Treatment::Counted(_));
                    if counted
                        && part
                            .rule
                            .is_some_and(|rule| rule.limit_name_id == Some(*name))
                    {
                        part.treatment = Treatment::Free;
                    }
                }
            }
        }
    }

    /// Numbers repeated occurrences of the same counter.
    fn assign_rounds(&mut self) {
        for index in 0..self.request.descriptors.len() {
            let Some(state) = self.state(index) else {
                continue;
            };
            let before = (0..index)
                .filter(|&other| self.state(other) == Some(state))
                .filter(|&other| self.counted_parts(other).eq(self.counted_parts(index)))
                .count();
            if let Some(Treatment::Counted(charge)) = self
                .descriptors
                .get_mut(index)
                .map(|part| &mut part.treatment)
            {
                charge.round = u8::try_from(before).unwrap_or(u8::MAX);
            }
        }
    }

    fn state(&self, index: usize) -> Option<RuleStateIndex> {
        match &self.descriptors.get(index)?.treatment {
            Treatment::Counted(charge) => Some(charge.state),
            Treatment::Free | Treatment::Unlimited => None,
        }
    }

    /// The keys and values of a descriptor's counter key.
    fn counted_parts(&self, index: usize) -> impl Iterator<Item = &str> + Clone {
        let path = self
            .descriptors
            .get(index)
            .map(|part| part.path)
            .unwrap_or_default();
        let own = self.request.descriptors.get(index);
        let entries = own.map_or(&[][..], |own| own.entries);
        entries.iter().enumerate().flat_map(move |(level, entry)| {
            [
                entry.key,
                self.policy.tree.counted_value(&path, level, entry),
            ]
        })
    }
}

/// Counts an override of the descriptor. It is counted by values, never by patterns. If the matching rule has the same unit,
/// it uses the rule's counter: an override does not give a caller a second quota.
fn count_override(
    request: &RlsRequest<'_>,
    own: &Descriptor<'_>,
    limit: LimitOverride,
    matched: Option<(&EnvoyRule, DescriptorPath)>,
) -> Result<CountedDescriptor, BadRequest> {
    let rule_state = matched.and_then(|(rule, path)| match rule.quota {
        RuleQuota::Limited { unit, state, .. } if unit == limit.unit && !path.is_shared() => {
            Some(state)
        }
        _ => None,
    });
    limit
        .unit
        .limit(limit.requests_per_unit)
        .map_err(BadRequest::Override)?;
    Ok(CountedDescriptor {
        hits: request.hits(own),
        requests_per_unit: limit.requests_per_unit,
        state: rule_state.unwrap_or_else(|| RuleStateIndex::for_overrides(limit.unit)),
        unit: limit.unit,
        round: 0,
        is_refund: own.is_negative_hits,
    })
}
