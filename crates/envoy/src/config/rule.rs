//! One limit of a file, checked and ready to be asked.
//!
//! Must not know: requests, how it is found.

use tollgate_core::limit::Limit;

use super::metadata::Metadata;
use super::window_unit::WindowUnit;

/// One limit.
#[derive(Debug)]
pub struct EnvoyRule {
    /// Which of its policy's rules it is, from zero.
    pub number: u32,
    /// Where it stands in its domain, which is also the name of its metric: `domain.key_value.key2`.
    pub name: Box<str>,
    /// How much it admits.
    pub quota: RuleQuota,
    /// The name that answers carry and that other rules replace it by. Often empty.
    pub limit_name: Box<str>,
    /// The names of the limits that do not apply where this one does.
    pub replaces: Box<[Box<str>]>,
    /// Whether it only counts and never denies.
    pub shadow_mode: bool,
    /// Whether it denies only together with all other such rules of a request.
    pub quota_mode: bool,
    /// Whether its metric is named by the request's values.
    pub detailed_metric: bool,
    /// What it adds to the dynamic metadata of requests that it admits.
    pub metadata: Option<Metadata>,
    /// The entries on the way to it, for words about it.
    pub(super) levels: Box<[RuleLevel]>,
    /// [`limit_name`](Self::limit_name) and [`replaces`](Self::replaces) as numbers.
    pub(super) limit_name_id: Option<u32>,
    pub(super) replaced_ids: Box<[u32]>,
}

/// How much a rule admits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleQuota {
    /// As much as there is. Nothing is counted.
    Unlimited,
    /// So many in each window.
    Limited {
        /// How many. Zero admits nothing.
        requests_per_unit: u32,
        /// How long the window is.
        unit: WindowUnit,
        /// The counter, as core keeps it: its limit is one more than the rule's, so that the rule is exceeded exactly
        /// when nothing of it remains.
        counter: Limit,
        /// Under which identity it is counted.
        state: RuleStateIndex,
    },
}

/// Which of a policy's counted states it is; the index of its identity in
/// [`EnvoyPolicy::identities`](super::EnvoyPolicy::identities).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RuleStateIndex(pub u32);

/// One entry on the way to a rule.
#[derive(Clone, Debug)]
pub(super) struct RuleLevel {
    pub(super) key: Box<str>,
    pub(super) value: Box<str>,
    pub(super) shared: bool,
}

impl RuleStateIndex {
    /// The state of limits that come with descriptors of no rule: the first ones, in the order of units.
    pub(super) fn for_overrides(unit: WindowUnit) -> Self {
        let index = WindowUnit::ALL.iter().position(|other| *other == unit);
        Self(
            index
                .and_then(|index| u32::try_from(index).ok())
                .unwrap_or(0),
        )
    }
}
