//! The retry budget: retries are a bounded part of all requests, so that retries cannot multiply an overload.
//!
//! Must not know: why a request is retried.

/// A budget of retries, shared by all tasks of a pacer.
///
/// ```
/// use tollgate_client::RetryBudget;
///
/// // One retry for every five requests, and two more.
/// let mut budget = RetryBudget::new(0.2, 2.0);
/// assert!(budget.withdraw() && budget.withdraw() && !budget.withdraw());
/// (0..5).for_each(|_| budget.deposit());
/// assert!(budget.withdraw() && !budget.withdraw());
/// ```
#[derive(Clone, Debug)]
pub struct RetryBudget {
    balance: f64,
    ratio: f64,
    max: f64,
}

impl RetryBudget {
    /// A budget of `ratio` retries for each request. `reserve` retries are available at first.
    #[must_use]
    pub fn new(ratio: f64, reserve: f64) -> Self {
        let reserve = reserve.max(0.0);
        Self {
            balance: reserve,
            ratio: ratio.clamp(0.0, 1.0),
            // A long quiet time must not save up a storm of retries.
            max: (reserve * 10.0).max(1.0),
        }
    }

    /// Counts a request that is not a retry.
    pub fn deposit(&mut self) {
        self.balance = (self.balance + self.ratio).min(self.max);
    }

    /// Takes one retry out of the budget. Returns whether there was one.
    pub fn withdraw(&mut self) -> bool {
        // Sums of decimal fractions are a little below their whole numbers.
        let has_one = self.balance > 1.0 - 1e-9;
        if has_one {
            self.balance -= 1.0;
        }
        has_one
    }
}
