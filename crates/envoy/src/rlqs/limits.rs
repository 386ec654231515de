//! Finds the policy's limits that apply to a bucket: its pairs are a descriptor, and a peek at the engine gives the limits.
//!
//! A limit becomes a number of units that refill in one window, which is exactly a token bucket. Envoy's assignments have no
//! windows, so a limit with a window becomes a token bucket of the same size and length. Concurrency limits cannot be
//! assigned this way and are ignored here. Must not know: clients, shares, messages.

use std::sync::Arc;

use tollgate_core::limit::Quota;
use tollgate_core::{Calendar, Nanos, Window};
use tollgate_engine::{DenialReason, EnforcementMode, LimitState, Verdict};
use tollgate_policy::rules::MeterRole;
use tollgate_store::Clock;

use super::strategy::Strategy;
use crate::EnvoyService;
use crate::config::{Descriptor, DescriptorEntry, RlsRequest};
use crate::rls::DescriptorRequest;

/// The limits that apply to a bucket.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum AppliedLimits {
    /// A fixed strategy, the same for every client.
    Fixed(Strategy),
    /// Limits that are shared with other clients.
    Limits(Vec<SharedLimit>),
}

/// One limit of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SharedLimit {
    /// Identifies the limit and its key: buckets with the same value share it.
    pub(super) key: Arc<[u8]>,
    pub(super) units: u64,
    pub(super) window: Nanos,
}

impl AppliedLimits {
    pub(super) fn limits(&self) -> &[SharedLimit] {
        match self {
            Self::Fixed(_) => &[],
            Self::Limits(limits) => limits,
        }
    }

    pub(super) fn into_limits(self) -> Vec<SharedLimit> {
        match self {
            Self::Fixed(_) => Vec::new(),
            Self::Limits(limits) => limits,
        }
    }
}

impl<C: Clock> EnvoyService<C> {
    /// The limits that apply to a bucket by the current policy.
    pub(super) fn limits_of_bucket(
        &self,
        domain: &str,
        pairs: &[DescriptorEntry<'_>],
    ) -> AppliedLimits {
        let descriptor = Descriptor {
            entries: pairs,
            ..Descriptor::default()
        };
        let request = RlsRequest {
            domain,
            descriptors: &[],
            hits_addend: 0,
        };
        let request = DescriptorRequest::new(&request, &descriptor);
        let verdict = self.service().engine().peek(&request);
        if let Some(
            DenialReason::Listed
            | DenialReason::Blocked
            | DenialReason::MissingKey
            | DenialReason::Unreadable,
        ) = verdict.reason().filter(|_| !verdict.is_admitted())
        {
            return AppliedLimits::Fixed(Strategy::DenyAll);
        }
        let is_main = |state: &&LimitState| {
            state.enforcement == EnforcementMode::Enforced
                && matches!(
                    state.role(),
                    MeterRole::Main | MeterRole::Share | MeterRole::Spillover
                )
        };
        let states = verdict.limits().iter().filter(is_main);
        let limits: Vec<SharedLimit> = states
            .filter_map(|state| shared_limit(&verdict, state))
            .collect();
        match &*limits {
            [] => AppliedLimits::Fixed(Strategy::AllowAll),
            some if some.iter().any(|limit| limit.units == 0) => {
                AppliedLimits::Fixed(Strategy::DenyAll)
            }
            _ => AppliedLimits::Limits(limits),
        }
    }
}

/// The limit of a state. `None` if it cannot be assigned.
fn shared_limit(verdict: &Verdict, state: &LimitState) -> Option<SharedLimit> {
    let meter = verdict.rule(state)?.meters.get(state.meter_index())?;
    // A limit with a cost of zero does not apply.
    let units = state.status.limit.checked_div(state.cost)?;
    let window = match verdict.quota_info(state).window() {
        // The window of zero units does not matter.
        _ if units == 0 => Nanos::SECOND,
        Nanos::ZERO => {
            // All quotas of a meter have the same algorithm.
            let listed = state.quota_index().unwrap_or(0);
            match meter.quotas.get(listed)?.quota() {
                Quota::FixedWindow(quota) => longest_window(quota.window()),
                _ => return None,
            }
        }
        window => window,
    };
    let mut key = meter.identity.as_bytes().to_vec();
    // A separator that no identity contains, so that a key cannot be mistaken for part of an identity.
    key.push(0);
    key.extend_from_slice(verdict.key(state));
    Some(SharedLimit {
        key: key.into(),
        units,
        window,
    })
}

/// The longest length of a window: a slower refill never admits too much.
const fn longest_window(window: Window) -> Nanos {
    match window {
        Window::Epoch(length) | Window::FirstHit(length) => length,
        Window::Calendar(Calendar::Day, _) => Nanos::DAY,
        Window::Calendar(Calendar::Week, _) => Nanos::from_secs(7 * 86_400),
        Window::Calendar(Calendar::Month, _) => Nanos::from_secs(31 * 86_400),
        _ => Nanos::from_secs(366 * 86_400),
    }
}
