//! Which limits of the policy a bucket is under, as descriptors are in the other service: its pairs are what is known of the
//! request, and the engine is asked without charging anything.
//!
//! A limit becomes so many units that all come back in one window. Buckets of tokens are exactly that. Envoy knows no
//! windows, so a limit with one becomes the bucket of the same number and length. Places that are held cannot be shared out
//! this way and do not count here. Must not know: clients, shares, messages.

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

/// What holds for a bucket.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum AppliedLimits {
    /// The same for every client, whoever else there is.
    Fixed(Strategy),
    /// These, to be shared with others.
    Limits(Vec<SharedLimit>),
}

/// One limit of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SharedLimit {
    /// Which it is: the same for all whom it counts together.
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
    /// What holds for a bucket by the policy in force.
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
            state.enforcement == EnforcementMode::Enforced && state.role() == MeterRole::Main
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

/// Nothing if the limit is none here.
fn shared_limit(verdict: &Verdict, state: &LimitState) -> Option<SharedLimit> {
    let meter = verdict.rule(state)?.meters.get(state.meter_index())?;
    // What costs nothing is not limited.
    let units = state.status.limit.checked_div(state.cost)?;
    let window = match verdict.quota_info(state).window() {
        // Of nothing it does not matter when it comes back.
        _ if units == 0 => Nanos::SECOND,
        Nanos::ZERO => {
            // All quotas of a meter are of one kind.
            let listed = state.quota_index().unwrap_or(0);
            match meter.quotas.get(listed)?.quota() {
                Quota::FixedWindow(quota) => longest_window(quota.window()),
                _ => return None,
            }
        }
        window => window,
    };
    let mut key = meter.identity.as_bytes().to_vec();
    // No identity contains it, so nobody's key can look like part of one.
    key.push(0);
    key.extend_from_slice(verdict.key(state));
    Some(SharedLimit {
        key: key.into(),
        units,
        window,
    })
}

/// The longest that a window can be: what comes back no sooner is never too much.
const fn longest_window(window: Window) -> Nanos {
    match window {
        Window::Epoch(length) | Window::FirstHit(length) => length,
        Window::Calendar(Calendar::Day, _) => Nanos::DAY,
        Window::Calendar(Calendar::Week, _) => Nanos::from_secs(7 * 86_400),
        Window::Calendar(Calendar::Month, _) => Nanos::from_secs(31 * 86_400),
        _ => Nanos::from_secs(366 * 86_400),
    }
}
