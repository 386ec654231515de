//! The quota policies of all limits, rendered once for each generation of the policy.
//!
//! The renderer keeps the cache of the newest generation. Each thread keeps the cache that it used last, because finding it takes
//! no locked instruction. A verdict of an older generation gets a cache of its own: the policy that decided a verdict renders
//! it. An entry is rendered when its quota is first sent: a policy
//! may have thousands of overrides, most of which are never used. Must not know: dialects, the status of limits.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use arc_swap::{ArcSwap, Guard};
use tollgate_core::QuotaUnit;
use tollgate_engine::{Generation, LimitState, Verdict};
use tollgate_http::{QuotaPolicy, Scope};
use tollgate_policy::rules::{Meter, MeterRef, MeterRole, Rule};

use super::problem::role_name;

/// The cache of the newest generation.
#[derive(Debug)]
pub(super) struct HeaderCaches {
    /// Tells the renderers of a process apart, because each counts its own generations.
    id: u64,
    newest: ArcSwap<HeaderCache>,
}

/// The cache that a thread used last. A renderer that is gone leaves at most this one behind.
struct LastCache {
    id: u64,
    cache: Arc<HeaderCache>,
}

/// The rendered policy of every limit of one generation.
#[derive(Debug, Default)]
pub struct HeaderCache {
    /// Generations count from 1; zero is the initial empty cache.
    generation: u64,
    rules: Box<[Box<[MeterEntries]>]>,
}

/// The rendered policies of one meter.
#[derive(Debug)]
struct MeterEntries {
    /// One for each of its quotas.
    listed: Box<[CachedPolicy]>,
    /// For quotas that are computed for a request, one for each unit.
    computed: [CachedPolicy; 3],
}

/// `None` if the name cannot be sent. Names of loaded policies always can.
type CachedPolicy = OnceLock<Option<Box<QuotaPolicy>>>;

impl Default for HeaderCaches {
    fn default() -> Self {
        static NEXT_ID: AtomicU64 = AtomicU64::new(0);
        Self {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            newest: ArcSwap::default(),
        }
    }
}

impl HeaderCaches {
    /// Tells the renderers of a process apart.
    pub(super) const fn id(&self) -> u64 {
        self.id
    }

    /// Calls `work` with the cache of a generation.
    #[inline]
    pub(super) fn with<R>(
        &self,
        generation: &Generation,
        work: impl FnOnce(&HeaderCache) -> R,
    ) -> R {
        thread_local! {
            static LAST: Cell<Option<LastCache>> = const { Cell::new(None) };
        }
        // Nested calls find nothing here, and keep the cache of the call that ends last.
        let last = LAST.take();
        let last = last.filter(|last| last.is_of(self.id, generation));
        let last = last.unwrap_or_else(|| LastCache {
            id: self.id,
            cache: Guard::into_inner(self.for_generation(generation)),
        });
        let done = work(&last.cache);
        LAST.set(Some(last));
        done
    }

    /// The cache of a generation.
    pub(super) fn for_generation(&self, generation: &Generation) -> Guard<Arc<HeaderCache>> {
        let current = self.newest.load();
        if current.generation == generation.number() {
            return current;
        }
        self.build(generation)
    }

    #[cold]
    fn build(&self, generation: &Generation) -> Guard<Arc<HeaderCache>> {
        let new = Arc::new(HeaderCache::new(generation));
        self.newest
            .rcu(|current| match current.generation < new.generation {
                true => Arc::clone(&new),
                false => Arc::clone(current),
            });
        Guard::from_inner(new)
    }
}

impl LastCache {
    fn is_of(&self, id: u64, generation: &Generation) -> bool {
        self.id == id && self.cache.generation == generation.number()
    }
}

impl HeaderCache {
    fn new(generation: &Generation) -> Self {
        let rules = generation.rules().rules().iter();
        Self {
            generation: generation.number(),
            rules: rules
                .map(|rule| rule.meters.iter().map(MeterEntries::new).collect())
                .collect(),
        }
    }

    /// The rendered policy of the quota that decided.
    pub(super) fn policy(&self, verdict: &Verdict, state: &LimitState) -> Option<&QuotaPolicy> {
        let meters = self.rules.get(state.rule_index())?;
        let entries = meters.get(state.meter_index())?;
        let entry = match state.quota_index() {
            Some(index) => entries.listed.get(index)?,
            None => {
                let [requests, bytes, others] = &entries.computed;
                match verdict.quota_info(state).unit() {
                    QuotaUnit::Requests => requests,
                    QuotaUnit::Bytes => bytes,
                    _ => others,
                }
            }
        };
        let policy = entry.get_or_init(|| render(verdict, state).map(Box::new));
        policy.as_deref()
    }
}

impl MeterEntries {
    fn new(meter: &Meter) -> Self {
        Self {
            listed: meter.quotas.iter().map(|_| CachedPolicy::new()).collect(),
            computed: Default::default(),
        }
    }
}

#[cold]
fn render(verdict: &Verdict, state: &LimitState) -> Option<QuotaPolicy> {
    let quota = verdict.quota_info(state);
    let rule = verdict.rule(state)?;
    let meter = rule.meters.get(state.meter_index())?;
    let name = full_name(rule, meter, state);
    let limit = state.status.limit;
    let is_concurrency = meter
        .quotas
        .first()
        .is_some_and(|own| own.lease_duration().is_some());
    let policy = if is_concurrency {
        QuotaPolicy::concurrent(&name, limit)
    } else {
        QuotaPolicy::new(&name, limit, quota.window(), quota.unit())
    };
    let policy = policy.ok()?.with_scope(scope(verdict, rule, state));
    match &rule.bucket {
        // Limits that share a bucket show the same bucket to clients.
        Some(bucket) => policy.with_bucket(bucket).ok(),
        None => Some(policy),
    }
}

/// The unique name of a meter: the limit's name, and the level or the number of the window.
fn full_name(rule: &Rule, meter: &Meter, state: &LimitState) -> String {
    let name = &rule.name;
    match (&meter.level, state.role(), state.meter_index()) {
        (Some(level), _, _) => format!("{name}/{level}"),
        (None, MeterRole::Main, 0) => name.to_string(),
        (None, MeterRole::Main, index) => format!("{name}#{}", index.saturating_add(1)),
        (None, role, _) => format!("{name}!{}", role_name(role)),
    }
}

/// The scope of a limit. Without a key all callers share it. With a key it counts each caller, globally if the limit
/// applies to all requests.
fn scope(verdict: &Verdict, rule: &Rule, state: &LimitState) -> Scope {
    let meter = MeterRef {
        rule: state.rule_index(),
        meter: state.meter_index(),
    };
    let key_spec = verdict.generation().rules().key_spec(meter);
    if key_spec.is_none_or(|key_spec| key_spec.parts.is_empty()) {
        Scope::Shared
    } else if rule.applies_to_all {
        Scope::Global
    } else {
        Scope::User
    }
}
