//! One rule while it is planned: what each of its meters costs, which quota it has, and with which operation it is asked.
//!
//! Must not know: keys, how the store is asked.

use tollgate_policy::model::Count;
use tollgate_policy::rules::{Meter, MeterRef, MeterRole, Rule, SelectedQuota};
use tollgate_store::Op;

use super::PlanContext;
use crate::check_options::CheckMode;
use crate::generation::LimitEntry;
use crate::meter_state::MeterState;
use crate::verdict::EnforcementMode;

/// A rule while it is planned.
pub(super) struct RulePlanner<'a> {
    pub(super) context: &'a PlanContext<'a>,
    pub(super) index: usize,
    pub(super) enforcement: EnforcementMode,
    pub(super) rule: &'a Rule,
    pub(super) entry: &'a LimitEntry,
    pub(super) cost: u64,
    pub(super) variant: Option<usize>,
}

impl RulePlanner<'_> {
    pub(super) const fn meter_ref(&self, position: usize) -> MeterRef {
        MeterRef {
            rule: self.index,
            meter: position,
        }
    }

    /// The variant of the rule for this request: its own quota, a tier, a share or an override.
    pub(super) fn variant_of(&mut self, key: &[u8]) -> usize {
        let (request, route) = (self.context.request, self.context.route());
        let selector = &self.rule.selector;
        *self
            .variant
            .get_or_insert_with(|| selector.variant(request, route, key))
    }

    /// The policy's quota for this request under a meter.
    pub(super) fn policy_quota(&mut self, meter: &Meter, key: &[u8]) -> SelectedQuota {
        let variant = self.variant_of(key);
        meter.select_quota(variant, self.context.request, self.context.route())
    }

    /// The operation of a meter's check.
    pub(super) fn op(&self, state: &MeterState, cost: u64, is_guest: bool) -> Op {
        let is_peek = self.context.options.mode == CheckMode::Peek || is_guest;
        match state.role {
            _ if self.context.options.mode == CheckMode::Refund && !is_guest => Op::Credit(cost),
            // A peek at a concurrency limit acquires a weight of zero: the reply tells how many permits are free.
            _ if state.is_concurrency => Op::Acquire {
                id: self.context.lease_ids.generate(),
                weight: if is_peek { 0 } else { cost },
            },
            MeterRole::Block => Op::Peek(1),
            // Its status tells how often the key was blocked. A peek at nothing never denies.
            MeterRole::Offences => Op::Peek(0),
            MeterRole::Main if self.rule.charge_always => {
                if is_peek {
                    Op::Peek(0)
                } else {
                    Op::ChargeAlways(cost)
                }
            }
            _ if is_peek => Op::Peek(cost),
            MeterRole::Main | MeterRole::Local if self.rule.count != Count::Requests => {
                Op::Peek(cost)
            }
            _ => Op::Spend(cost),
        }
    }

    /// Whether a meter can be refunded: only if it counts the cost of requests.
    pub(super) fn is_refundable(&self, state: &MeterState) -> bool {
        matches!(state.role, MeterRole::Main | MeterRole::Local)
            && !state.is_concurrency
            && !self.entry.counts_values
            && self.rule.count == Count::Requests
    }
}
