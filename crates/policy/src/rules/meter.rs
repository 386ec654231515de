//! One state of a rule: its identity, quotas and role.
//!
//! Must not know: how state is stored; the engine assigns ids.

use tollgate_core::limit::Limit;

use super::variant_selector::MeterGrant;
use crate::attributes::Attributes;

/// One state per key.
#[derive(Debug)]
pub struct Meter {
    /// The stable identity of its state across reloads: the limit's name, or `id:` and its id, plus a suffix (`login`,
    /// `login#2` for a second window, `login/org` for a level, `login!block`, `login!offences`, `login!seen`, `login!local`,
    /// `login!spillover`, `login!share/team-a`, `login!candidate`, `login!candidate#2`). Limits that share a bucket have the identity `@bucket`.
    pub identity: Box<str>,
    /// The `id` in the file, if there is one.
    pub fixed_id: Option<u16>,
    /// Its role.
    pub role: MeterRole,
    /// The name of the level, if the rule is a hierarchy, or of the share.
    pub level: Option<Box<str>>,
    /// All quotas of the state: the limit's own first, then tiers and overrides.
    pub quotas: Box<[Limit]>,
    /// The grant of each variant: the rule's own quota, its tiers, its overrides, in this order.
    pub(crate) grants: Box<[MeterGrant]>,
}

impl Meter {
    /// The quota of a variant. An unknown variant gets the rule's own quota.
    #[must_use]
    pub fn select_quota(
        &self,
        variant: usize,
        request: &dyn Attributes,
        route: Option<&[u8]>,
    ) -> SelectedQuota {
        match self.grants.get(variant).or(self.grants.first()) {
            Some(grant) => grant.select_quota(request, route),
            None => SelectedQuota::Unlimited,
        }
    }

    /// Whether this variant's quota is computed for each request.
    #[must_use]
    pub fn is_computed(&self, variant: usize) -> bool {
        let grant = self.grants.get(variant).or(self.grants.first());
        matches!(grant, Some(MeterGrant::Computed(_)))
    }
}

/// The role of a meter in its rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MeterRole {
    /// It must admit.
    Main,
    /// A permissive bucket of this process that must admit too.
    Local,
    /// A guaranteed part of the main meter's quota. If it admits, the main meter is charged whatever it has left. If not, the main meter
    /// alone must admit.
    Share,
    /// Charged instead of the main meters, when those have no room.
    Spillover,
    /// Spent while the key is blocked.
    Block,
    /// Counts how often the key was blocked.
    Offences,
    /// Spent for each distinct value that still counts.
    Distinct,
    /// Evaluated beside the others, never enforced.
    Candidate,
}

/// The quota of a request at one meter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SelectedQuota {
    /// One of the meter's quotas, by its index.
    Index(usize),
    /// A quota computed for this request.
    Computed(Limit),
    /// None: this key is not limited.
    Unlimited,
}
