//! Decides by files of envoyproxy/ratelimit on the states of a store.
//!
//! [`crate::config`] plans the counters of a request and builds the reply; this module calls the store in between, assigns ids to
//! counters by their identities, and swaps files atomically, keeping the counts of the same identity. A warm decision
//! allocates nothing. Must not know: protobuf, how files are read.

mod decision;
mod reload;
mod rule_counters;
mod shared_store;
#[cfg(test)]
mod tests;

pub use self::decision::EnvoyDecision;
pub use self::reload::{EnvoyReloader, is_envoy_config_path};
pub use self::shared_store::SharedStore;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use tollgate_core::limit::Limit;
use tollgate_engine::{
    ExternalCounters, LimitIdAllocator, LimitIdsExhausted, LimitTotals, StateStore, run_local,
};
use tollgate_fleet::{Fleet, TieredDecider};
use tollgate_store::{IdentifiedLimit, LimitId, StoreError};

use self::rule_counters::RuleCounters;
use crate::config::{
    BadRequest, ChargePlan, EnvoyPolicy, EnvoyReply, LoadOptions, Modes, RlsRequest, RuleQuota,
    RuleStateIndex,
};

/// Decides by files of envoyproxy/ratelimit, which can be replaced at any time.
///
/// ```
/// use tollgate_engine::LimitIdAllocator;
/// use tollgate_envoy::config::{self, RlsCode, Descriptor, DescriptorEntry, RlsRequest};
/// use tollgate_envoy::engine::EnvoyEngine;
/// use tollgate_store::MemoryStore;
///
/// let text = "
/// domain: edge
/// descriptors:
///   - key: remote_address
///     rate_limit: { unit: year, requests_per_unit: 1 }
/// ";
/// let policy = config::load(&[("edge.yaml", text)])?;
/// let engine = EnvoyEngine::new(policy, [7; 16], MemoryStore::for_keys(1_000)?, &LimitIdAllocator::default())?;
///
/// let entries = [DescriptorEntry::new("remote_address", "203.0.113.7")];
/// let descriptors = [Descriptor::new(&entries)];
/// let request = RlsRequest::new("edge", &descriptors);
/// assert_eq!(engine.decide(&request, |verdict| verdict.reply.overall)?, RlsCode::Ok);
/// assert_eq!(engine.decide(&request, |verdict| verdict.reply.overall)?, RlsCode::OverLimit);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct EnvoyEngine<S> {
    store: S,
    current: ArcSwap<FileVersion>,
    /// Keys the digests of long keys.
    secret: [u8; 16],
    shadow_mode: AtomicBool,
    quota_mode: AtomicBool,
    /// How files are read again.
    load_options: LoadOptions,
    limit_ids: LimitIdAllocator,
    /// Locked while files are replaced.
    replacing: Mutex<()>,
}

/// One version of the files: their rules, and the limit ids of their counters.
#[derive(Debug)]
pub struct FileVersion {
    number: u64,
    policy: EnvoyPolicy,
    /// By the index of a counter's identity.
    ids: Box<[LimitId]>,
    /// The totals of each identity, by [`RuleStateIndex`].
    rule_counters: RuleCounters,
}

/// The decision on a request.
#[derive(Debug)]
pub struct EnvoyVerdict<'a> {
    /// The counters that it charged, and their rules.
    pub plan: &'a ChargePlan<'a>,
    /// The reply.
    pub reply: &'a EnvoyReply<'a>,
    /// The version of the files that decided, counted from 1.
    pub generation: u64,
}

/// Why a request was not decided.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DecideError {
    /// The request is invalid. Nothing was charged.
    BadRequest(BadRequest),
    /// The store did not answer; some counters may have been charged.
    Store(StoreError),
}

