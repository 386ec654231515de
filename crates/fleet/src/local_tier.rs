//! This node's own tier: the fallback quotas of shared limits, and the store's admissions noted on the same states.
//!
//! Both are buckets on one state: the ceiling takes the limit's whole quota and never denies, so that what the store
//! admitted counts when it goes away; the fallback gives this node's share. Quotas are compiled once and kept, for they are
//! looked up in every decision. Must not know: the store that is shared, when it is away.

use std::num::NonZeroU32;

use arc_swap::{ArcSwapAny, ArcSwapOption};
use std::sync::Arc;
use tollgate_core::limit::Limit;
use tollgate_engine::StateStore;
use tollgate_store::{IdentifiedLimit, LimitId, Op, QuotaCheck, ReplyNote, StoreReply};

use crate::fallback_quota::{ceiling_quota, counter_fallback_quota, fallback_quota};
use crate::fleet::Fleet;
use crate::tiered_decider::{TieredBatch, TieredDecider};

/// Limits whose quotas are kept. Two that fall on one place are compiled again and again, which is slower and not wrong.
const CACHED_LIMITS: usize = 256;

/// The quotas of this node's tier.
#[derive(Debug)]
pub(crate) struct LocalQuotas {
    cache: Box<[ArcSwapOption<LocalQuota>]>,
}

/// What one limit is on this node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LocalQuota {
    limit: Limit,
    nodes: NonZeroU32,
    /// What decides while the store is away. `None`: nothing is admitted.
    pub(crate) fallback: Option<Limit>,
    /// The same for one of Envoy's counters. `None`: it is none.
    pub(crate) counter: Option<Limit>,
    /// What takes note of what the store admitted. `None` where that is not counted in units.
    pub(crate) ceiling: Option<Limit>,
}

impl Default for LocalQuotas {
    fn default() -> Self {
        Self {
            cache: (0..CACHED_LIMITS).map(|_| ArcSwapOption::empty()).collect(),
        }
    }
}

impl LocalQuotas {
    /// Something of what this limit is on one of so many nodes.
    pub(crate) fn with<T>(
        &self,
        id: LimitId,
        limit: &Limit,
        nodes: NonZeroU32,
        read: impl FnOnce(&LocalQuota) -> T,
    ) -> T {
        let place = usize::from(id.0.get()).checked_rem(self.cache.len());
        let place = place.and_then(|place| self.cache.get(place));
        // Looked at where it lies: it is large, and this is done in every decision.
        let kept = place.map(ArcSwapAny::load);
        if let Some(Some(quota)) = kept.as_deref()
            && quota.nodes == nodes
            && quota.limit == *limit
        {
            return read(quota);
        }
        let quota = Arc::new(LocalQuota {
            limit: *limit,
            nodes,
            fallback: fallback_quota(limit, nodes),
            counter: counter_fallback_quota(limit, nodes),
            ceiling: ceiling_quota(limit),
        });
        let something = read(&quota);
        if let Some(place) = place {
            place.store(Some(quota));
        }
        something
    }
}

/// A check that was carried out on this node, and what is needed to take it back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LocalCharge {
    pub(crate) position: usize,
    pub(crate) limit: IdentifiedLimit,
    pub(crate) on: ChargedOn,
}

/// What it was carried out on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChargedOn {
    /// A state that is this node's own.
    LocalState,
    /// The fallback's state of a shared limit.
    Fallback {
        /// The part of the store that it is replayed to, unless that may have charged it already.
        replay_to: Option<usize>,
    },
    /// A slice.
    Lease,
    /// A count that is reconciled.
    AsyncCount,
}

impl<S: StateStore> TieredDecider<'_, S> {
    /// Takes back what was carried out on this node, because another limit refused.
    pub(crate) fn undo_charges<const N: usize>(&self, batch: &mut TieredBatch<'_, N>) {
        for here in &batch.charged {
            let (Some(check), Some(answer)) = (
                batch.checks.get(here.position),
                batch.answers.get_mut(here.position),
            ) else {
                continue;
            };
            let op = match check.op {
                Op::Acquire { id, weight } if weight > 0 => Op::Release(id),
                _ if answer.receipt.cost > 0 => Op::Settle {
                    receipt: answer.receipt,
                    actual: 0,
                },
                _ => continue,
            };
            let now = || self.local.now();
            match here.on {
                ChargedOn::LocalState | ChargedOn::Fallback { .. } => {}
                ChargedOn::Lease => {
                    let back = self.fleet.leases.refund(check, &answer.receipt, now());
                    answer.status.remaining = answer.status.remaining.saturating_add(back);
                    answer.receipt.cost = 0;
                    continue;
                }
                ChargedOn::AsyncCount => {
                    self.fleet.reconciler.refund(check, &answer.receipt, now());
                    answer.receipt.cost = 0;
                    continue;
                }
            }
            let back = QuotaCheck {
                limit: &here.limit,
                op,
                ..*check
            };
            let mut after = [StoreReply::EMPTY];
            if self.local.decide(&[back], &mut after).is_ok() {
                let [after] = after;
                answer.status = after.status;
                answer.receipt.cost = 0;
            }
        }
    }
}

impl Fleet {
    /// Notes on this node's tier what the store has admitted.
    pub(crate) fn record_admitted<S: StateStore>(
        &self,
        local: &S,
        check: &QuotaCheck<'_>,
        answer: &StoreReply,
    ) {
        let (cost, true) = (answer.receipt.cost, answer.note == ReplyNote::Plain) else {
            return;
        };
        let spends = matches!(
            check.op,
            Op::Spend(_) | Op::SpendUpTo(_) | Op::ChargeAlways(_) | Op::Reserve { .. }
        );
        if cost == 0 || !spends {
            return;
        }
        let (id, whole) = (check.limit.id, &check.limit.limit);
        let ceiling = |quota: &LocalQuota| quota.ceiling;
        let Some(limit) = self.local_quotas.with(id, whole, self.nodes(), ceiling) else {
            return;
        };
        let ruled = IdentifiedLimit { id, limit };
        let noted = QuotaCheck {
            limit: &ruled,
            op: Op::ChargeAlways(cost),
            ..*check
        };
        // A key that there is no room for starts with its whole share when the store goes away.
        let _noted = local.decide(&[noted], &mut [StoreReply::EMPTY]);
    }
}
