//! The retry budget: each request earns a part of a retry, so that retries never multiply the load of an outage.
//!
//! Must not know: which requests may be sent again.

use std::sync::atomic::{AtomicU32, Ordering};

/// What one retry costs: a share of 100 % in hundredths of a percent.
const RETRY_COST: u32 = 10_000;
/// The most retries that can be saved up. As many are there at the start, for upstreams with few requests.
const MAX_SAVED: u32 = 10;

/// The retry budget of one upstream: retries are at most a share of the first tries.
///
/// ```
/// use tollgate_overload::RetryBudget;
///
/// // One fifth of the first tries, and ten to begin with.
/// let budget = RetryBudget::from_hundredths_of_percent(2_000);
/// budget.record_request();
/// assert!(budget.take());
/// ```
#[derive(Debug)]
pub struct RetryBudget {
    /// What a request earns.
    share: u32,
    saved: AtomicU32,
}

impl RetryBudget {
    /// A budget of this share of the first tries, in hundredths of a percent.
    #[must_use]
    pub fn from_hundredths_of_percent(share: u16) -> Self {
        Self {
            share: u32::from(share),
            saved: AtomicU32::new(MAX_SAVED * RETRY_COST),
        }
    }

    /// Records a request that is sent for the first time.
    pub fn record_request(&self) {
        let earn = |saved: u32| {
            let more = saved.saturating_add(self.share).min(MAX_SAVED * RETRY_COST);
            (more != saved).then_some(more)
        };
        let (success, failure) = (Ordering::Relaxed, Ordering::Relaxed);
        // An error means that the budget is full.
        let _full = self.saved.fetch_update(success, failure, earn);
    }

    /// Takes a retry. Returns whether there was one.
    #[must_use]
    pub fn take(&self) -> bool {
        let spend = |saved: u32| saved.checked_sub(RETRY_COST);
        let (success, failure) = (Ordering::Relaxed, Ordering::Relaxed);
        self.saved.fetch_update(success, failure, spend).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_gets_its_share_of_retries_and_no_more() {
        let budget = RetryBudget::from_hundredths_of_percent(2_000);
        let mut retries = 0;
        for _ in 0..1_000 {
            budget.record_request();
            retries += u32::from(budget.take());
        }
        assert_eq!(
            retries,
            200 + MAX_SAVED - 1,
            "one fifth, and what was saved"
        );
    }

    #[test]
    fn savings_are_bounded() {
        let budget = RetryBudget::from_hundredths_of_percent(10_000);
        for _ in 0..1_000 {
            budget.record_request();
        }
        let retries = (0..1_000).filter(|_| budget.take()).count();
        assert_eq!(retries, MAX_SAVED as usize);
    }
}
