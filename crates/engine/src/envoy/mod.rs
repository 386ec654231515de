//! Files of envoyproxy/ratelimit, decided on the states of a store.
//!
//! [`tollgate_policy::envoy`] says which counters a request charges and what the answer is; this asks the store in between,
//! numbers the counters by their identities, and swaps files as the engine swaps policies: at once, keeping what was
//! counted under the same identity. A warm decision allocates nothing. Must not know: protobuf, how files are read.

mod decision;
mod tallies;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use tollgate_core::Nanos;
use tollgate_core::limit::Limit;
use tollgate_policy::envoy::{BadRequest, EnvoyPolicy, Modes, Plan, Quota, Reply, Request, State};
use tollgate_store::{LimitId, Ruled, StoreError};

pub use self::decision::EnvoyDecision;
use self::tallies::Tallies;
use crate::counters::Counted;
use crate::numbers::{Assigned, ENVOY, Kind, Numbering, OutOfNumbers, Party, Wanted, lifetime};
use crate::steps::run_local;
use crate::store::StateStore;

/// Decides by files of envoyproxy/ratelimit that can be replaced at any time.
///
/// ```
/// use tollgate_engine::Numbering;
/// use tollgate_engine::envoy::EnvoyEngine;
/// use tollgate_policy::envoy::{self, Code, Descriptor, Entry, Request};
/// use tollgate_store::Memory;
///
/// let text = "
/// domain: edge
/// descriptors:
///   - key: remote_address
///     rate_limit: { unit: year, requests_per_unit: 1 }
/// ";
/// let policy = envoy::load(&[("edge.yaml", text)])?;
/// let engine = EnvoyEngine::new(policy, [7; 16], Memory::for_keys(1_000)?, &Numbering::default())?;
///
/// let entries = [Entry::new("remote_address", "203.0.113.7")];
/// let descriptors = [Descriptor::new(&entries)];
/// let request = Request::new("edge", &descriptors);
/// assert_eq!(engine.decide(&request, |decided| decided.reply.overall)?, Code::Ok);
/// assert_eq!(engine.decide(&request, |decided| decided.reply.overall)?, Code::OverLimit);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct EnvoyEngine<S> {
    store: S,
    current: ArcSwap<FileVersion>,
    /// Keys the digests of long keys.
    secret: [u8; 16],
    shadow_mode: AtomicBool,
    quota_mode: AtomicBool,
    numbering: Numbering,
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
    counted: Tallies,
}

/// What was decided about a request.
#[derive(Debug)]
pub struct Decided<'a> {
    /// Which counters it charged, by which rules.
    pub plan: &'a Plan<'a>,
    /// The answer.
    pub reply: &'a Reply<'a>,
    /// The version of the files that it was decided by; they are counted from 1.
    pub generation: u64,
}

