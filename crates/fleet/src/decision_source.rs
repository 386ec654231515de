//! Who decides on each check of a batch, and what of it the store is asked.
//!
//! Must not know: how anything is decided, breakers, stores.

use arrayvec::ArrayVec;
use tollgate_engine::{DenialCaching, Sharing};
use tollgate_store::{QuotaCheck, StoreKey};

use crate::denial_cache::DenialId;

/// Who decides on a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DecisionSource {
    /// This node, by the limit itself, which is its own.
    Local,
    /// This node, by slices that it has leased of the limit.
    Lease { part: usize },
    /// This node, which reconciles its count with the store now and then.
    Async { part: usize },
    /// The store.
    Store { part: usize },
    /// This node, because that part of the store is away.
    Fallback { part: usize },
    /// It is decided already.
    Decided,
}

impl DecisionSource {
    /// Whether the store may be asked: counts that there is no room for become the store's.
    pub(crate) const fn may_ask_store(&self) -> bool {
        matches!(self, Self::Store { .. } | Self::Async { .. })
    }

    /// This node decides what the store was to decide.
    pub(crate) const fn use_fallback(&mut self) {
        if let Self::Store { part } = self {
            *self = Self::Fallback { part: *part };
        }
    }

    /// The same after everything else was decided.
    pub(crate) const fn fall_back_to_local(&mut self) {
        *self = match self {
            Self::Store { part } => Self::Fallback { part: *part },
            _ => Self::Decided,
        };
    }
}

/// What the store is asked of a batch.
pub(crate) struct StoreBatch<'a, const N: usize> {
    /// Every part of the store that it concerns.
    pub(crate) partitions: ArrayVec<usize, N>,
    pub(crate) positions: ArrayVec<usize, N>,
    pub(crate) checks: ArrayVec<QuotaCheck<'a>, N>,
    pub(crate) slot_keys: ArrayVec<Option<StoreKey<'a>>, N>,
    pub(crate) denial_caching: ArrayVec<DenialCaching, N>,
    pub(crate) ids: ArrayVec<DenialId, N>,
    /// Whether they are counters of envoyproxy/ratelimit, which are not noted on this node.
    pub(crate) are_counters: bool,
}

impl<'a, const N: usize> StoreBatch<'a, N> {
    pub(crate) fn new(
        checks: &[QuotaCheck<'a>],
        sharing: &[Sharing<'a>],
        sources: &[DecisionSource],
        id: impl Fn(usize, &QuotaCheck<'_>, u64) -> DenialId,
    ) -> Self {
        let mut asked = Self {
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
            if let DecisionSource::Store { part } = source {
                if !asked.partitions.contains(part) {
                    asked.partitions.push(*part);
                }
                asked.positions.push(position);
                asked.checks.push(*check);
                asked.slot_keys.push(sharing.slot_key);
                asked.denial_caching.push(sharing.denial_caching);
                asked.are_counters |= sharing.is_envoy_counter;
                asked.ids.push(id(position, check, sharing.version));
            }
        }
        if asked.slot_keys.iter().all(Option::is_none) {
            asked.slot_keys.clear();
        }
        asked
    }
}
