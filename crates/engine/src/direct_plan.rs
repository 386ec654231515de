//! The plan of a policy that plans the same checks for every request: only the keys depend on the request.
//!
//! Most policies have limits without conditions, each with one quota, and all enforced. A direct plan excludes penalties with a
//! quota of their own, candidates, shares, spillover quotas, tickets, and costs that depend on the request. The engine computes
//! the plan when it puts the policy in force. Must not know: requests, stores.

use std::sync::Arc;

use tollgate_policy::model::{Mode, Percent};
use tollgate_policy::rules::{MeterRef, MeterRole, Rule, Rules};
use tollgate_store::IdentifiedLimit;

use crate::counters::LimitCounters;
use crate::generation::LimitEntry;
use crate::plan::QuotaRef;

/// The most checks of a direct plan. A request with more of them is planned step by step.
pub(crate) const MAX_DIRECT_CHECKS: usize = 8;

/// One check of every request.
#[derive(Debug)]
pub(crate) struct DirectCheck {
    pub(crate) meter: MeterRef,
    /// The index of the key spec. Equal specs have equal indexes.
    pub(crate) key_spec: u32,
    pub(crate) quota: QuotaRef,
    pub(crate) limit: IdentifiedLimit,
    /// The cost of a request that brings none.
    pub(crate) cost: u64,
    pub(crate) counters: Arc<LimitCounters>,
}

/// The checks of every request, in the order of the limits. Empty if they depend on the request.
pub(crate) fn direct_plan(rules: &Rules, limits: &[LimitEntry]) -> Box<[DirectCheck]> {
    // The built-in limit comes after those of the policy, and applies to preflights only.
    let policy_limits = rules.preflight_rule().unwrap_or(limits.len());
    if !rules.is_unconditional() || policy_limits > MAX_DIRECT_CHECKS {
        return Box::default();
    }
    let limits = rules.rules().iter().zip(limits).take(policy_limits);
    let checks = limits.enumerate().map(direct_check);
    checks.collect::<Option<_>>().unwrap_or_default()
}

/// The check of a limit; `None` if the limit may need more than one, or if something depends on the request or the response.
fn direct_check((index, (rule, entry)): (usize, (&Rule, &LimitEntry))) -> Option<DirectCheck> {
    let is_enforced = rule.mode == Mode::Enforce && rule.enforce == Percent::ALL;
    let is_plain = is_enforced
        && entry.is_direct
        && entry.comparison.is_none()
        && !entry.awaits_response
        && !rule.waits_for_claims;
    let [state] = &*entry.meters else { return None };
    if !is_plain || state.role != MeterRole::Main {
        return None;
    }
    let quota = state.direct_quota?;
    let QuotaRef::Listed(position) = quota else {
        return None;
    };
    Some(DirectCheck {
        meter: MeterRef {
            rule: index,
            meter: 0,
        },
        key_spec: state.key,
        quota,
        limit: *state.quotas.get(usize::try_from(position).ok()?)?,
        cost: entry.fixed_cost?,
        counters: Arc::clone(&entry.counters),
    })
}
