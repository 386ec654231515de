//! The last known state of the cluster: a pool for each primary, and the owner of each slot. A moved slot is updated in
//! place; new or lost nodes make a new view. Must not know: how it was queried.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use super::super::slot::SLOTS;
use super::cluster_slots::SlotRange;
use crate::address::Endpoint;
use crate::pool::ConnectionPool;

/// No node owns the slot.
const NO_OWNER: u16 = u16::MAX;

#[derive(Debug)]
pub(super) struct ClusterView {
    pools: Vec<Arc<ConnectionPool>>,
    /// For each slot the index of its owner's pool.
    owners: Vec<AtomicU16>,
}

impl ClusterView {
    /// The view before the first refresh.
    pub(super) fn empty() -> Self {
        Self::new(Vec::new(), &[])
    }

    /// A view of these ranges. Ranges whose owner has no pool have no owner.
    pub(super) fn new(pools: Vec<Arc<ConnectionPool>>, ranges: &[SlotRange]) -> Self {
        let view = Self {
            pools,
            owners: std::iter::repeat_with(|| AtomicU16::new(NO_OWNER))
                .take(SLOTS)
                .collect(),
        };
        for range in ranges {
            for slot in range.first..=range.last {
                view.assign(slot, &range.owner);
            }
        }
        view
    }

    pub(super) fn pools(&self) -> &[Arc<ConnectionPool>] {
        &self.pools
    }

    pub(super) fn owner(&self, slot: u16) -> Option<&Arc<ConnectionPool>> {
        let owner = self.owners.get(usize::from(slot))?.load(Ordering::Relaxed);
        self.pools.get(usize::from(owner))
    }

    /// The pool of a node, if it is known.
    pub(super) fn find(&self, endpoint: &Endpoint) -> Option<&Arc<ConnectionPool>> {
        self.pools.iter().find(|pool| pool.endpoint() == endpoint)
    }

    /// Assigns the slot to this node.
    pub(super) fn assign(&self, slot: u16, to: &Endpoint) {
        let index = self.pools.iter().position(|pool| pool.endpoint() == to);
        let index = index.and_then(|index| u16::try_from(index).ok());
        if let (Some(owner), Some(index)) = (self.owners.get(usize::from(slot)), index) {
            owner.store(index, Ordering::Relaxed);
        }
    }

    /// Whether the same nodes own the same slots.
    pub(super) fn matches_ranges(&self, ranges: &[SlotRange]) -> bool {
        let has = |range: &SlotRange| {
            (range.first..=range.last).all(|slot| {
                self.owner(slot)
                    .is_some_and(|pool| *pool.endpoint() == range.owner)
            })
        };
        let expected = ranges
            .iter()
            .map(|range| usize::from(range.last - range.first) + 1)
            .sum::<usize>();
        let known = self
            .owners
            .iter()
            .filter(|owner| owner.load(Ordering::Relaxed) != NO_OWNER);
        ranges.iter().all(has) && expected == known.count()
    }
}
