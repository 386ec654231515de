//! Who decides on each check of a batch, and what of it the store is asked.
//!
//! Must not know: how anything is decided, breakers, stores.

use arrayvec::ArrayVec;
use tollgate_store::{Check, Key};

use crate::asks::Shared;
use crate::deny_cache::{Keep, Who};

/// Room for one thing of each check. Most batches have one check, and room for the most would be cleared and copied in every
/// decision: so the procedure is made for each of a few sizes.
pub(super) type Few<T, const N: usize> = ArrayVec<T, N>;

/// Who decides on a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// This node, by the limit itself, which is its own.
    Own,
    /// This node, by slices that it has of the limit.
    Leased { part: usize },
    /// This node, which tells the store now and then.
    Counted { part: usize },
    /// The store.
    Shared { part: usize },
    /// This node, because that part of the store is away.
    Away { part: usize },
}

impl Way {
    pub(super) const fn go_without(&mut self) {
        if let Self::Shared { part } = self {
            *self = Self::Away { part: *part };
        }
    }

    pub(super) const fn without_store(self) -> Self {
        match self {
            Self::Shared { part } => Self::Away { part },
            // Decided already.
            Self::Own | Self::Leased { .. } | Self::Counted { .. } | Self::Away { .. } => Self::Own,
        }
    }
}

/// What the store is asked of a batch.
pub(super) struct Asked<'a, const N: usize> {
    /// Every part of the store that it concerns.
    pub(super) parts: Few<usize, N>,
    pub(super) positions: Few<usize, N>,
    pub(super) checks: Few<Check<'a>, N>,
    pub(super) places: Few<Option<Key<'a>>, N>,
    pub(super) keeps: Few<Keep, N>,
    pub(super) whose: Few<Who, N>,
    /// Whether they are Envoy's counters, which are not noted on this node.
    pub(super) are_counters: bool,
}

impl<'a, const N: usize> Asked<'a, N> {
    pub(super) fn of(
        checks: &[Check<'a>],
        shared: &'a impl Shared,
        ways: &[Way],
        who: impl Fn(usize, &Check<'_>, u64) -> Who,
    ) -> Self {
        let mut asked = Self {
            parts: Few::new(),
            positions: Few::new(),
            checks: Few::new(),
            places: Few::new(),
            keeps: Few::new(),
            whose: Few::new(),
            are_counters: false,
        };
        for (position, (check, way)) in checks.iter().zip(ways).enumerate() {
            if let Way::Shared { part } = way {
                let sharing = shared.sharing(position);
                if !asked.parts.contains(part) {
                    asked.parts.push(*part);
                }
                asked.positions.push(position);
                asked.checks.push(*check);
                asked.places.push(sharing.place);
                asked.keeps.push(sharing.keep);
                asked.are_counters |= sharing.is_counter;
                asked.whose.push(who(position, check, sharing.generation));
            }
        }
        if asked.places.iter().all(Option::is_none) {
            asked.places.clear();
        }
        asked
    }
}
