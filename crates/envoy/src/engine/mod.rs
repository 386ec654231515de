//! Files of envoyproxy/ratelimit, decided on the states of a store.
//!
//! [`crate::config`] says which counters a request charges and what the answer is; this asks the store in between,
//! numbers the counters by their identities, and swaps files as the engine swaps policies: at once, keeping what was
//! counted under the same identity. A warm decision allocates nothing. Must not know: protobuf, how files are read.

mod decision;
#[cfg(test)]
mod fleet_tests;
mod reload;
mod rule_counters;
mod shared_store;
#[cfg(test)]
mod tests;

pub use self::decision::EnvoyDecision;
pub use self::reload::{EnvoyReloader, is_envoy_config_path};
pub use self::shared_store::SharedStore;

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
    BadRequest, ChargePlan, EnvoyPolicy, EnvoyReply, Modes, RlsRequest, RuleQuota, RuleStateIndex,
};

/// Decides by files of envoyproxy/ratelimit that can be replaced at any time.
///
/// ```
/// use tollgate_engine::LimitIdAllocator;
/// use tollgate_envoy::config::{self, RlsCode, JsonDescriptor, DescriptorEntry, RlsRequest};
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
/// let descriptors = [JsonDescriptor::new(&entries)];
/// let request = RlsRequest::new("edge", &descriptors);
/// assert_eq!(engine.decide(&request, |decided| decided.reply.overall)?, RlsCode::Ok);
/// assert_eq!(engine.decide(&request, |decided| decided.reply.overall)?, RlsCode::OverLimit);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct EnvoyEngine<S> {
    store: S,
    current: ArcSwap<FileVersion>,
    /// Keys the digests of long keys.
    secret: [u8; 16],
    shadow_mode: AtomicBool,
    quota_mode: AtomicBool,
    limit_ids: LimitIdAllocator,
    /// Held while files are replaced, one after another.
    replacing: Mutex<()>,
}

/// One version of the files: their rules, and the numbers of their counters.
#[derive(Debug)]
pub struct FileVersion {
    number: u64,
    policy: EnvoyPolicy,
    ids: Box<[LimitId]>,
    /// What was decided under each identity, by [`State`] too.
    rule_counters: RuleCounters,
}

/// What was decided about a request.
#[derive(Debug)]
pub struct EnvoyVerdict<'a> {
    /// Which counters it charged, by which rules.
    pub plan: &'a ChargePlan<'a>,
    /// The answer.
    pub reply: &'a EnvoyReply<'a>,
    /// The version of the files that it was decided by; they are counted from 1.
    pub generation: u64,
}

/// Why a request was not decided.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DecideError {
    /// It makes no sense. Nothing was charged.
    BadRequest(BadRequest),
    /// The store did not answer; some of it may have been charged.
    Store(StoreError),
}

impl<S: StateStore> EnvoyEngine<S> {
    /// An engine that decides by these files. Whoever else has a part in the store shares its numbering.
    ///
    /// # Errors
    /// There are more counters to be numbered than numbers.
    pub fn new(
        policy: EnvoyPolicy,
        secret: [u8; 16],
        store: S,
        numbering: &LimitIdAllocator,
    ) -> Result<Self, LimitIdsExhausted> {
        let version = activate(numbering, &store, policy, None, |version| version)?;
        Ok(Self {
            store,
            current: ArcSwap::from_pointee(version),
            secret,
            shadow_mode: AtomicBool::new(false),
            quota_mode: AtomicBool::new(false),
            limit_ids: numbering.clone(),
            replacing: Mutex::new(()),
        })
    }

    /// Puts other files in force, for every decision that begins after this. Counters of the same identity go on. Answers
    /// the number of the new version.
    ///
    /// # Errors
    /// There are no numbers left for new counters. Then nothing changes.
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

