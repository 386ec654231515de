//! A candidate beside the enforced quota: how often the two would have decided differently, and for whom.
//!
//! A candidate is charged as it would have been, had it been the enforced one. It has states of its own and spends on a
//! request exactly when it would have admitted it: also where the enforced quota refuses, and not where some other limit
//! refuses anyway. What cannot be known is not compared: requests that another limit refuses, that lists or operators
//! refuse, keys that are blocked, keys whose quota is a tier's or an override's, since the candidate stands for the limit's
//! own. Of places it takes one only for requests that go on, because nobody knows how long a refused one would have held it.
//! Of costs that responses correct, those of refused requests stay at their estimate.
//!
//! Every comparison is counted exactly, both ways. The keys that differ most are kept in a sketch of fixed size, whose error
//! is told with them. Must not know: how requests are decided, who reads the numbers.

mod agreement;
mod compare;
mod sketch;
#[cfg(test)]
mod tests;

pub use agreement::Agreement;
pub(crate) use compare::{
    RuleOutcome, RuleOutcomes, collect_rule_outcomes, compare, first_rule_outcome,
};
pub use sketch::MAX_TRACKED_KEYS;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError, TryLockError};
use std::thread;

use tollgate_core::limit::Limit;
use tollgate_policy::model::Percent;
use tollgate_policy::rules::{KeySpec, MeterRole, Rule};

use self::sketch::Sketch;
use crate::sharded_counters::thread_index;

/// Beyond this many lines of counters threads share.
const MAX_SHARDS: usize = 8;

/// What is known of a candidate so far.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Divergence {
    /// The limit whose candidate it is.
    pub limit: Box<str>,
    /// Requests on which both were asked.
    pub compared: u64,
    /// Requests that the limit admits and the candidate would deny.
    pub would_deny: u64,
    /// Requests that the limit denies and the candidate would admit.
    pub would_allow: u64,
    /// Requests on which the candidate's store did not answer.
    pub unknown: u64,
    /// Above this share of requests decided differently a candidate is advised against.
    pub threshold: Percent,
    /// What follows.
    pub agreement: Agreement,
    /// The keys for which decisions differ most often, most often first; at most [`MOST_KEYS`]. Every key that differs
    /// more often than `(would_deny + would_allow) / MOST_KEYS + missed` times is among them.
    pub top_keys: Vec<DivergingKey>,
    /// Differing decisions whose keys were not noted, because another thread was just noting one.
    pub missed: u64,
}

/// How often a candidate was compared, and what came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ComparisonTotals {
    /// Requests on which both were asked.
    pub compared: u64,
    /// Requests that the limit admits and the candidate would deny.
    pub would_deny: u64,
    /// Requests that the limit denies and the candidate would admit.
    pub would_allow: u64,
    /// Requests on which the candidate's store did not answer.
    pub unknown: u64,
}

/// A key for which limit and candidate decide differently.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DivergingKey {
    /// The key's values where the policy does not hash them, cut where they are long.
    pub key: String,
    /// The keyed digest of the whole key.
    pub digest: [u8; 16],
    /// How often the candidate would have denied what was admitted, at least.
    pub would_deny: u64,
    /// How often it would have admitted what was denied, at least.
    pub would_allow: u64,
    /// How many more times it may have been, both ways together.
    pub error: u64,
}

/// The comparison of one candidate with the quota that it may replace.
#[derive(Debug)]
pub(crate) struct Comparison {
    /// Every quota that has a part in it: other quotas, another comparison.
    quotas: Vec<(MeterRole, Limit)>,
    shards: Box<[ComparisonShard]>,
    sketch: Mutex<Sketch>,
    missed: AtomicU64,
}

/// One cache line, written by few threads.
#[derive(Debug, Default)]
#[repr(align(64))]
struct ComparisonShard {
    compared: AtomicU64,
    would_deny: AtomicU64,
    would_allow: AtomicU64,
    unknown: AtomicU64,
}

/// What one comparison came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ComparisonOutcome {
    Same,
    WouldDeny,
    WouldAllow,
}

