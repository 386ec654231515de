//! One state that a request may touch: whose it is, by which quota, and what part it plays.
//!
//! Must not know: how state is kept; numbers that stores want are given by the engine.

use tollgate_core::limit::Limit;

use super::variant_selector::MeterGrant;
use crate::attributes::Attributes;

/// One state per key.
#[derive(Debug)]
pub struct Meter {
    /// The stable identity of its state across reloads: the limit's name, or `id:` and its id, and the meter's part in
    /// it (`login`, `login#2` for a second window, `login/org` for a level, `login!block`, `login!seen`, `login!local`,
    /// `login!candidate`, `login!candidate#2`). Limits that share a bucket share the identity `@bucket`.
    pub identity: Box<str>,
    /// The number that the file asks for, if it does.
    pub fixed_id: Option<u16>,
    /// The part it plays.
    pub role: MeterRole,
    /// The level's name, where the rule is a hierarchy.
    pub level: Option<Box<str>>,
    /// Every quota that it may be decided by, all sharing one state: the limit's own first, then tiers and overrides.
    pub quotas: Box<[Limit]>,
    /// What each of the rule's variants (its own quota, its tiers, its overrides, in this order) gets here.
    pub(crate) grants: Box<[MeterGrant]>,
}

impl Meter {
    /// The quota that a request of this variant falls under. A request for which the rule has no such variant gets
    /// the rule's own.
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

/// The part that a meter plays in its rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MeterRole {
    /// It must admit.
    Main,
    /// A permissive bucket of this process that must admit too.
    Local,
    /// Spent while the key is blocked.
    Block,
    /// Spent for each value that was seen lately.
    Distinct,
    /// Decided beside the others, never enforced.
    Candidate,
}

/// Which quota a request falls under.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SelectedQuota {
    /// One of the meter's quotas, by its index.
    Index(usize),
    /// One that was computed for this request.
    Computed(Limit),
    /// None: this key is not limited.
    Unlimited,
}