    /// Decides on a request, charges it, and hands the answer over.
    ///
    /// # Errors
    /// The request makes no sense, or the store did not answer.
    pub fn decide<T>(
        &self,
        request: &RlsRequest<'_>,
        see: impl FnOnce(&EnvoyVerdict<'_>) -> T,
    ) -> Result<T, DecideError> {
        let version = self.current.load();
        let plan = self.plan(&version, request)?;
        let mut decision = self.decision(&version, &plan);
        run_local(&mut decision, &self.store);
        let reply = decision.finish(self.store.now())?;
        Ok(see(&EnvoyVerdict {
            plan: &plan,
            reply: &reply,
            generation: version.number,
        }))
    }

    /// The same, with the counters that a fleet shares.
    ///
    /// # Errors
    /// The request makes no sense, or the store did not answer.
    pub async fn decide_shared<T>(
        &self,
        fleet: &Fleet,
        request: &RlsRequest<'_>,
        see: impl FnOnce(&EnvoyVerdict<'_>) -> T + Send,
    ) -> Result<T, DecideError> {
        let version = self.current();
        let plan = self.plan(&version, request)?;
        let mut decision = self.decision(&version, &plan);
        TieredDecider::new(fleet, &self.store)
            .run(&mut decision)
            .await;
        let reply = decision.finish(self.store.now())?;
        Ok(see(&EnvoyVerdict {
            plan: &plan,
            reply: &reply,
            generation: version.number,
        }))
    }

    /// The version of the files in force, for a driver of one's own.
    #[must_use]
    pub fn current(&self) -> Arc<FileVersion> {
        self.current.load_full()
    }

    /// Which counters a request charges.
    ///
    /// # Errors
    /// The request makes no sense.
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

    /// A decision that carries a plan out, for a driver of one's own: see [`StoreSteps`](tollgate_engine::StoreSteps).
    pub fn decision<'a>(
        &self,
        version: &'a FileVersion,
        plan: &'a ChargePlan<'a>,
    ) -> EnvoyDecision<'a> {
        EnvoyDecision::new(version, plan, self.secret, self.modes())
    }

    /// What holds for all rules at once, from the next decision on. In shadow nothing is denied: the kill switch.
    pub fn set_modes(&self, modes: Modes) {
        self.shadow_mode.store(modes.shadow_mode, Ordering::Release);
        self.quota_mode.store(modes.quota_mode, Ordering::Release);
    }

    /// What holds for all rules at once.
    #[must_use]
    pub fn modes(&self) -> Modes {
        Modes {
            shadow_mode: self.shadow_mode.load(Ordering::Acquire),
            quota_mode: self.quota_mode.load(Ordering::Acquire),
        }
    }

    /// The version of the files in force.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.current.load().number
    }

    /// What every rule that counts has decided so far, by its identity: where it stands in the files and its unit,
    /// `domain.key_value.key2/minute`. The first ones are limits that come with requests, `override/second` and so on.
    #[must_use]
    pub fn rule_totals(&self) -> Vec<(Box<str>, LimitTotals)> {
        let current = self.current.load();
        current.rule_counters.read()
    }

    /// What every rule in force does, a line each.
    #[must_use]
    pub fn explain(&self) -> Vec<String> {
        let current = self.current.load();
        let lines = current.policy.explain().map(|line| line.to_string());
        lines.collect()
    }

    /// The store that counters are kept in.
    pub const fn store(&self) -> &S {
        &self.store
    }
}

impl FileVersion {
    fn id(&self, state: RuleStateIndex) -> Option<LimitId> {
        self.ids.get(usize::try_from(state.0).ok()?).copied()
    }

    /// The limits of the files' rules with their numbers.
    fn limits(&self) -> Vec<IdentifiedLimit> {
        let limits = limits(&self.policy).into_iter();
        let ruled = |(index, limit): (usize, Limit)| {
            let id = self.ids.get(index).copied()?;
            Some(IdentifiedLimit { id, limit })
        };
        limits.filter_map(ruled).collect()
    }
}

/// Numbers the counters of files and puts them in force by `swap`.
fn activate<S: StateStore, T>(
    numbering: &LimitIdAllocator,
    store: &S,
    policy: EnvoyPolicy,
    before: Option<&FileVersion>,
    swap: impl FnOnce(FileVersion) -> T,
) -> Result<T, LimitIdsExhausted> {
    let identities: Vec<Box<str>> = policy.identities().map(Box::from).collect();
    let identities: Vec<&str> = identities.iter().map(|identity| &**identity).collect();
    let limits = limits(&policy);
    let counters = ExternalCounters {
        identities: &identities,
        limits: &limits,
    };
    let old = before.map(FileVersion::limits).unwrap_or_default();
    numbering.replace_external(store, &old, counters, |ids| {
        swap(FileVersion {
            number: before.map_or(1, |before| before.number.saturating_add(1)),
            rule_counters: RuleCounters::new(&policy, before.map(|before| &before.rule_counters)),
            policy,
            ids,
        })
    })
}

/// The limits of the files' rules, each with the index of its counter's identity.
fn limits(policy: &EnvoyPolicy) -> Vec<(usize, Limit)> {
    let rules = policy.rules().iter();
    let limit = |quota: &RuleQuota| match quota {
        RuleQuota::Limited { counter, state, .. } => {
            Some((usize::try_from(state.0).ok()?, *counter))
        }
        RuleQuota::Unlimited => None,
    };
    rules.filter_map(|rule| limit(&rule.quota)).collect()
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
