//! Counters and comparisons that survive a reload, found by the limit's name.
//!
//! Must not know: what is counted.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use tollgate_policy::rules::{Rule, Rules};

use crate::candidate::Comparison;
use crate::counters::LimitCounters;

/// The most counters kept for removed limits, in case a later policy has them again.
const MAX_RETIRED: usize = 10_000;

/// Counters and comparisons that survive a reload.
#[derive(Debug, Default)]
pub(crate) struct CarriedOverCounters {
    counters: HashMap<Box<str>, Arc<LimitCounters>>,
    comparisons: HashMap<Box<str>, Arc<Comparison>>,
}

impl CarriedOverCounters {
    /// Drops the counters of removed limits if there are more than [`MAX_RETIRED`].
    pub(crate) fn prune(&mut self, rules: &Rules) {
        let max = rules.rules().len().saturating_add(MAX_RETIRED);
        if self.counters.len() > max || self.comparisons.len() > max {
            let names: HashSet<&str> = rules.rules().iter().map(|rule| &*rule.name).collect();
            self.counters.retain(|name, _| names.contains(&**name));
            self.comparisons.retain(|name, _| names.contains(&**name));
        }
    }

    pub(crate) fn counters(&mut self, rule: &Rule) -> Arc<LimitCounters> {
        let counters = self.counters.entry(rule.name.clone());
        Arc::clone(counters.or_insert_with(|| Arc::new(LimitCounters::new())))
    }

    /// The comparison with a rule's candidate. It continues over reloads while the compared quotas stay the same.
    pub(crate) fn comparison(&mut self, rule: &Rule) -> Option<Arc<Comparison>> {
        if let Some(existing) = self
            .comparisons
            .get(&rule.name)
            .filter(|existing| existing.compares_quotas_of(rule))
        {
            return Some(Arc::clone(existing));
        }
        let new = Arc::new(Comparison::for_rule(rule)?);
        self.comparisons.insert(rule.name.clone(), Arc::clone(&new));
        Some(new)
    }
}
