//! What decides each check of a batch, and the part of the batch that goes to the store.
//!
//! Must not know: how anything is decided, breakers, stores.

use arrayvec::ArrayVec;
use tollgate_engine::{DenialCaching, Sharing};
use tollgate_store::{QuotaCheck, StoreKey};

use crate::denial_cache::DenialId;

/// What decides a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DecisionSource {
    /// This node: the limit is local.
    Local,
    /// This node, from its leases of the limit.
    Lease { partition: usize },
    /// This node, from a count that it reconciles with the store.
    Async { partition: usize },
    /// The store.
    Store { partition: usize },
    /// This node's fallback, because that partition of the store is unavailable.
    Fallback { partition: usize },
    /// Nothing more: the check is decided.
    Decided,
}

impl DecisionSource {
    /// Whether the store may be asked. `async` checks that the table has no room for go to the store.
    pub(crate) const fn may_ask_store(&self) -> bool {
        matches!(self, Self::Store { .. } | Self::Async { .. })
    }

    /// Uses the fallback instead of the store.
    pub(crate) const fn use_fallback(&mut self) {
        if let Self::Store { partition } = self {
            *self = Self::Fallback {
                partition: *partition,
            };
        }
    }

    /// Uses the fallback instead of the store, after all other checks were decided.
    pub(crate) const fn fall_back_to_local(&mut self) {
        *self = match self {
            Self::Store { partition } => Self::Fallback {
                partition: *partition,
            },
            _ => Self::Decided,
        };
    }
}

/// The part of a batch that goes to the store.
pub(crate) struct StoreBatch<'a, const N: usize> {
    /// The partitions of these checks.
    pub(crate) partitions: ArrayVec<usize, N>,
    pub(crate) positions: ArrayVec<usize, N>,
    pub(crate) checks: ArrayVec<QuotaCheck<'a>, N>,
    pub(crate) slot_keys: ArrayVec<Option<StoreKey<'a>>, N>,
    pub(crate) denial_caching: ArrayVec<DenialCaching, N>,
    pub(crate) ids: ArrayVec<DenialId, N>,
    /// Whether they are counters of envoyproxy/ratelimit. This node keeps no record of their charges.
    pub(crate) are_counters: bool,
}

impl<'a, const N: usize> StoreBatch<'a, N> {
    pub(crate) fn new(
        checks: &[QuotaCheck<'a>],
        sharing: &[Sharing<'a>],
        sources: &[DecisionSource],
        id: impl Fn(usize, &QuotaCheck<'_>, u64) -> DenialId,
    ) -> Self {
        let mut batch = Self {
            partitions: ArrayVec::new(),
            positions: ArrayVec::new(),
            checks: ArrayVec::new(),
            slot_keys: ArrayVec::new(),
            denial_caching: ArrayVec::new(),
            ids: ArrayVec::new(),
            are_counters: false,
        };
        let checks = checks.iter().zip(sharing).zip(sources).enumerate();
        for (position, ((check, sharing), source)) in checks {
            if let DecisionSource::Store { partition } = source {
                if !batch.partitions.contains(partition) {
                    batch.partitions.push(*partition);
                }
                batch.positions.push(position);
                batch.checks.push(*check);
                batch.slot_keys.push(sharing.slot_key);
                batch.denial_caching.push(sharing.denial_caching);
                batch.are_counters |= sharing.is_envoy_counter;
                batch.ids.push(id(position, check, sharing.version));
            }
        }
        if batch.slot_keys.iter().all(Option::is_none) {
            batch.slot_keys.clear();
        }
        batch
    }
}
