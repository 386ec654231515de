//! Flags of rarely used parts of the current policy. Under a policy without such a part, requests read only the flag.
//!
//! A flag is set before a policy with that part is in force, and cleared only after that policy was replaced. So a request may
//! read the policy for nothing, but never misses a part. Must not know: requests, what the parts do.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use tollgate_engine::{Engine, LimitIdsExhausted, StateStore};
use tollgate_policy::attributes::Attribute;
use tollgate_policy::rules::Rules;

/// Which rarely used parts the current policy has.
#[derive(Debug)]
pub(crate) struct PolicyFeatures {
    has_priorities: AtomicBool,
    reads_cookies: AtomicBool,
    /// Locked while the policy is replaced, so that the flags are those of the policy that was put in force last.
    replacing: Mutex<()>,
}

impl PolicyFeatures {
    /// The features of the first policy.
    pub(crate) fn new(rules: &Rules) -> Self {
        Self {
            has_priorities: AtomicBool::new(rules.priorities().is_some()),
            reads_cookies: AtomicBool::new(reads_cookies(rules)),
            replacing: Mutex::default(),
        }
    }

    /// Whether the policy may have `priorities` or `overload`.
    #[inline]
    pub(crate) fn may_have_priorities(&self) -> bool {
        self.has_priorities.load(Ordering::Acquire)
    }

    /// Whether the policy may read a cookie.
    #[inline]
    pub(crate) fn may_read_cookies(&self) -> bool {
        self.reads_cookies.load(Ordering::Acquire)
    }

    /// Puts rules in force, and returns their generation.
    pub(crate) fn replace<S: StateStore>(
        &self,
        engine: &Engine<S>,
        rules: Rules,
    ) -> Result<u64, LimitIdsExhausted> {
        let _one_at_a_time = self
            .replacing
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let next = [
            (&self.has_priorities, rules.priorities().is_some()),
            (&self.reads_cookies, reads_cookies(&rules)),
        ];
        for (flag, is_set) in next {
            flag.fetch_or(is_set, Ordering::Release);
        }
        let generation = engine.replace(rules)?;
        for (flag, is_set) in next {
            flag.store(is_set, Ordering::Release);
        }
        Ok(generation)
    }
}

/// Whether a policy reads a cookie. A client can send each of them more than once, so all of them have a rule.
fn reads_cookies(rules: &Rules) -> bool {
    let mut read = rules.duplicate_rules().iter();
    read.any(|(attribute, _)| matches!(attribute, Attribute::Cookie(_)))
}
