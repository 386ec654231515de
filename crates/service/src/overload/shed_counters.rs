//! Counts shed requests by mechanism, class and mode.
//!
//! Must not know: names of classes, metrics pages.

use std::sync::atomic::{AtomicU64, Ordering};

use tollgate_overload::{MAX_CLASSES, PriorityClass};
use tollgate_policy::model::Mode;

/// What sheds requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShedMechanism {
    /// The adaptive concurrency limit and its queue.
    Concurrency,
    /// The worker utilization shedder.
    Utilization,
    /// The reserve of the first class.
    Reserve,
}

impl ShedMechanism {
    /// All of them, in the order of the metrics page.
    pub const ALL: [Self; 3] = [Self::Concurrency, Self::Utilization, Self::Reserve];

    /// The field of `overload` that switches it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Concurrency => "adaptive_concurrency",
            Self::Utilization => "utilization",
            Self::Reserve => "reserve",
        }
    }

    const fn index(self) -> usize {
        match self {
            Self::Concurrency => 0,
            Self::Utilization => 1,
            Self::Reserve => 2,
        }
    }
}

/// One mechanism and class: requests that were shed, and requests that would have been.
#[derive(Debug, Default)]
struct ModeCounters {
    enforced: AtomicU64,
    shadow: AtomicU64,
}

#[derive(Debug, Default)]
pub(super) struct ShedCounters {
    counters: [[ModeCounters; MAX_CLASSES]; ShedMechanism::ALL.len()],
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
