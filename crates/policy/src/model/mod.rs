//! What a policy file says, in full: every short form spelled out, every default filled in, every number checked.
//!
//! Values that a message may have to point at carry their [`Place`](crate::source::Place) in an [`At`]. Two models are
//! equal if they say the same, wherever they say it. Must not know: how files are read, how rules are matched.

mod action;
mod cost;
mod key;
mod matching;
mod quota;

pub use action::{Consistency, Mode, OnStoreFailure, Penalty, Percent};
pub use tollgate_core::limit::WhenFull;
pub use cost::{Cost, Count, StatusClass};
pub use key::{KeyPart, OnMissing};
#[expect(deprecated, reason = "kept for one release")]
pub use matching::Network;
pub use matching::{Condition, Glob, Match, Template, Test};
pub use quota::{Amount, Burst, ComputedRate, Period, QuotaOverride, QuotaSpec, RateSpec, Tiers};

pub use crate::algorithm::Algorithm;
pub use crate::source::Located;
pub use ipnet::IpNet;

use crate::attributes::Attribute;

/// A whole policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The limits, in the order of the file.
    pub limits: Vec<LimitRule>,
    /// Requests that no limit applies to.
    pub exempt: Vec<Match>,
    /// Requests that are refused without asking any limit.
    pub deny: Vec<DenyRule>,
    /// What holds for limits that name the group.
    pub groups: Vec<Group>,
    /// Route templates that exist though no limit matches by them.
    pub routes: Vec<Located<Template>>,
    /// `mode`: of everything at once; the strictest of this and a limit's own holds.
    pub mode: Mode,
    /// `fleet.nodes`: how many instances share the quotas, where nothing better is known.
    pub nodes: Option<u32>,
    /// `divergence_threshold`: above this share of differing decisions a candidate is advised against.
    pub divergence_threshold: Percent,
}

impl Default for Policy {
    /// Nothing is limited.
    fn default() -> Self {
        Self {
            limits: Vec::new(),
            exempt: Vec::new(),
            deny: Vec::new(),
            groups: Vec::new(),
            routes: Vec::new(),
            mode: Mode::Enforce,
            nodes: None,
            divergence_threshold: Self::DIVERGENCE_THRESHOLD,
        }
    }
}

impl Policy {
    /// Above this share of differing decisions a candidate is advised against, unless the policy says otherwise: 2 %.
    pub const DIVERGENCE_THRESHOLD: Percent = Percent::from_hundredths(200);
}

/// A request that is refused whatever the limits say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DenyRule {
    /// Which requests.
    pub matching: Match,
    /// The status to answer with.
    pub status: u16,
    /// The message to answer with.
    pub message: Option<Box<str>>,
}

/// Limits that override each other instead of all applying.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// As limits name it.
    pub name: Located<Box<str>>,
    /// How its limits combine.
    pub apply: GroupSelection,
}

/// How the limits of a group combine when several of them match.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum GroupSelection {
    /// All of them apply.
    #[default]
    All,
    /// Only the most specific: the one with the most conditions; of as many, the one that the file lists first.
    /// Limits that are not enforced take nobody's place.
    Narrowest,
}

/// One limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitRule {
    /// Unique in the file, stable across reloads unless `id` is given.
    pub name: Located<Box<str>>,
    /// The stable number, where the name may change or a shared store must agree on it.
    pub id: Option<Located<u16>>,
    /// Which requests it is about.
    pub matching: Match,
    /// The group it belongs to.
    pub group: Option<Located<Box<str>>>,
    /// Limits that name the same bucket share its state.
    pub bucket: Option<Located<Box<str>>>,
    /// Whose quota it is. Empty: everyone's together.
    pub key: Vec<KeyPart>,
    /// How much.
    pub quota: Located<QuotaSpec>,
    /// Other quotas by an attribute's value.
    pub tiers: Option<Tiers>,
    /// Other quotas for single keys.
    pub overrides: Vec<QuotaOverride>,
    /// Levels from the widest to the narrowest, each with its key and quota; then the limit's own are not given.
    pub levels: Vec<Level>,
    /// What a request costs.
    pub cost: Cost,
    /// What is counted.
    pub count: Count,
    /// Counts how many different values this attribute has, not requests.
    pub distinct: Option<Located<Attribute>>,
    /// A permissive bucket in this process, asked first.
    pub local: Option<Located<QuotaSpec>>,
    /// A quota that is tried beside the enforced one, never enforced itself.
    pub candidate: Option<Located<QuotaSpec>>,
    /// `enforce`, `shadow` or `off`.
    pub mode: Mode,
    /// The share of keys that it is enforced for; the others are shadowed.
    pub enforce: Percent,
    /// A denial that would be over sooner than this becomes a wait.
    pub wait: Option<Located<tollgate_core::Nanos>>,
    /// What a denial costs the denied.
    pub penalty: Located<Penalty>,
    /// `charge: always`: never denies and charges into debt down to the overdraft.
    pub charge_always: bool,
    /// How far below zero post-paid charges may go, in units.
    pub overdraft: u64,
    /// What to decide when the shared store does not answer.
    pub on_store_failure: OnStoreFailure,
    /// What becomes of its keys when memory is full. `None`: [`WhenFull::Forget`] if clients choose a part of the key, else
    /// [`WhenFull::Refuse`].
    pub when_full: Option<WhenFull>,
    /// How exactly a fleet shares the quota.
    pub consistency: Located<Consistency>,
    /// Limits with the same attribute here live in one slot of a cluster.
    pub colocate: Option<Located<Attribute>>,
    /// The status of a denial.
    pub status: u16,
    /// The message of a denial.
    pub message: Option<Box<str>>,
}

impl LimitRule {
    /// A limit that says no more than its name and how much: everyone together, every request, every default.
    #[must_use]
    pub fn new(name: impl Into<Located<Box<str>>>, quota: Located<QuotaSpec>) -> Self {
        Self {
            name: name.into(),
            id: None,
            matching: Match::default(),
            group: None,
            bucket: None,
            key: Vec::new(),
            quota,
            tiers: None,
            overrides: Vec::new(),
            levels: Vec::new(),
            cost: Cost::default(),
            count: Count::default(),
            distinct: None,
            local: None,
            candidate: None,
            mode: Mode::default(),
            enforce: Percent::default(),
            wait: None,
            penalty: Located::default(),
            charge_always: false,
            overdraft: 0,
            on_store_failure: OnStoreFailure::default(),
            when_full: None,
            consistency: Located::default(),
            colocate: None,
            status: 429,
            message: None,
        }
    }
}

/// One level of a hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Level {
    /// As verdicts name it when it is violated.
    pub name: Located<Box<str>>,
    /// What this level adds to the key of the level above.
    pub key: Vec<KeyPart>,
    /// How much.
    pub quota: Located<QuotaSpec>,
}