impl Comparison {
    /// A comparison for this rule that has not begun. `None` if it has no candidate.
    pub(crate) fn for_rule(rule: &Rule) -> Option<Self> {
        let terms = compared_quotas(rule)?;
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let lines = cores.next_power_of_two().min(MAX_SHARDS);
        Some(Self {
            quotas: terms,
            shards: (0..lines).map(|_| ComparisonShard::default()).collect(),
            sketch: Mutex::new(Sketch::new()),
            missed: AtomicU64::new(0),
        })
    }

    /// Whether this compares the same quotas as the rule has, so that it may go on.
    pub(crate) fn compares_quotas_of(&self, rule: &Rule) -> bool {
        compared_quotas(rule).is_some_and(|terms| terms == self.quotas)
    }

    pub(crate) fn record(
        &self,
        compared: ComparisonOutcome,
        digest: impl FnOnce() -> [u8; 16],
        key: &[u8],
    ) {
        let Some(line) = self.own_shard() else {
            return;
        };
        line.compared.fetch_add(1, Ordering::Relaxed);
        let direction = match compared {
            ComparisonOutcome::Same => return,
            ComparisonOutcome::WouldDeny => &line.would_deny,
            ComparisonOutcome::WouldAllow => &line.would_allow,
        };
        direction.fetch_add(1, Ordering::Relaxed);
        // Nobody waits for a statistic.
        match self.sketch.try_lock() {
            Ok(mut sketch) => sketch.record(digest(), key, compared),
            Err(TryLockError::Poisoned(held)) => held.into_inner().record(digest(), key, compared),
            Err(TryLockError::WouldBlock) => {
                self.missed.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    pub(crate) fn record_unknown(&self) {
        if let Some(line) = self.own_shard() {
            line.unknown.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn read(
        &self,
        limit: &str,
        threshold: Percent,
        recipe: Option<&KeySpec>,
    ) -> Divergence {
        let ComparisonTotals {
            compared,
            would_deny,
            would_allow,
            unknown,
        } = self.totals();
        let sketch = self.sketch.lock().unwrap_or_else(PoisonError::into_inner);
        let top = sketch.top(|key| {
            recipe
                .map(|recipe| recipe.display_key(key))
                .unwrap_or_default()
        });
        drop(sketch);
        let differ = would_deny.saturating_add(would_allow);
        Divergence {
            limit: limit.into(),
            compared,
            would_deny,
            would_allow,
            unknown,
            threshold,
            agreement: Agreement::from_counts(compared, differ, threshold),
            top_keys: top,
            missed: self.missed.load(Ordering::Relaxed),
        }
    }

    /// The numbers without the keys.
    pub(crate) fn totals(&self) -> ComparisonTotals {
        let sum = |of: fn(&ComparisonShard) -> &AtomicU64| {
            let lines = self
                .shards
                .iter()
                .map(|line| of(line).load(Ordering::Relaxed));
            lines.fold(0, u64::saturating_add)
        };
        // Read before what is compared, so that no more differ than were compared.
        let (would_deny, would_allow) =
            (sum(|line| &line.would_deny), sum(|line| &line.would_allow));
        let compared = sum(|line| &line.compared);
        ComparisonTotals {
            compared,
            would_deny,
            would_allow,
            unknown: sum(|line| &line.unknown),
        }
    }

    fn own_shard(&self) -> Option<&ComparisonShard> {
        // The number of lines is a power of two.
        let mask = self.shards.len().wrapping_sub(1);
        self.shards.get(thread_index() & mask)
    }
}

/// The quotas of a rule that has a candidate.
fn compared_quotas(rule: &Rule) -> Option<Vec<(MeterRole, Limit)>> {
    let of = |role: MeterRole| rule.meters.iter().filter(move |meter| meter.role == role);
    of(MeterRole::Candidate).next()?;
    let quotas = [MeterRole::Main, MeterRole::Local, MeterRole::Candidate].into_iter();
    let quotas = quotas.flat_map(|role| {
        let meters = of(role).flat_map(|meter| meter.quotas.iter());
        meters.map(move |quota| (role, *quota))
    });
    Some(quotas.collect())
}
