//! This node's own tier: what stands in for a shared limit here, and what the store admits noted on it.
//!
//! Both are buckets on one state: the ceiling takes the limit's whole quota and never denies, so that what the store
//! admitted counts when it goes away; the stand-in gives this node's share. Quotas are compiled once and kept, for they are
//! looked up in every decision. Must not know: the store that is shared, when it is away.

use std::num::NonZeroU32;

use arc_swap::{ArcSwapAny, ArcSwapOption};
use std::sync::Arc;
use tollgate_core::limit::Limit;
use tollgate_store::{Answer, Check, LimitId, Note, Op, Ruled};

use super::Fleet;
use super::ask::Consulting;
use super::stand_in::{ceiling, counter, stand_in};
use crate::store::StateStore;

/// Limits whose quotas are kept. Two that fall on one place are compiled again and again, which is slower and not wrong.
const KEPT: usize = 256;

/// The quotas of this node's tier.
#[derive(Debug)]
pub(super) struct Shapes {
    kept: Box<[ArcSwapOption<Shape>]>,
}

/// What one limit is on this node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    limit: Limit,
    nodes: NonZeroU32,
    /// What decides while the store is away. `None`: nothing is admitted.
    pub(super) stand_in: Option<Limit>,
    /// The same for one of Envoy's counters. `None`: it is none.
    pub(super) counter: Option<Limit>,
    /// What takes note of what the store admitted. `None` where that is not counted in units.
    pub(super) ceiling: Option<Limit>,
}

impl Default for Shapes {
    fn default() -> Self {
        Self {
            kept: (0..KEPT).map(|_| ArcSwapOption::empty()).collect(),
        }
    }
}

impl Shapes {
    /// Something of what this limit is on one of so many nodes.
    pub(super) fn with<T>(
        &self,
        id: LimitId,
        limit: &Limit,
        nodes: NonZeroU32,
        read: impl FnOnce(&Shape) -> T,
    ) -> T {
        let place = usize::from(id.0.get()).checked_rem(self.kept.len());
        let place = place.and_then(|place| self.kept.get(place));
        // Looked at where it lies: it is large, and this is done in every decision.
        let kept = place.map(ArcSwapAny::load);
        if let Some(Some(shape)) = kept.as_deref()
            && shape.nodes == nodes
            && shape.limit == *limit
        {
            return read(shape);
        }
        let shape = Arc::new(Shape {
            limit: *limit,
            nodes,
            stand_in: stand_in(limit, nodes),
            counter: counter(limit, nodes),
            ceiling: ceiling(limit),
        });
        let something = read(&shape);
        if let Some(place) = place {
            place.store(Some(shape));
        }
        something
    }
}

/// A check that was carried out on this node, and what is needed to take it back.
#[derive(Clone, Copy, Debug)]
pub(super) struct Here {
    pub(super) position: usize,
    pub(super) ruled: Ruled,
    pub(super) by: By,
}

/// What it was carried out on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    /// A state of this node's store.
    State,
    /// A state that stands in for one of the store's. This part of it has to be told, if it can have heard nothing.
    StandIn {
        /// The part.
        owed: Option<usize>,
    },
    /// A slice.
    Slice,
    /// A count that is reconciled.
    Count,
}

impl<S: StateStore> Consulting<'_, S> {
    /// Takes back what was carried out on this node, because another limit refused.
    pub(super) fn take_back(&self, checks: &[Check<'_>], answers: &mut [Answer], done: &[Here]) {
        for here in done {
            let (Some(check), Some(answer)) =
                (checks.get(here.position), answers.get_mut(here.position))
            else {
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
            match here.by {
                By::State | By::StandIn { .. } => {}
                By::Slice => {
                    let back = self.fleet.leases.give_back(check, &answer.receipt, now());
                    answer.status.remaining = answer.status.remaining.saturating_add(back);
                    answer.receipt.cost = 0;
                    continue;
                }
                By::Count => {
                    self.fleet
                        .reconciled
                        .give_back(check, &answer.receipt, now());
                    answer.receipt.cost = 0;
                    continue;
                }
            }
            let back = Check {
                ruled: &here.ruled,
                op,
                ..*check
            };
            let mut after = [Answer::EMPTY];
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
    pub(super) fn note_admitted<S: StateStore>(
        &self,
        local: &S,
        check: &Check<'_>,
        answer: &Answer,
    ) {
        let (cost, true) = (answer.receipt.cost, answer.note == Note::Plain) else {
            return;
        };
        let spends = matches!(
            check.op,
            Op::Spend(_) | Op::SpendUpTo(_) | Op::ChargeAlways(_) | Op::Reserve { .. }
        );
        if cost == 0 || !spends {
            return;
        }
        let (id, whole) = (check.ruled.id, &check.ruled.limit);
        let ceiling = |shape: &Shape| shape.ceiling;
        let Some(limit) = self.shapes.with(id, whole, self.nodes(), ceiling) else {
            return;
        };
        let ruled = Ruled { id, limit };
        let noted = Check {
            ruled: &ruled,
            op: Op::ChargeAlways(cost),
            ..*check
        };
        // A key that there is no room for starts with its whole share when the store goes away.
        let _noted = local.decide(&[noted], &mut [Answer::EMPTY]);
    }
}
