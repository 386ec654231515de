//! An engine whose rules are loaded from a policy file.
//!
//! Must not know: requests, when the file is loaded.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use arc_swap::ArcSwap;
use tollgate_core::Timestamp;
use tollgate_engine::{Engine, LimitIdAllocator, LimitIdsExhausted, StateStore};
use tollgate_policy::model::Policy;
use tollgate_policy::rules::Rules;
use tollgate_policy::source::Diagnostics;
use tollgate_policy::{load_bytes, read_path};

use crate::claims::{ClaimVerifier, PreparedClaims};
use crate::policy_features::PolicyFeatures;

use super::{Fingerprint, Reloadable, Reloader, Sources};

/// An engine and its current policy as the file defines it.
pub struct PolicyEngine<S> {
    engine: Arc<Engine<S>>,
    /// The current policy and its generation.
    policy: ArcSwap<(u64, Arc<Policy>)>,
    claims: Arc<ClaimVerifier>,
    features: Arc<PolicyFeatures>,
}

/// Keeps an engine's rules in sync with a policy file.
pub type PolicyReloader<S> = Reloader<PolicyEngine<S>>;

impl<S: StateStore> PolicyReloader<S> {
    /// Loads a policy file into an engine on this store. The secret keys all digests; a fleet shares one.
    ///
    /// # Errors
    /// All problems of the file: the first load must succeed.
    pub fn open_policy(path: &Path, secret: [u8; 16], store: S) -> Result<Self, Vec<Diagnostics>> {
        Self::open_policy_with_limit_ids(path, secret, store, &LimitIdAllocator::default())
    }

    /// Like [`open_policy`](Self::open_policy), on a store whose states have these ids.
    ///
    /// # Errors
    /// All problems of the file.
    pub fn open_policy_with_limit_ids(
        path: &Path,
        secret: [u8; 16],
        store: S,
        limit_ids: &LimitIdAllocator,
    ) -> Result<Self, Vec<Diagnostics>> {
        let claims = Arc::<ClaimVerifier>::default();
        Self::open(
            path,
            secret,
            &Arc::clone(&claims),
            |(policy, rules, prepared)| {
                let features = Arc::new(PolicyFeatures::new(&rules));
                let engine = Engine::with_limit_ids(rules, store, limit_ids)?;
                let generation = engine.generation().number();
                claims.replace(prepared);
                Ok(PolicyEngine {
                    claims,
                    features,
                    engine: Arc::new(engine),
                    policy: ArcSwap::from_pointee((generation, Arc::new(policy))),
                })
            },
        )
    }
}

impl<S> PolicyEngine<S> {
    /// The engine.
    #[must_use]
    pub const fn engine(&self) -> &Arc<Engine<S>> {
        &self.engine
    }

    /// The tokens that the current policy accepts.
    #[must_use]
    pub const fn claims(&self) -> &Arc<ClaimVerifier> {
        &self.claims
    }

    pub(crate) const fn features(&self) -> &Arc<PolicyFeatures> {
        &self.features
    }

    /// The generation and the current policy as the file defines it.
    #[must_use]
    pub fn current_policy(&self) -> (u64, Arc<Policy>) {
        let in_force = self.policy.load();
        (in_force.0, Arc::clone(&in_force.1))
    }
}

impl<S: StateStore> Reloadable for PolicyEngine<S> {
    type Rules = (Policy, Rules, PreparedClaims);
    type Options = Arc<ClaimVerifier>;

    fn read(path: &Path) -> Result<Sources, Vec<Diagnostics>> {
        match read_path(path) {
            Ok(bytes) => Ok(vec![(path.to_owned(), bytes)]),
            Err(problems) => Err(vec![problems]),
        }
    }

    fn fingerprint(sources: &Sources) -> Fingerprint {
        Fingerprint::from_parts(sources.iter().map(|(_, bytes)| bytes.as_slice()))
    }

    fn compile(
        sources: Sources,
        path: &Path,
        secret: [u8; 16],
        claims: &Arc<ClaimVerifier>,
    ) -> Result<Self::Rules, Vec<Diagnostics>> {
        let bytes = sources.into_iter().flat_map(|(_, bytes)| bytes).collect();
        compile(bytes, path, secret, claims).map_err(|problems| vec![problems])
    }

    fn options(&self) -> &Arc<ClaimVerifier> {
        &self.claims
    }

    fn swap(&self, (policy, rules, claims): Self::Rules) -> Result<u64, LimitIdsExhausted> {
        self.claims.replace(claims);
        let generation = self.features.replace(&self.engine, rules)?;
        self.policy.store(Arc::new((generation, Arc::new(policy))));
        Ok(generation)
    }

    fn limit_names(&self) -> Vec<Box<str>> {
        let generation = self.engine.generation();
        let rules = generation.rules();
        // The built-in limit of preflights is behind those of the file.
        let own = rules.preflight_rule().unwrap_or(usize::MAX);
        let own = rules.rules().iter().take(own);
        own.map(|rule| rule.name.clone()).collect()
    }

    fn generation(&self) -> u64 {
        self.engine.generation().number()
    }

    fn now(&self) -> Timestamp {
        self.engine.store().now()
    }
}

fn compile(
    bytes: Vec<u8>,
    path: &Path,
    secret: [u8; 16],
    claims: &ClaimVerifier,
) -> Result<(Policy, Rules, PreparedClaims), Diagnostics> {
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let policy = load_bytes(bytes, path)?;
    let problems = |list| Diagnostics::new(&path.display().to_string(), &text, list);
    let rules = Rules::compile(&policy, secret).map_err(problems)?;
    let prepared = claims.prepare(&policy, &rules).map_err(problems)?;
    Ok((policy, rules, prepared))
}

impl<S> fmt::Debug for PolicyEngine<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PolicyEngine").finish_non_exhaustive()
    }
}
