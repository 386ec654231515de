//! How a fleet shares the state of one check, as the policy defines it. Drivers of a shared store need it.
//!
//! An in-memory store does not. Must not know: stores, drivers, how anything is decided.

use tollgate_core::limit::Limit;
use tollgate_policy::model::{Consistency, OnStoreFailure};
use tollgate_store::StoreKey;

/// How a fleet shares the state of one check.
#[derive(Clone, Copy, Debug)]
pub struct Sharing<'a> {
    /// The version of the policy and its overrides. It only grows; another version invalidates cached denials.
    pub version: u64,
    /// Whether the state belongs to this process and is never shared.
    pub is_local: bool,
    /// How exactly nodes share it.
    pub consistency: Consistency,
    /// What decides while the shared store does not answer.
    pub on_failure: OnStoreFailure,
    /// How long a denial may be cached.
    pub denial_caching: DenialCaching,
    /// The key that selects the hash slot, if not the check's own.
    pub slot_key: Option<StoreKey<'a>>,
    /// The policy's quota, if the check's quota has a wait added.
    pub base_limit: Option<&'a Limit>,
    /// Whether it is a counter of envoyproxy/ratelimit: its last unit is over the limit, and denied hits count too.
    pub is_envoy_counter: bool,
}

/// How long a denial may be cached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DenialCaching {
    /// Not at all: for concurrency limits and limits with a penalty.
    Never,
    /// For at most a second: charges may be refunded.
    OneSecond,
    /// Until `Retry-After` has passed.
    UntilRetryAfter,
}

impl Sharing<'_> {
    /// Exact, with a local fallback, never cached: for checks outside the policy.
    pub const EXACT: Self = Self {
        version: 0,
        is_local: false,
        consistency: Consistency::Exact,
        on_failure: OnStoreFailure::Local,
        denial_caching: DenialCaching::Never,
        slot_key: None,
        base_limit: None,
        is_envoy_counter: false,
    };

    /// A counter of envoyproxy/ratelimit.
    pub const ENVOY_COUNTER: Self = Self {
        is_envoy_counter: true,
        ..Self::EXACT
    };
}
