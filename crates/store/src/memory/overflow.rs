//! What decides for a newcomer when every slot it could have belongs to a key that is being denied.
//!
//! A sketch of bucket states: it may deny too much, never too little. Limits that are not buckets are stood in for by
//! one that admits no more than they do. Must not know: tables, shelves.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tollgate_core::limit::{Limit, Quota};
use tollgate_core::sketch::Sketch;
use tollgate_core::{InvalidQuota, Nanos, Rate, TokenBucket, Window};

/// Rows and cells of the sketch: half a mebibyte.
const ROWS: usize = 4;
const WIDTH: usize = 1 << 14;
/// The longest month, for a calendar whose length is not fixed.
const LONGEST_MONTH: Nanos = Nanos::from_secs(31 * 86_400);

/// The overflow sketch of one store, for all of its limits.
#[derive(Debug)]
pub(super) struct Overflow {
    sketch: Mutex<Sketch>,
    decisions: AtomicU64,
}

impl Overflow {
    pub(super) fn new() -> Result<Self, InvalidQuota> {
        // The sketch's own quota is never asked: each limit decides by its own.
        let quota = TokenBucket::at(Rate::per_second(0)).build()?;
        let sketch = Mutex::new(Sketch::new(quota, ROWS, WIDTH)?);
        Ok(Self {
            sketch,
            decisions: AtomicU64::new(0),
        })
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Sketch> {
        self.decisions.fetch_add(1, Ordering::Relaxed);
        // A cell is raised in one assignment, so a panic elsewhere leaves nothing half done.
        self.sketch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How often the overflow had to decide.
    pub(super) fn decisions(&self) -> u64 {
        self.decisions.load(Ordering::Relaxed)
    }
}

/// A bucket that admits no more than the limit does, in the long run and at once. `None` where there is no such thing.
pub(super) fn stand_in(limit: &Limit) -> Option<TokenBucket> {
    let even = |units, period| TokenBucket::at(Rate::new(units, period)).burst(units.max(1));
    let builder = match limit.quota() {
        Quota::TokenBucket(quota) => return Some(*quota),
        Quota::LeakyBucket(quota) => {
            TokenBucket::at(Rate::new(1, quota.interval())).burst(quota.limit())
        }
        Quota::FixedWindow(quota) => match quota.window() {
            Window::Epoch(length) | Window::FirstHit(length) => even(quota.limit(), length),
            _ => even(quota.limit(), LONGEST_MONTH),
        },
        Quota::SlidingLog(quota) => even(quota.limit(), quota.window()),
        Quota::SlidingCounter(quota) => even(quota.limit(), quota.window()),
        _ => return None,
    };
    builder.build().ok()
}