impl<S: StateStore> EnvoyEngine<S> {
    /// An engine that decides by these files. All engines on the same store must share `limit_ids`.
    ///
    /// # Errors
    /// There are more counters than limit ids.
    pub fn new(
        policy: EnvoyPolicy,
        secret: [u8; 16],
        store: S,
        limit_ids: &LimitIdAllocator,
    ) -> Result<Self, LimitIdsExhausted> {
        let version = activate(limit_ids, &store, policy, None, |version| version)?;
        Ok(Self {
            store,
            current: ArcSwap::from_pointee(version),
            secret,
            shadow_mode: AtomicBool::new(false),
            quota_mode: AtomicBool::new(false),
            load_options: LoadOptions::default(),
            limit_ids: limit_ids.clone(),
            replacing: Mutex::new(()),
        })
    }

    /// Sets how files are read when they change.
    #[must_use]
    pub const fn with_load_options(mut self, options: LoadOptions) -> Self {
        self.load_options = options;
        self
    }

    /// Replaces the files for all decisions that start after this. Counters of the same identity continue. Returns the number of
    /// the new version.
    ///
    /// # Errors
    /// There are no limit ids left for new counters. Then nothing changes.
    pub fn replace(&self, policy: EnvoyPolicy) -> Result<u64, LimitIdsExhausted> {
        let _one_at_a_time = self
            .replacing
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let before = self.current.load_full();
        let swap = |version: FileVersion| {
            let number = version.number;
            self.current.store(Arc::new(version));
            number
        };
        activate(&self.limit_ids, &self.store, policy, Some(&before), swap)
    }

    /// Decides on a request, charges it, and calls `inspect` with the decision.
    ///
    /// # Errors
    /// The request is invalid, or the store did not answer.
    pub fn decide<T>(
        &self,
        request: &RlsRequest<'_>,
        inspect: impl FnOnce(&EnvoyVerdict<'_>) -> T,
    ) -> Result<T, DecideError> {
        let version = self.current.load();
        let plan = self.plan(&version, request)?;
        let mut decision = self.decision(&version, &plan);
        run_local(&mut decision, &self.store);
        let reply = decision.finish(self.store.now())?;
        Ok(inspect(&EnvoyVerdict {
            plan: &plan,
            reply: &reply,
            generation: version.number,
        }))
    }

    /// The same with counters that are shared by a fleet.
    ///
    /// # Errors
    /// The request is invalid, or the store did not answer.
    pub async fn decide_shared<T>(
        &self,
        fleet: &Fleet,
        request: &RlsRequest<'_>,
        inspect: impl FnOnce(&EnvoyVerdict<'_>) -> T + Send,
    ) -> Result<T, DecideError> {
        let version = self.current();
        let plan = self.plan(&version, request)?;
        let mut decision = self.decision(&version, &plan);
        TieredDecider::new(fleet, &self.store)
            .run(&mut decision)
            .await;
        let reply = decision.finish(self.store.now())?;
        Ok(inspect(&EnvoyVerdict {
            plan: &plan,
            reply: &reply,
            generation: version.number,
        }))
    }

    /// The current version of the files, for a custom driver.
    #[must_use]
    pub fn current(&self) -> Arc<FileVersion> {
        self.current.load_full()
    }

    /// Plans the charges of a request.
    ///
    /// # Errors
    /// The request is invalid.
    pub fn plan<'a>(
        &self,
        version: &'a FileVersion,
        request: &RlsRequest<'a>,
    ) -> Result<ChargePlan<'a>, DecideError> {
        version
            .policy
            .plan(request)
            .map_err(DecideError::BadRequest)
    }

