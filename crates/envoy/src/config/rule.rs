//! A checked rule of a file.
//!
//! Must not know: requests, how a rule is found.

use tollgate_core::limit::Limit;

use super::metadata::Metadata;
use super::window_unit::WindowUnit;

/// A rule: a descriptor with a limit.
#[derive(Debug)]
pub struct EnvoyRule {
    /// The index of the rule in its policy.
    pub number: u32,
    /// The rule's path in its domain, which is also the name of its metric: `domain.key_value.key2`.
    pub name: Box<str>,
    /// The quota.
    pub quota: RuleQuota,
    /// The limit's name in replies and in `replaces` of other rules; may be empty.
    pub limit_name: Box<str>,
    /// The names of the limits that this rule replaces.
    pub replaces: Box<[Box<str>]>,
    /// Whether it counts but never denies.
    pub shadow_mode: bool,
    /// Whether it denies only if all rules of the request with this mode deny.
    pub quota_mode: bool,
    /// Whether its metric's name contains the request's values.
    pub detailed_metric: bool,
    /// Its part of the dynamic metadata of admitted requests.
    pub metadata: Option<Metadata>,
    /// The entries on the path to it, for its explanation.
    pub(super) levels: Box<[RuleLevel]>,
    /// [`limit_name`](Self::limit_name) and [`replaces`](Self::replaces) as numbers.
    pub(super) limit_name_id: Option<u32>,
    pub(super) replaced_ids: Box<[u32]>,
}

/// The quota of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleQuota {
    /// No limit. Nothing is counted.
    Unlimited,
    /// A limit for each window.
    Limited {
        /// The requests that it admits in a window. Zero admits nothing.
        requests_per_unit: u32,
        /// The length of the window.
        unit: WindowUnit,
        /// The counter. Its limit is one more than the rule's, so that nothing remains exactly when the rule is exceeded.
        counter: Limit,
        /// The index of the identity under which it is counted.
        state: RuleStateIndex,
    },
}

/// The index of a state's identity in [`EnvoyPolicy::identities`](super::EnvoyPolicy::identities).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RuleStateIndex(pub u32);

/// One entry on the path to a rule.
#[derive(Clone, Debug)]
pub(super) struct RuleLevel {
    pub(super) key: Box<str>,
    pub(super) value: Box<str>,
    pub(super) shared: bool,
}

impl RuleStateIndex {
    /// The state of overrides of descriptors without a rule: the first ones, in the order of units.
    pub(super) fn for_overrides(unit: WindowUnit) -> Self {
        let index = WindowUnit::ALL.iter().position(|other| *other == unit);
        Self(
            index
                .and_then(|index| u32::try_from(index).ok())
                .unwrap_or(0),
        )
    }
}
