//! Whether an address gets requests: failures eject it for a while, and health checks take it out until they succeed.
//!
//! Time is handed in. Must not know: connections, other addresses.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use tollgate_core::{Nanos, Timestamp};
use tollgate_policy::model::{EjectionSpec, HealthCheckSpec};

/// The health of one address.
#[derive(Debug, Default)]
pub(super) struct EndpointHealth {
    /// Failures of requests in a row.
    failures: AtomicU32,
    /// Until when it is ejected, in nanoseconds since 1970.
    ejected_until: AtomicU64,
    ejections: AtomicU64,
    /// Whether health checks have failed.
    is_unhealthy: AtomicBool,
    /// Health checks in a row that contradict `is_unhealthy`.
    contradictions: AtomicU32,
}

impl EndpointHealth {
    /// Whether it gets requests.
    pub(super) fn is_available(&self, now: Timestamp) -> bool {
        !self.is_unhealthy.load(Ordering::Relaxed)
            && self.ejected_until.load(Ordering::Relaxed) <= now.as_nanos()
    }

    /// Records a response.
    pub(super) fn record_success(&self) {
        // Most responses find zero, and a load leaves the cache line shared.
        if self.failures.load(Ordering::Relaxed) != 0 {
            self.failures.store(0, Ordering::Relaxed);
        }
    }

    /// Records a failure. Returns whether the address should now be ejected.
    pub(super) fn record_failure(&self, spec: EjectionSpec) -> bool {
        let before = self.failures.fetch_add(1, Ordering::Relaxed);
        before.saturating_add(1) >= spec.failures
    }

    /// Ejects the address. Failures are counted from zero after that.
    pub(super) fn eject(&self, now: Timestamp, duration: Nanos) {
        let until = now.as_nanos().saturating_add(duration.as_nanos());
        self.ejected_until.store(until, Ordering::Relaxed);
        self.failures.store(0, Ordering::Relaxed);
        self.ejections.fetch_add(1, Ordering::Relaxed);
    }

    /// How often it was ejected.
    pub(super) fn ejections(&self) -> u64 {
        self.ejections.load(Ordering::Relaxed)
    }

    /// Records a health check. Returns the new state if it has changed.
    pub(super) fn record_check(&self, is_success: bool, spec: &HealthCheckSpec) -> Option<bool> {
        let is_unhealthy = self.is_unhealthy.load(Ordering::Relaxed);
        if is_success != is_unhealthy {
            self.contradictions.store(0, Ordering::Relaxed);
            return None;
        }
        let needed = match is_unhealthy {
            true => spec.healthy_after,
            false => spec.unhealthy_after,
        };
        let count = self
            .contradictions
            .fetch_add(1, Ordering::Relaxed)
            .saturating_add(1);
        if count < needed {
            return None;
        }
        self.contradictions.store(0, Ordering::Relaxed);
        self.is_unhealthy.store(!is_unhealthy, Ordering::Relaxed);
        Some(is_unhealthy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EJECTION: EjectionSpec = EjectionSpec {
        failures: 3,
        duration: Nanos::from_secs(30),
    };

    #[test]
    fn failures_in_a_row_eject_an_address_for_a_while() {
        let health = EndpointHealth::default();
        let now = Timestamp::from_secs(1_000);
        assert!(!health.record_failure(EJECTION) && !health.record_failure(EJECTION));
        health.record_success();
        assert!(!health.record_failure(EJECTION) && !health.record_failure(EJECTION));
        assert!(health.record_failure(EJECTION) && health.is_available(now));
        health.eject(now, EJECTION.duration);
        assert!(!health.is_available(now) && !health.is_available(Timestamp::from_secs(1_029)));
        assert!(health.is_available(Timestamp::from_secs(1_030)));
        assert!(!health.record_failure(EJECTION), "counted from zero");
        assert_eq!(health.ejections(), 1);
    }

    #[test]
    fn checks_in_a_row_change_the_health() {
        let (health, spec) = (EndpointHealth::default(), HealthCheckSpec::default());
        let now = Timestamp::from_secs(1);
        let record = |results: &[bool]| -> Vec<Option<bool>> {
            results
                .iter()
                .map(|ok| health.record_check(*ok, &spec))
                .collect()
        };
        assert_eq!(record(&[false, false, true, false, false]), [None; 5]);
        assert!(health.is_available(now));
        assert_eq!(record(&[false]), [Some(false)]);
        assert!(!health.is_available(now));
        assert_eq!(record(&[true, false, true]), [None; 3]);
        assert_eq!(record(&[true]), [Some(true)]);
        assert!(health.is_available(now));
    }
}
