//! Candidates: a second quota of a limit that is charged but never enforced. The engine counts how often it decides
//! differently, and for which keys.
//!
//! A candidate is charged as if it were enforced. It has its own states. It is charged for a request that it admits,
//! even if the enforced quota denies that request, but not if another limit denies it.
//!
//! Not compared are: requests denied by another limit, by a list or by an operator; blocked keys; and keys that use the
//! quota of a tier or an override, because the candidate only replaces the limit's own quota. A candidate takes a
//! concurrency permit only for admitted requests, since a denied request has no duration. If responses
//! correct the cost, denied requests keep their estimate.
//!
//! All comparisons are counted exactly, in both directions. The keys that differ most are tracked in a sketch of fixed
//! size that reports its error. Must not know: how requests are decided, who reads the totals.

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

/// The most counter shards. Threads beyond this number share shards.
const MAX_SHARDS: usize = 8;

/// The comparison of a candidate with its limit so far.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Divergence {
    /// The name of the limit.
    pub limit: Box<str>,
    /// Requests that both quotas decided.
    pub compared: u64,
    /// Requests that the limit admits and the candidate would deny.
    pub would_deny: u64,
    /// Requests that the limit denies and the candidate would admit.
    pub would_allow: u64,
    /// Requests on which the candidate's store did not answer.
    pub unknown: u64,
    /// The operator's threshold: a candidate whose share of differing decisions is larger should not be enforced.
    pub threshold: Percent,
    /// The result of comparing that share with the threshold.
    pub agreement: Agreement,
    /// The keys with the most differing decisions, most first; at most [`MAX_TRACKED_KEYS`]. Every key with more than
    /// `(would_deny + would_allow) / MAX_TRACKED_KEYS + missed` differences is listed.
    pub top_keys: Vec<DivergingKey>,
    /// Differing decisions whose key was not recorded, because another thread held the sketch.
    pub missed: u64,
}

/// The totals of a comparison, without keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ComparisonTotals {
    /// Requests that both quotas decided.
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
    /// The key's values, truncated, with digests where the policy hashes them.
    pub key: String,
    /// The keyed digest of the whole key.
    pub digest: [u8; 16],
    /// How often the candidate would have denied an admitted request, at least.
    pub would_deny: u64,
    /// How often the candidate would have admitted a denied request, at least.
    pub would_allow: u64,
    /// How much higher the sum of both counts may be.
    pub error: u64,
}

/// The comparison of one candidate with the quota that it may replace.
#[derive(Debug)]
pub(crate) struct Comparison {
    /// All compared quotas. If one of them changes, a new comparison starts.
    quotas: Vec<(MeterRole, Limit)>,
    shards: Box<[ComparisonShard]>,
    sketch: Mutex<Sketch>,
    missed: AtomicU64,
}

/// Counters on a cache line of their own, written by few threads.
#[derive(Debug, Default)]
#[repr(align(64))]
struct ComparisonShard {
    compared: AtomicU64,
    would_deny: AtomicU64,
    would_allow: AtomicU64,
    unknown: AtomicU64,
}

/// The result of one comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ComparisonOutcome {
    Same,
    WouldDeny,
    WouldAllow,
}

impl Comparison {
    /// A new comparison for this rule. `None` if the rule has no candidate.
    pub(crate) fn for_rule(rule: &Rule) -> Option<Self> {
        let terms = compared_quotas(rule)?;
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let shards = cores.next_power_of_two().min(MAX_SHARDS);
        Some(Self {
            quotas: terms,
            shards: (0..shards).map(|_| ComparisonShard::default()).collect(),
            sketch: Mutex::new(Sketch::new()),
            missed: AtomicU64::new(0),
        })
    }

    /// Whether the rule still has the compared quotas, so that the comparison can continue.
    pub(crate) fn compares_quotas_of(&self, rule: &Rule) -> bool {
        compared_quotas(rule).is_some_and(|terms| terms == self.quotas)
    }

    pub(crate) fn record(
        &self,
        compared: ComparisonOutcome,
        digest: impl FnOnce() -> [u8; 16],
        key: &[u8],
    ) {
        let Some(shard) = self.own_shard() else {
            return;
        };
        shard.compared.fetch_add(1, Ordering::Relaxed);
        let direction = match compared {
            ComparisonOutcome::Same => return,
            ComparisonOutcome::WouldDeny => &shard.would_deny,
            ComparisonOutcome::WouldAllow => &shard.would_allow,
        };
        direction.fetch_add(1, Ordering::Relaxed);
        // Never block a decision for a statistic.
        match self.sketch.try_lock() {
            Ok(mut sketch) => sketch.record(digest(), key, compared),
            Err(TryLockError::Poisoned(held)) => held.into_inner().record(digest(), key, compared),
            Err(TryLockError::WouldBlock) => {
                self.missed.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    pub(crate) fn record_unknown(&self) {
        if let Some(shard) = self.own_shard() {
            shard.unknown.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn read(
        &self,
        limit: &str,
        threshold: Percent,
        key_spec: Option<&KeySpec>,
    ) -> Divergence {
        let ComparisonTotals {
            compared,
            would_deny,
            would_allow,
            unknown,
        } = self.totals();
        let sketch = self.sketch.lock().unwrap_or_else(PoisonError::into_inner);
        let top = sketch.top(|key| {
            key_spec
                .map(|key_spec| key_spec.display_key(key))
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

    /// The totals, without keys.
    pub(crate) fn totals(&self) -> ComparisonTotals {
        let sum = |field: fn(&ComparisonShard) -> &AtomicU64| {
            let shards = self
                .shards
                .iter()
                .map(|shard| field(shard).load(Ordering::Relaxed));
            shards.fold(0, u64::saturating_add)
        };
        // Read before `compared`, so that the differences never exceed it.
        let (would_deny, would_allow) = (
            sum(|shard| &shard.would_deny),
            sum(|shard| &shard.would_allow),
        );
        let compared = sum(|shard| &shard.compared);
        ComparisonTotals {
            compared,
            would_deny,
            would_allow,
            unknown: sum(|shard| &shard.unknown),
        }
    }

    fn own_shard(&self) -> Option<&ComparisonShard> {
        // The number of shards is a power of two.
        let mask = self.shards.len().wrapping_sub(1);
        self.shards.get(thread_index() & mask)
    }
}

/// The compared quotas of a rule with a candidate.
fn compared_quotas(rule: &Rule) -> Option<Vec<(MeterRole, Limit)>> {
    let meters_with = |role: MeterRole| rule.meters.iter().filter(move |meter| meter.role == role);
    meters_with(MeterRole::Candidate).next()?;
    let quotas = [MeterRole::Main, MeterRole::Local, MeterRole::Candidate].into_iter();
    let quotas = quotas.flat_map(|role| {
        let meters = meters_with(role).flat_map(|meter| meter.quotas.iter());
        meters.map(move |quota| (role, *quota))
    });
    Some(quotas.collect())
}
