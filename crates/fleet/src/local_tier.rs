//! The local tier: fallback quotas of shared limits, on states that also record what the store admits.
//!
//! Both are buckets on one state. The ceiling bucket has the limit's whole capacity and never denies; it is charged
//! with what the store admits, so that this counts once the store is unavailable. The fallback bucket admits this
//! node's share. Quotas are computed once and cached, because every decision needs them. Must not know: the shared
//! store, when it is unavailable.

use std::num::NonZeroU32;

use arc_swap::{ArcSwapAny, ArcSwapOption};
use std::sync::Arc;
use tollgate_core::limit::Limit;
use tollgate_engine::StateStore;
use tollgate_store::{IdentifiedLimit, LimitId, Op, QuotaCheck, ReplyNote, StoreReply};

use crate::fallback_quota::{ceiling_quota, counter_fallback_quota, fallback_quota};
use crate::fleet::Fleet;
use crate::tiered_decider::{TieredBatch, TieredDecider};

/// The number of limits whose quotas are cached. Two limits with the same slot are computed again each time: slower,
/// but correct.
const CACHED_LIMITS: usize = 256;

/// The quotas of the local tier.
#[derive(Debug)]
pub(crate) struct LocalQuotas {
    cache: Box<[ArcSwapOption<LocalQuota>]>,
}

/// The quotas of one limit on this node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LocalQuota {
    limit: Limit,
    nodes: NonZeroU32,
    /// Decides while the store is unavailable. `None`: nothing is admitted.
    pub(crate) fallback: Option<Limit>,
    /// The same for an Envoy counter. `None`: the limit is not one.
    pub(crate) counter: Option<Limit>,
    /// Charged with what the store admits. `None` if the limit is not counted in units.
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
    /// Reads the quotas of a limit with this many nodes.
    pub(crate) fn with<T>(
        &self,
        id: LimitId,
        limit: &Limit,
        nodes: NonZeroU32,
        read: impl FnOnce(&LocalQuota) -> T,
    ) -> T {
        let slot = usize::from(id.0.get()).checked_rem(self.cache.len());
        let slot = slot.and_then(|slot| self.cache.get(slot));
        // Read in place: it is large, and every decision reads it.
        let cached = slot.map(ArcSwapAny::load);
        if let Some(Some(quota)) = cached.as_deref()
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
        let value = read(&quota);
        if let Some(slot) = slot {
            slot.store(Some(quota));
        }
        value
    }
}

/// A charge on this node, with what is needed to undo it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LocalCharge {
    pub(crate) position: usize,
    pub(crate) limit: IdentifiedLimit,
    pub(crate) on: ChargedOn,
}

/// Where a charge was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChargedOn {
    /// A local state.
    LocalState,
    /// The fallback's state of a shared limit.
    Fallback {
        /// The partition to replay the charge to, unless it may have been charged there already.
        replay_to: Option<usize>,
    },
    /// A lease.
    Lease,
    /// An `async` count.
    AsyncCount,
}

impl<S: StateStore> TieredDecider<'_, S> {
    /// Undoes the charges on this node, because another limit denied.
    pub(crate) fn undo_charges<const N: usize>(&self, batch: &mut TieredBatch<'_, N>) {
        for charge in &batch.charged {
            let (Some(check), Some(reply)) = (
                batch.checks.get(charge.position),
                batch.replies.get_mut(charge.position),
            ) else {
                continue;
            };
            let op = match check.op {
                Op::Acquire { id, weight } if weight > 0 => Op::Release(id),
                _ if reply.receipt.cost > 0 => Op::Settle {
                    receipt: reply.receipt,
                    actual: 0,
                },
                _ => continue,
            };
            let now = || self.local.now();
            match charge.on {
                ChargedOn::LocalState | ChargedOn::Fallback { .. } => {}
                ChargedOn::Lease => {
                    let back = self.fleet.leases.refund(check, &reply.receipt, now());
                    reply.status.remaining = reply.status.remaining.saturating_add(back);
                    reply.receipt.cost = 0;
                    continue;
                }
                ChargedOn::AsyncCount => {
                    self.fleet.reconciler.refund(check, &reply.receipt, now());
                    reply.receipt.cost = 0;
                    continue;
                }
            }
            let back = QuotaCheck {
                limit: &charge.limit,
                op,
                ..*check
            };
            let mut after = [StoreReply::EMPTY];
            if self.local.decide(&[back], &mut after).is_ok() {
                let [after] = after;
                reply.status = after.status;
                reply.receipt.cost = 0;
            }
        }
    }
}

impl Fleet {
    /// Records on the local tier what the store has admitted.
    pub(crate) fn record_admitted<S: StateStore>(
        &self,
        local: &S,
        check: &QuotaCheck<'_>,
        reply: &StoreReply,
    ) {
        let (cost, true) = (reply.receipt.cost, reply.note == ReplyNote::Plain) else {
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
        let ceiling_limit = IdentifiedLimit { id, limit };
        let ceiling_check = QuotaCheck {
            limit: &ceiling_limit,
            op: Op::ChargeAlways(cost),
            ..*check
        };
        // A key that does not fit starts with its whole share when the store becomes unavailable.
        let _charged = local.decide(&[ceiling_check], &mut [StoreReply::EMPTY]);
    }
}
