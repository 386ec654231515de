//! Counts the decisions of each rule of a file.
//!
//! Counters are found by the state's index, without a lookup, and by identity when files are replaced. Must not know: stores,
//! what is done with the numbers.

use std::collections::HashMap;
use std::sync::Arc;

use tollgate_core::limit::Op;

use tollgate_engine::{LimitCounters, LimitEvent, LimitTotals};

use crate::config::{Charge, ChargePlan, EnvoyPolicy, EnvoyReply, Modes, RlsCode, RuleStateIndex};

/// The counters of all identities, in their order.
#[derive(Debug)]
pub(super) struct RuleCounters(Box<[(Box<str>, Arc<LimitCounters>)]>);

impl RuleCounters {
    /// The counters of these files. Identities that existed before keep their counters.
    pub(super) fn new(policy: &EnvoyPolicy, before: Option<&Self>) -> Self {
        let before = before.map_or(&[][..], |Self(before)| before);
        let known: HashMap<&str, &Arc<LimitCounters>> = before
            .iter()
            .map(|(name, counters)| (&**name, counters))
            .collect();
        let one = |identity: &str| {
            let counters = known.get(identity).copied().map(Arc::clone);
            let counters = counters.unwrap_or_else(|| Arc::new(LimitCounters::new()));
            (Box::from(identity), counters)
        };
        Self(policy.identities().map(one).collect())
    }

    /// Counts the status of every descriptor that charged something.
    pub(super) fn record(&self, plan: &ChargePlan<'_>, reply: &EnvoyReply<'_>, modes: Modes) {
        let statuses = reply.statuses();
        for charge in plan.charges().filter(is_request) {
            let (Some(counters), Some(status)) =
                (self.get(charge.state), statuses.get(charge.descriptor))
            else {
                continue;
            };
            if status.exceeded {
                // In shadow mode, of the rule or of all rules, nothing is denied.
                let is_enforced = status.code == RlsCode::OverLimit && !modes.shadow_mode;
                counters.count(if is_enforced {
                    LimitEvent::Denied
                } else {
                    LimitEvent::WouldDeny
                });
                continue;
            }
            counters.count(LimitEvent::Allowed);
            let remaining = u64::from(status.limit_remaining);
            if remaining.saturating_mul(5) <= charge.requests_per_unit.into() {
                counters.count(LimitEvent::NearLimit);
            }
        }
    }

    /// Counts that the store did not answer.
    pub(super) fn record_errors(&self, plan: &ChargePlan<'_>) {
        for charge in plan.charges().filter(is_request) {
            if let Some(counters) = self.get(charge.state) {
                counters.count(LimitEvent::Error);
            }
        }
    }

    /// The totals of each identity.
    pub(super) fn read(&self) -> Vec<(Box<str>, LimitTotals)> {
        let one =
            |(name, counters): &(Box<str>, Arc<LimitCounters>)| (name.clone(), counters.read());
        self.0.iter().map(one).collect()
    }

    fn get(&self, state: RuleStateIndex) -> Option<&LimitCounters> {
        let (_, counters) = self.0.get(usize::try_from(state.0).ok()?)?;
        Some(counters)
    }
}

/// Whether the charge is a request. Peeks and refunds are not.
fn is_request(charge: &Charge) -> bool {
    matches!(charge.op, Op::ChargeAlways(hits) if hits > 0)
}
