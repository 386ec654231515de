//! How a fleet shares the state that one check is about: what the policy says of it, for the driver that asks a shared store.
//!
//! A store in memory needs none of this. Must not know: stores, drivers, how anything is decided.

use tollgate_core::limit::Limit;
use tollgate_policy::model::{Consistency, OnStoreFailure};
use tollgate_store::StoreKey;

/// How a fleet shares the state that one check is about.
#[derive(Clone, Copy, Debug)]
pub struct Sharing<'a> {
    /// The version of the policy and of the operators' overrides that ask. It only grows; another version makes cached
    /// denials void.
    pub version: u64,
    /// Whether the state is this process' own and is never shared.
    pub is_local: bool,
    /// How exactly nodes share it.
    pub consistency: Consistency,
    /// What is decided while the shared store does not answer.
    pub on_failure: OnStoreFailure,
    /// How long a denial may be answered without asking the store again.
    pub denial_caching: DenialCaching,
    /// The key that says which hash slot the state lies in, if not the check's own.
    pub slot_key: Option<StoreKey<'a>>,
    /// The policy's own quota, where the check's quota has a wait added to it.
    pub base_limit: Option<&'a Limit>,
    /// Whether it is a counter of envoyproxy/ratelimit: the last unit is one too many, and refused hits count too.
    pub is_envoy_counter: bool,
}

/// How long a denial may be answered from a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DenialCaching {
    /// Not at all: concurrency, penalties.
    Never,
    /// For at most a second: something may be given back.
    OneSecond,
    /// Until it is over.
    UntilRetryAfter,
}

impl Sharing<'_> {
    /// Exact, decided locally without the store, never cached: for checks that no policy describes.
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
