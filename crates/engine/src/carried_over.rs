//! What is counted of a limit over all generations, found again by its name.
//!
//! Must not know: what is counted.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use tollgate_policy::rules::{Rule, Rules};

use crate::candidate::Comparison;
use crate::counters::LimitCounters;

/// So many counters of limits that are gone are kept, in case they return.
const MAX_RETIRED: usize = 10_000;

/// Counters and comparisons that outlive a generation.
#[derive(Debug, Default)]
pub(crate) struct CarriedOverCounters {
    counters: HashMap<Box<str>, Arc<LimitCounters>>,
    comparisons: HashMap<Box<str>, Arc<Comparison>>,
}

impl CarriedOverCounters {
    /// Forgets limits that are gone, if there are very many of them.
    pub(crate) fn prune(&mut self, rules: &Rules) {
        let most = rules.rules().len().saturating_add(MAX_RETIRED);
        if self.counters.len() > most || self.comparisons.len() > most {
            let names: HashSet<&str> = rules.rules().iter().map(|rule| &*rule.name).collect();
            self.counters.retain(|name, _| names.contains(&**name));
            self.comparisons.retain(|name, _| names.contains(&**name));
        }
    }

    pub(crate) fn counters(&mut self, rule: &Rule) -> Arc<LimitCounters> {
        let counters = self.counters.entry(rule.name.clone());
        Arc::clone(counters.or_insert_with(|| Arc::new(LimitCounters::new())))
    }

    /// The comparison with a rule's candidate. It goes on while the quotas that it compares stay the same.
    pub(crate) fn comparison(&mut self, rule: &Rule) -> Option<Arc<Comparison>> {
        if let Some(known) = self
            .comparisons
            .get(&rule.name)
            .filter(|known| known.compares_quotas_of(rule))
        {
            return Some(Arc::clone(known));
        }
        let new = Arc::new(Comparison::for_rule(rule)?);
        self.comparisons.insert(rule.name.clone(), Arc::clone(&new));
        Some(new)
    }
}