    /// A decision that carries out a plan, for a custom driver: see [`StoreSteps`](tollgate_engine::StoreSteps).
    pub fn decision<'a>(
        &self,
        version: &'a FileVersion,
        plan: &'a ChargePlan<'a>,
    ) -> EnvoyDecision<'a> {
        EnvoyDecision::new(version, plan, self.secret, self.modes())
    }

    /// Sets the modes of all rules, from the next decision on. Shadow mode denies nothing: the kill switch.
    pub fn set_modes(&self, modes: Modes) {
        self.shadow_mode.store(modes.shadow_mode, Ordering::Release);
        self.quota_mode.store(modes.quota_mode, Ordering::Release);
    }

    /// The modes of all rules.
    #[must_use]
    pub fn modes(&self) -> Modes {
        Modes {
            shadow_mode: self.shadow_mode.load(Ordering::Acquire),
            quota_mode: self.quota_mode.load(Ordering::Acquire),
        }
    }

    /// The current version of the files.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.current.load().number
    }

    /// The totals of each rule that counts, by identity: the rule's path in the files and its unit,
    /// `domain.key_value.key2/minute`. The first ones are overrides of requests, `override/second` and so on.
    #[must_use]
    pub fn rule_totals(&self) -> Vec<(Box<str>, LimitTotals)> {
        let current = self.current.load();
        current.rule_counters.read()
    }

    /// The explanation of each current rule, one line each.
    #[must_use]
    pub fn explain(&self) -> Vec<String> {
        let current = self.current.load();
        let lines = current.policy.explain().map(|line| line.to_string());
        lines.collect()
    }

    /// The store of the counters.
    pub const fn store(&self) -> &S {
        &self.store
    }
}

impl FileVersion {
    fn id(&self, state: RuleStateIndex) -> Option<LimitId> {
        self.ids.get(self.policy.counter(state)?).copied()
    }

    /// The limits of the files' rules with their ids.
    fn limits(&self) -> Vec<IdentifiedLimit> {
        let limits = limits(&self.policy).into_iter();
        let ruled = |(index, limit): (usize, Limit)| {
            let id = self.ids.get(index).copied()?;
            Some(IdentifiedLimit { id, limit })
        };
        limits.filter_map(ruled).collect()
    }
}

/// Assigns ids to the counters of files and activates them by `swap`.
fn activate<S: StateStore, T>(
    limit_ids: &LimitIdAllocator,
    store: &S,
    policy: EnvoyPolicy,
    before: Option<&FileVersion>,
    swap: impl FnOnce(FileVersion) -> T,
) -> Result<T, LimitIdsExhausted> {
    let identities: Vec<Box<str>> = policy.counter_identities().map(Box::from).collect();
    let identities: Vec<&str> = identities.iter().map(|identity| &**identity).collect();
    let limits = limits(&policy);
    let counters = ExternalCounters {
        identities: &identities,
        limits: &limits,
    };
    let old = before.map(FileVersion::limits).unwrap_or_default();
    limit_ids.replace_external(store, &old, counters, |ids| {
        swap(FileVersion {
            number: before.map_or(1, |before| before.number.saturating_add(1)),
            rule_counters: RuleCounters::new(&policy, before.map(|before| &before.rule_counters)),
            policy,
            ids,
        })
    })
}

/// The limit of each counter identity, with its index: the largest of the rules that share it.
fn limits(policy: &EnvoyPolicy) -> Vec<(usize, Limit)> {
    let mut largest: BTreeMap<usize, (u32, Limit)> = BTreeMap::new();
    for rule in policy.rules() {
        let RuleQuota::Limited {
            requests_per_unit,
            counter,
            state,
            ..
        } = rule.quota
        else {
            continue;
        };
        let Some(index) = policy.counter(state) else {
            continue;
        };
        let known = largest.entry(index).or_insert((requests_per_unit, counter));
        if known.0 < requests_per_unit {
            *known = (requests_per_unit, counter);
        }
    }
    let limit = |(index, (_, limit))| (index, limit);
    largest.into_iter().map(limit).collect()
}

impl fmt::Display for DecideError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BadRequest(reason) => reason.fmt(f),
            Self::Store(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for DecideError {}

impl<S> fmt::Debug for EnvoyEngine<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EnvoyEngine")
            .field("generation", &self.current.load().number)
            .finish_non_exhaustive()
    }
}
