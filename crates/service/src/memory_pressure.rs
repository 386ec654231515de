//! Logs when the memory for the keys of a limit becomes full, and when it no longer is: once per change, not per request.
//!
//! The memory store counts evictions and refusals per limit. This module compares the counts at intervals, so requests pay
//! nothing for it. Must not know: keys, requests, how states are evicted.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;
use tollgate_policy::model::WhenFull;
use tollgate_store::{Clock, LimitUsage};

use crate::service::RateLimitService;

/// The time between two comparisons.
const INTERVAL: Duration = Duration::from_secs(1);
/// After this many comparisons without an eviction or a refusal the memory of a limit is no longer full.
const QUIET_INTERVALS: u32 = 60;

/// The limits whose memory is full. Bounded by the number of limits in the policy.
#[derive(Debug, Default)]
struct MemoryPressure {
    limits: BTreeMap<Box<str>, LimitPressure>,
}

#[derive(Debug, Default)]
struct LimitPressure {
    last: LimitUsage,
    /// Comparisons since the last growth; `None` while the memory is not full.
    quiet: Option<u32>,
}

/// A change of one limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PressureChange {
    Full,
    Over,
}

impl<C: Clock + 'static> RateLimitService<C> {
    /// Logs when memory for the keys of a limit is full. Never completes; spawn it as a task beside the listeners.
    pub async fn log_memory_pressure(self: Arc<Self>) {
        let mut pressure = MemoryPressure::default();
        loop {
            sleep(INTERVAL).await;
            self.compare_memory(&mut pressure);
        }
    }

    fn compare_memory(&self, pressure: &mut MemoryPressure) {
        let generation = self.engine().generation();
        let rules = generation.rules().rules();
        pressure
            .limits
            .retain(|name, _| rules.iter().any(|rule| rule.name == *name));
        for (index, rule) in rules.iter().enumerate() {
            let usage = self.limit_usage(&generation, index);
            let (evictions, refusals) = (usage.evictions, usage.overflow_refusals);
            match pressure.observe(&rule.name, usage) {
                Some(PressureChange::Full) => {
                    let when_full = match rule.when_full {
                        WhenFull::Refuse => "refuse",
                        WhenFull::Forget => "forget",
                    };
                    tracing::warn!(
                        limit = &*rule.name,
                        when_full,
                        evictions,
                        refusals,
                        "memory for keys full"
                    );
                }
                Some(PressureChange::Over) => {
                    tracing::info!(
                        limit = &*rule.name,
                        evictions,
                        refusals,
                        "memory for keys no longer full"
                    );
                }
                None => {}
            }
        }
    }
}

impl MemoryPressure {
    /// Compares a limit's counts with the last ones.
    fn observe(&mut self, name: &str, usage: LimitUsage) -> Option<PressureChange> {
        if !self.limits.contains_key(name) {
            self.limits.insert(name.into(), LimitPressure::default());
        }
        let limit = self.limits.get_mut(name)?;
        let last = std::mem::replace(&mut limit.last, usage);
        let has_grown =
            usage.evictions > last.evictions || usage.overflow_decisions > last.overflow_decisions;
        match (has_grown, limit.quiet) {
            (true, before) => {
                limit.quiet = Some(0);
                before.is_none().then_some(PressureChange::Full)
            }
            (false, Some(quiet)) if quiet.saturating_add(1) >= QUIET_INTERVALS => {
                limit.quiet = None;
                Some(PressureChange::Over)
            }
            (false, Some(quiet)) => {
                limit.quiet = Some(quiet.saturating_add(1));
                None
            }
            (false, None) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_logged_once_when_its_memory_is_full_and_once_when_it_is_not() {
        let mut pressure = MemoryPressure::default();
        let usage = |evictions| LimitUsage {
            evictions,
            ..LimitUsage::default()
        };
        assert_eq!(pressure.observe("a", usage(0)), None);
        assert_eq!(pressure.observe("a", usage(1)), Some(PressureChange::Full));
        for evictions in 2..1_000 {
            assert_eq!(pressure.observe("a", usage(evictions)), None);
            assert_eq!(pressure.observe("b", usage(0)), None, "another limit");
        }
        let quiet: Vec<_> = (0..200)
            .filter_map(|_| pressure.observe("a", usage(999)))
            .collect();
        assert_eq!(quiet, [PressureChange::Over]);
        assert_eq!(
            pressure.observe("a", usage(1_000)),
            Some(PressureChange::Full)
        );
    }
}