/// Why a request was not decided.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Undecided {
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
        numbering: &Numbering,
    ) -> Result<Self, OutOfNumbers> {
        let mut given = numbering.lock();
        let Assigned { ids, numbers, .. } =
            given.assign_for(Party::Envoy, &wanted(&policy, &names(&policy)), store.now())?;
        *given = numbers;
        drop(given);
        let loaded = FileVersion {
            number: 1,
            counted: Tallies::of(&policy, None),
            policy,
            ids: ids.into(),
        };
        for (_, ruled) in loaded.counters() {
            store.learn(&ruled);
        }
        Ok(Self {
            store,
            current: ArcSwap::from_pointee(loaded),
            secret,
            shadow_mode: AtomicBool::new(false),
            quota_mode: AtomicBool::new(false),
            numbering: numbering.clone(),
            replacing: Mutex::new(()),
        })
    }

    /// Puts other files in force, for every decision that begins after this. Counters of the same identity go on. Answers
    /// the number of the new version.
    ///
    /// # Errors
    /// There are no numbers left for new counters. Then nothing changes.
    pub fn replace(&self, policy: EnvoyPolicy) -> Result<u64, OutOfNumbers> {
        let _one_at_a_time = self
            .replacing
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let before = self.current.load_full();
        let mut given = self.numbering.lock();
        let Assigned { ids, gone, numbers } = given.assign_for(
            Party::Envoy,
            &wanted(&policy, &names(&policy)),
            self.store.now(),
        )?;
        let loaded = FileVersion {
            number: before.number.saturating_add(1),
            counted: Tallies::of(&policy, Some(&before.counted)),
            policy,
            ids: ids.into(),
        };
        let old: HashMap<LimitId, Ruled> = before
            .counters()
            .map(|(_, ruled)| (ruled.id, ruled))
            .collect();
        for (_, new) in loaded.counters() {
            if let Some(old) = old.get(&new.id).filter(|old| **old != new) {
                self.store.replace(old, &new);
            }
            self.store.learn(&new);
        }
        let number = loaded.number;
        self.current.store(Arc::new(loaded));
        for id in gone {
            self.store.forget(id);
        }
        *given = numbers;
        Ok(number)
    }

    /// Decides on a request, charges it, and hands the answer over.
    ///
    /// # Errors
    /// The request makes no sense, or the store did not answer.
    pub fn decide<T>(
        &self,
        request: &Request<'_>,
        see: impl FnOnce(&Decided<'_>) -> T,
    ) -> Result<T, Undecided> {
        let version = self.current.load();
        let plan = self.plan(&version, request)?;
        let mut decision = self.decision(&version, &plan);
        run_local(&mut decision, &self.store);
        let reply = decision.finish(self.store.now())?;
        Ok(see(&Decided {
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
        request: &Request<'a>,
    ) -> Result<Plan<'a>, Undecided> {
        version.policy.plan(request).map_err(Undecided::BadRequest)
    }

    /// A decision that carries a plan out, for a driver of one's own: see [`StoreSteps`](crate::StoreSteps).
    pub fn decision<'a>(&self, version: &'a FileVersion, plan: &'a Plan<'a>) -> EnvoyDecision<'a> {
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
    pub fn counted(&self) -> Vec<(Box<str>, Counted)> {
        let current = self.current.load();
        current.counted.read()
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
    fn id(&self, state: State) -> Option<LimitId> {
        self.ids.get(usize::try_from(state.0).ok()?).copied()
    }

    /// The counters of the files' rules with their numbers.
    fn counters(&self) -> impl Iterator<Item = (State, Ruled)> {
        counters(&self.policy).filter_map(|(state, limit)| {
            let id = self.id(state)?;
            Some((state, Ruled { id, limit }))
        })
    }
}

fn counters(policy: &EnvoyPolicy) -> impl Iterator<Item = (State, Limit)> {
    policy.rules().iter().filter_map(|rule| match rule.quota {
        Quota::Limited { counter, state, .. } => Some((state, counter)),
        Quota::Unlimited => None,
    })
}

/// Identities as the store's numbering knows them.
fn names(policy: &EnvoyPolicy) -> Vec<String> {
    let names = policy.identities();
    names.map(|identity| format!("{ENVOY}{identity}")).collect()
}

fn wanted<'a>(policy: &EnvoyPolicy, names: &'a [String]) -> Vec<Wanted<'a>> {
    let lifetimes: HashMap<usize, Nanos> = counters(policy)
        .filter_map(|(state, limit)| Some((usize::try_from(state.0).ok()?, lifetime(&limit))))
        .collect();
    let one = |(index, identity): (usize, &'a String)| Wanted {
        identity,
        asked: None,
        kind: Kind::FixedWindow,
        // Limits that come with requests may have any unit.
        lifetime: lifetimes.get(&index).copied().unwrap_or(Nanos::YEAR),
    };
    names.iter().enumerate().map(one).collect()
}

impl fmt::Display for Undecided {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BadRequest(reason) => reason.fmt(f),
            Self::Store(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Undecided {}

impl<S> fmt::Debug for EnvoyEngine<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EnvoyEngine")
            .field("generation", &self.current.load().number)
            .finish_non_exhaustive()
    }
}
