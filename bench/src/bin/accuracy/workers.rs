//! Sharing the sources of a population among threads. Each takes the next source that nobody has taken and adds up by
//! itself; the sums are added at the end. They are whole numbers, so it makes no difference who did what.
//!
//! Must not know: what is measured, how it is printed.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use crate::candidates::{Counter, Limit};
use crate::counts::DecisionCounts;
use crate::study::StudyJudge;
use crate::traffic::{Population, TrafficKind};

/// The faults of the counter over a population, by kind of source in the order of [`TrafficKind::ALL`].
pub(crate) type ByKind = [DecisionCounts; TrafficKind::ALL.len()];

/// Judges the counter on all sources of a population.
pub(crate) fn judge(
    population: &Population,
    limit: &Limit,
    threads: usize,
) -> Result<ByKind, String> {
    let next = AtomicU64::new(0);
    let work = || work(population, limit, &next);
    let parts = thread::scope(|scope| {
        // All are started before the first is waited for.
        let crew: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(work)).collect();
        crew.into_iter()
            .map(|member| {
                member
                    .join()
                    .map_err(|_panic| "a thread panicked".to_owned())?
            })
            .collect::<Result<Vec<ByKind>, String>>()
    })?;
    let mut all = ByKind::default();
    for part in &parts {
        for (sum, tally) in all.iter_mut().zip(part) {
            sum.add(tally);
        }
    }
    Ok(all)
}

/// All kinds together.
pub(crate) fn total(by_kind: &ByKind) -> DecisionCounts {
    let mut total = DecisionCounts::default();
    by_kind.iter().for_each(|tally| total.add(tally));
    total
}

fn work(population: &Population, limit: &Limit, next: &AtomicU64) -> Result<ByKind, String> {
    let counter = Counter::new(limit).map_err(|error| error.to_string())?;
    let mut judge = StudyJudge::new(limit, counter).map_err(|error| error.to_string())?;
    let mut found = ByKind::default();
    loop {
        let index = next.fetch_add(1, Ordering::Relaxed);
        if index >= population.sources() {
            return Ok(found);
        }
        let source = population.source(index);
        let kind = source.kind;
        let tally = TrafficKind::ALL
            .iter()
            .zip(&mut found)
            .find(|(known, _)| **known == kind);
        if let Some((_, tally)) = tally {
            judge.source(source.arrivals(), tally);
        }
    }
}

#[cfg(test)]
mod tests {
    use tollgate_core::Nanos;

    use super::*;

    #[test]
    fn the_result_does_not_depend_on_the_number_of_threads() {
        let limit = Limit::new(100, Nanos::MINUTE);
        let population = Population::new(200_000, 500, 9, limit);
        let alone = judge(&population, &limit, 1).unwrap();
        assert_eq!(alone, judge(&population, &limit, 2).unwrap());
        assert_eq!(alone, judge(&population, &limit, 7).unwrap());
        assert_eq!(total(&alone).requests, 200_000);
        assert_eq!(total(&alone).sources, 500);
    }
}
