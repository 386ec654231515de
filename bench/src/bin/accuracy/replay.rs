//! Replaying an access log: each source's requests in order of time, under clocks that begin their windows at
//! different instants.
//!
//! A log tells time in whole seconds. *File order* leaves requests of one second at the same instant, one after the
//! other; *spread* gives the n-th of m requests that a source made in a second the offset n/m. The truth lies
//! somewhere between, so the study shows both.
//!
//! Must not know: how lines are written, how requests are judged.

use tollgate_core::Timestamp;

use crate::log_file::AccessLog;

const SECOND: u64 = 1_000_000_000;

/// Where requests lie within their second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WithinSecond {
    FileOrder,
    Spread,
}

/// The instants of each source's requests, in order, in nanoseconds since 1970.
#[derive(Debug)]
pub(crate) struct Replay {
    sources: Vec<Vec<u64>>,
}

impl Replay {
    pub(crate) fn new(log: &AccessLog, within: WithinSecond) -> Self {
        let mut sources = vec![Vec::new(); log.sources];
        for request in &log.requests {
            if let Some(instants) = sources.get_mut(request.source) {
                instants.push(request.second * SECOND);
            }
        }
        for instants in &mut sources {
            // Stable or not makes no difference: two requests of one source and one second are alike.
            instants.sort_unstable();
            if within == WithinSecond::Spread {
                spread(instants);
            }
        }
        Self { sources }
    }

    /// Each source's requests, by a clock that is this many seconds ahead. Windows are aligned to the clock, so this
    /// moves their boundaries through the traffic.
    pub(crate) fn ahead_by(
        &self,
        seconds: u64,
    ) -> impl Iterator<Item = impl Iterator<Item = Timestamp>> {
        self.sources.iter().map(move |instants| {
            instants
                .iter()
                .map(move |instant| Timestamp::from_nanos(instant + seconds * SECOND))
        })
    }
}

fn spread(instants: &mut [u64]) {
    for same in instants.chunk_by_mut(|a, b| a == b) {
        let many = same.len() as u64;
        for (n, instant) in (0..).zip(same) {
            // Whole microseconds: the resolution of the product's log.
            *instant += SECOND / 1_000 * n / many * 1_000;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log_file::Request;

    fn instants(within: WithinSecond, ahead: u64) -> Vec<Vec<u64>> {
        let at = |source, second| Request { source, second };
        let log = AccessLog {
            requests: vec![at(0, 7), at(1, 5), at(0, 5), at(0, 7), at(0, 7)],
            sources: 2,
            cut_off: 0,
        };
        Replay::new(&log, within)
            .ahead_by(ahead)
            .map(|source| source.map(|at| at.as_nanos() / 1_000).collect())
            .collect()
    }

    #[test]
    fn each_source_s_requests_are_sorted_and_stay_together_in_file_order() {
        let found = instants(WithinSecond::FileOrder, 0);
        assert_eq!(found[0], [5_000_000, 7_000_000, 7_000_000, 7_000_000]);
        assert_eq!(found[1], [5_000_000]);
    }

    #[test]
    fn requests_of_one_second_are_spread_over_it() {
        let found = instants(WithinSecond::Spread, 0);
        assert_eq!(found[0], [5_000_000, 7_000_000, 7_333_333, 7_666_666]);
    }

    #[test]
    fn a_clock_that_is_ahead_moves_everything() {
        assert_eq!(instants(WithinSecond::FileOrder, 30)[1], [35_000_000]);
    }
}
