//! Counts shed requests by mechanism, class and mode.
//!
//! Must not know: names of classes, metrics pages.

use std::sync::atomic::{AtomicU64, Ordering};

use tollgate_overload::{MAX_CLASSES, PriorityClass};
use tollgate_policy::model::{Mode, ShedMechanism};

use super::credits::OfferCounters;

/// One mechanism and class: requests that were shed, and requests that would have been.
#[derive(Debug, Default)]
struct ModeCounters {
    enforced: AtomicU64,
    shadow: AtomicU64,
}

#[derive(Debug, Default)]
pub(super) struct ShedCounters {
    counters: [[ModeCounters; MAX_CLASSES]; ShedMechanism::ALL.len()],
    pub(super) offers: OfferCounters,
}

impl ShedCounters {
    /// Counts a request that a mechanism sheds. Returns whether it is really shed.
    pub(super) fn record(
        &self,
        mechanism: ShedMechanism,
        class: PriorityClass,
        mode: Mode,
    ) -> bool {
        if let Some(counters) = self.of(mechanism, class.index()) {
            let counter = match mode {
                Mode::Enforce => &counters.enforced,
                Mode::Shadow => &counters.shadow,
                Mode::Off => return false,
            };
            counter.fetch_add(1, Ordering::Relaxed);
        }
        mode == Mode::Enforce
    }

    /// How many were shed, and how many would have been.
    pub(super) fn counts(&self, mechanism: ShedMechanism, class: usize) -> (u64, u64) {
        self.of(mechanism, class).map_or((0, 0), |counters| {
            let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
            (load(&counters.enforced), load(&counters.shadow))
        })
    }

    fn of(&self, mechanism: ShedMechanism, class: usize) -> Option<&ModeCounters> {
        self.counters.get(mechanism.index())?.get(class)
    }
}
