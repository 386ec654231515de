//! Credits: how many requests clients may send soon, so that herds do not form.
//!
//! After Breakwater (OSDI 2020): the pool grows while requests hardly wait, and shrinks with the excess delay. A client gets
//! an equal part. Must not know: clients, header fields, time.

use tollgate_core::Nanos;

/// The part by which the pool grows.
const GROWTH: f64 = 0.05;
/// The part by which the pool shrinks for each target that requests wait above the target, and the most at a time.
const SHRINK: f64 = 0.1;
const MOST_SHRINK: f64 = 0.5;
/// The pool is at most this many times the concurrency limit: not every credit is used at once.
const MOST_LIMITS: f64 = 4.0;

/// The credits of all clients of one upstream.
///
/// ```
/// use tollgate_core::Nanos;
/// use tollgate_overload::CreditPool;
///
/// let mut pool = CreditPool::new();
/// let target = Nanos::from_millis(5);
/// pool.observe(Nanos::ZERO, target, 100);
/// let before = pool.credits_per_client(4);
/// pool.observe(Nanos::from_millis(50), target, 100);
/// assert!(pool.credits_per_client(4) < before);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct CreditPool {
    credits: f64,
}

impl CreditPool {
    /// A pool that has observed nothing: one credit.
    #[must_use]
    pub const fn new() -> Self {
        Self { credits: 1.0 }
    }

    /// Records how long requests wait, against the wait that is acceptable, and the concurrency limit. To be called once
    /// for each latency of the upstream.
    pub fn observe(&mut self, queue_delay: Nanos, target: Nanos, limit: u32) {
        let limit = f64::from(limit.max(1));
        let target = nanos(target).max(1.0);
        let excess = (nanos(queue_delay) - target) / target;
        self.credits = if excess <= 0.0 {
            self.credits.max(limit) * (1.0 + GROWTH)
        } else {
            self.credits * (1.0 - (SHRINK * excess).min(MOST_SHRINK))
        }
        .clamp(1.0, MOST_LIMITS * limit);
    }

    /// What each of so many clients may send until the next answer.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the pool is between 1 and 4 times the largest limit"
    )]
    pub fn credits_per_client(&self, clients: u32) -> u32 {
        (self.credits / f64::from(clients.max(1))) as u32
    }
}

impl Default for CreditPool {
    fn default() -> Self {
        Self::new()
    }
}

#[expect(clippy::cast_precision_loss, reason = "a delay needs no 53 bits")]
fn nanos(span: Nanos) -> f64 {
    span.as_nanos() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGET: Nanos = Nanos::from_millis(5);

    #[test]
    fn credits_grow_to_a_bound_and_shrink_with_the_delay() {
        let mut pool = CreditPool::new();
        for _ in 0..1_000 {
            pool.observe(Nanos::ZERO, TARGET, 100);
        }
        assert_eq!(pool.credits_per_client(1), 400);
        assert_eq!(pool.credits_per_client(3), 133);
        pool.observe(Nanos::from_millis(10), TARGET, 100);
        assert_eq!(pool.credits_per_client(1), 360);
        for _ in 0..1_000 {
            pool.observe(Nanos::MAX, TARGET, 100);
        }
        assert_eq!(pool.credits_per_client(1), 1, "one credit always stays");
        assert_eq!(pool.credits_per_client(u32::MAX), 0);
    }

    #[test]
    fn zeros_are_harmless() {
        let mut pool = CreditPool::new();
        pool.observe(Nanos::ZERO, Nanos::ZERO, 0);
        assert!(pool.credits_per_client(0) >= 1);
    }
}
