//! Logs, leases and sketches: state that is read in place and edited.

use std::hint::black_box;

use tollgate_core::concurrency::{LeaseId, LeaseSet};
use tollgate_core::sketch::Sketch;
use tollgate_core::sliding_log::Log;
use tollgate_core::{Concurrency, Nanos, Rate, SlidingLog, TokenBucket};

use super::{CaseRun, NOW};
use crate::measure::measured_section;

/// A decision on a log of 100 a minute that holds `held` entries. The edit is not applied.
pub(super) fn log(times: u64, held: u64) -> CaseRun {
    let quota = SlidingLog::builder(100, Nanos::MINUTE).build()?;
    let mut log = Log::default();
    for n in 0..held {
        if let Some(edit) = quota.decide(&log, NOW.after(Nanos::from_millis(n)), 1).next {
            log.apply(edit);
        }
    }
    let now = NOW.after(Nanos::SECOND);
    measured_section(times, || {
        let (log, now, cost) = black_box((&log, now, 1));
        black_box(&quota).decide(log, now, cost)
    });
    Ok(())
}

/// A decision on a limit of 100 at once of which `held` are taken. The edit is not applied.
pub(super) fn acquire(times: u64, held: u128) -> CaseRun {
    let quota = Concurrency::new(100, Nanos::MINUTE)?;
    let mut leases = LeaseSet::default();
    for n in 0..held {
        if let Some(edit) = quota.acquire(&leases, NOW, LeaseId(n), 1).next {
            leases.apply(edit);
        }
    }
    measured_section(times, || {
        let (leases, now, id) = black_box((&leases, NOW, LeaseId(1_000)));
        black_box(&quota).acquire(leases, now, id, 1)
    });
    Ok(())
}

/// An admission through four rows, cells raised.
pub(super) fn sketch(times: u64) -> CaseRun {
    let quota = TokenBucket::builder(Rate::per_second(1_000_000)).build()?;
    let mut sketch = Sketch::new(quota, 4, 1_024)?;
    measured_section(times, || {
        let (hash, now, cost) = black_box((7, NOW, 1));
        sketch.decide(hash, now, cost)
    });
    Ok(())
}
