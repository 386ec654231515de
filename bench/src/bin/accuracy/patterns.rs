//! Arrivals made by hand that show the counter at its best and at its worst. Not drawn from anything: each line of
//! the table has an answer that can be worked out on paper.
//!
//! Must not know: how requests are judged, random numbers.

use tollgate_core::Timestamp;

use crate::candidates::Limit;

/// A boundary of every window that a study uses: a multiple of an hour.
const BOUNDARY: u64 = 1_699_999_200;
/// How many windows a pattern lasts.
const WINDOWS: u64 = 1_000;

/// How one client sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pattern {
    /// So many percent of the limit in each window, evenly spaced: the counter's assumption holds.
    Even { percent: u64 },
    /// A job that runs once each window and sends 90 % of the limit at once, so many percent into the window.
    Scheduled { into: u64 },
    /// The whole limit just before a boundary, then ten times the limit through the window after it, then two windows
    /// of silence.
    AcrossBoundary,
}

impl Pattern {
    pub(crate) const ALL: [Self; 6] = [
        Self::Even { percent: 90 },
        Self::Even { percent: 110 },
        Self::Scheduled { into: 0 },
        Self::Scheduled { into: 50 },
        Self::Scheduled { into: 99 },
        Self::AcrossBoundary,
    ];

    pub(crate) fn name(self) -> String {
        match self {
            Self::Even { percent } => format!("even, {percent} % of the limit"),
            Self::Scheduled { into: 0 } => "90 % at once, at the start of every window".to_owned(),
            Self::Scheduled { into: 99 } => "90 % at once, at the end of every window".to_owned(),
            Self::Scheduled { into } => {
                format!("90 % at once, {into} % into every window")
            }
            Self::AcrossBoundary => "all of it before a boundary, a flood after".to_owned(),
        }
    }

    /// Its requests, in order of time.
    pub(crate) fn arrivals(self, limit: &Limit) -> impl Iterator<Item = Timestamp> + use<> {
        let window = limit.window.as_nanos();
        let limit = u64::from(limit.limit);
        (0..WINDOWS).flat_map(move |index| {
            let start = BOUNDARY * 1_000_000_000 + index * window;
            self.in_window(index, window, limit)
                .map(move |offset| Timestamp::from_nanos(start + offset / 1_000 * 1_000))
        })
    }

    /// Nanoseconds into the window with this number.
    fn in_window(self, index: u64, window: u64, limit: u64) -> impl Iterator<Item = u64> + use<> {
        // From, how far apart, how many.
        let (from, apart, many) = match self {
            Self::Even { percent } => {
                let many = limit * percent / 100;
                (0, window / many.max(1), many)
            }
            Self::Scheduled { into } => (window / 100 * into, 1_000, limit * 90 / 100),
            Self::AcrossBoundary => match index % 4 {
                0 => (window - 1_000 * limit, 1_000, limit),
                1 => (0, window / (10 * limit).max(1), 10 * limit),
                _ => (0, 0, 0),
            },
        };
        (0..many).map(move |n| from + n * apart)
    }
}

#[cfg(test)]
mod tests {
    use tollgate_core::Nanos;

    use super::*;
    use crate::candidates::Counter;
    use crate::counts::DecisionCounts;
    use crate::study::StudyJudge;

    fn judged(pattern: Pattern) -> DecisionCounts {
        let limit = Limit::new(100, Nanos::MINUTE);
        let mut judge = StudyJudge::new(&limit, Counter::new(&limit).unwrap()).unwrap();
        let mut tally = DecisionCounts::default();
        judge.source(pattern.arrivals(&limit), &mut tally);
        tally
    }

    #[test]
    fn every_pattern_is_in_order_of_time() {
        for pattern in Pattern::ALL {
            assert!(
                pattern
                    .arrivals(&Limit::new(100, Nanos::MINUTE))
                    .is_sorted(),
                "{pattern:?}"
            );
        }
    }

    #[test]
    fn evenly_spaced_requests_are_judged_without_a_fault() {
        // The estimate is above the truth by up to one request, so a limit of 100 is safe up to 98 of them.
        for percent in [50, 90, 98] {
            let tally = judged(Pattern::Even { percent });
            assert_eq!(tally.wrong(), 0, "{percent} %");
            assert_eq!(tally.enforced.admitted, tally.requests);
        }
    }

    #[test]
    fn a_job_at_the_start_of_every_window_is_counted_twice() {
        // 90 and 90 · 1: from the eleventh request on, the estimate is above 100 and the truth is 90.
        let tally = judged(Pattern::Scheduled { into: 0 });
        assert_eq!(tally.offered.wrong_rejects, 999 * 80);
        assert_eq!(tally.offered.sources_below_rejected, 1);
        assert_eq!(
            judged(Pattern::Scheduled { into: 50 })
                .offered
                .wrong_rejects,
            999 * 35
        );
    }

    #[test]
    fn a_flood_across_a_boundary_gets_almost_twice_the_limit_and_not_more() {
        let most = judged(Pattern::AcrossBoundary).enforced.most_in_window;
        assert!((195..200).contains(&most), "{most}");
    }
}
