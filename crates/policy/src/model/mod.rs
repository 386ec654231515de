//! The content of a policy file: short forms expanded, defaults filled in, numbers checked.
//!
//! Values that diagnostics refer to carry their [`SourceLocation`](crate::source::SourceLocation) in a [`Located`].
//! Equality ignores locations. Must not know: how files are read, how rules are matched.

mod action;
mod cost;
mod gateway;
mod jwt;
mod key;
mod matching;
mod overload;
mod paths;
mod quota;

pub use action::{BlockSteps, Consistency, Mode, OnStoreFailure, Penalty, Percent};
pub use cost::{Cost, Count, StatusClass};
pub use gateway::{
    EjectionSpec, GatewaySpec, HeaderEdits, HealthCheckSpec, RouteSpec, UpstreamAddress,
    UpstreamEndpoint, UpstreamProtocol, UpstreamSpec, UpstreamTlsSpec, WeightedAddress,
};
pub use jwt::{JwkMembers, JwtSettings};
pub use key::{KeyPart, OnMissing};
#[expect(deprecated, reason = "kept for one release")]
pub use matching::Network;
pub use matching::{Condition, Glob, Match, Template, Test};
pub use overload::{OverloadSpec, PriorityClassSpec, RetrySource, ShedMechanism};
pub use paths::{DuplicateRule, DuplicateSetting, PathCase, PathParameters, PathSettings};
pub use quota::{
    Amount, Burst, ComputedRate, Period, QuotaDetails, QuotaOverride, QuotaSpec, RateSpec,
    RefillMode, Shares, Tiers, WindowStart,
};
pub use tollgate_core::limit::WhenFull;

pub use crate::algorithm::Algorithm;
pub use crate::source::Located;
pub use ipnet::IpNet;

use crate::attributes::Attribute;
use tollgate_core::Nanos;

/// A policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The limits, in file order.
    pub limits: Vec<LimitRule>,
    /// Requests that no limit applies to.
    pub exempt: Vec<Match>,
    /// Requests that are refused before any limit.
    pub deny: Vec<DenyRule>,
    /// How the limits of each group combine.
    pub groups: Vec<Group>,
    /// Route templates that no limit matches by.
    pub routes: Vec<Located<Template>>,
    /// `paths`: how the servers behind read paths.
    pub paths: PathSettings,
    /// `duplicates`: which of several values counts.
    pub duplicates: Vec<DuplicateSetting>,
    /// `jwt`: which tokens are accepted. Without it, claims are those that callers of the API vouch for.
    pub jwt: Option<JwtSettings>,
    /// `preflights`: the quota of each address for CORS preflights. `None`: preflights are ordinary requests.
    pub preflights: Option<Located<RateSpec>>,
    /// `mode` of the whole policy. The more permissive of this and the limit's own mode applies.
    pub mode: Mode,
    /// `fleet.nodes`: the number of nodes, if the fleet does not know it.
    pub nodes: Option<u32>,
    /// `divergence_threshold`: the share of differing decisions above which a candidate is not recommended.
    pub divergence_threshold: Percent,
    /// `gateway`: the upstreams behind the gateway listener.
    pub gateway: Option<GatewaySpec>,
    /// `priorities`: the priority classes, the most important first. Empty: all requests are of one class.
    pub priorities: Vec<PriorityClassSpec>,
    /// `overload`: which mechanisms shed requests.
    pub overload: OverloadSpec,
    /// How `overload` recognises retries.
    pub retries: RetrySource,
}

impl Default for Policy {
    /// No limits.
    fn default() -> Self {
        Self {
            limits: Vec::new(),
            exempt: Vec::new(),
            deny: Vec::new(),
            groups: Vec::new(),
            routes: Vec::new(),
            paths: PathSettings::default(),
            duplicates: Vec::new(),
            jwt: None,
            preflights: Some(Located::from(Self::PREFLIGHTS)),
            mode: Mode::Enforce,
            nodes: None,
            divergence_threshold: Self::DIVERGENCE_THRESHOLD,
            gateway: None,
            priorities: Vec::new(),
            overload: OverloadSpec::default(),
            retries: RetrySource::default(),
        }
    }
}

impl Policy {
    /// The default of `divergence_threshold`: 2 %.
    pub const DIVERGENCE_THRESHOLD: Percent = Percent::from_hundredths(200);

    /// The default of `preflights`: 6000/min. Browsers keep the answer to a preflight for five seconds by default, so this is
    /// enough for some hundred users behind one address.
    pub const PREFLIGHTS: RateSpec = RateSpec {
        units: 6_000,
        period: Period::Span(Nanos::MINUTE),
    };

    /// The name of the limit that preflights are charged to.
    pub const PREFLIGHTS_NAME: &str = "cors-preflights";
}

/// Requests that are refused before any limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DenyRule {
    /// Which requests.
    pub matching: Match,
    /// The response status.
    pub status: u16,
    /// The response message.
    pub message: Option<Box<str>>,
}

/// A group of limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// The name that limits refer to.
    pub name: Located<Box<str>>,
    /// How its limits combine.
    pub apply: GroupSelection,
}

/// How the limits of a group combine when several match.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum GroupSelection {
    /// All of them apply.
    #[default]
    All,
    /// Only the limit with the most conditions applies; of several, the first in the file. Limits that are not enforced
    /// do not replace others.
    Narrowest,
}

/// One limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitRule {
    /// Unique in the file. State is kept by it across reloads, unless there is an `id`.
    pub name: Located<Box<str>>,
    /// A stable id of the state, so that the name may change.
    pub id: Option<Located<u16>>,
    /// Which requests it matches.
    pub matching: Match,
    /// The group it belongs to.
    pub group: Option<Located<Box<str>>>,
    /// Limits with the same bucket share its state.
    pub bucket: Option<Located<Box<str>>>,
    /// The parts of the key. Empty: all requests share one quota.
    pub key: Vec<KeyPart>,
    /// How much.
    pub quota: Located<QuotaSpec>,
    /// Other quotas by the value of an attribute.
    pub tiers: Option<Tiers>,
    /// Other quotas for single keys.
    pub overrides: Vec<QuotaOverride>,
    /// Levels from the widest to the narrowest, each with its key and quota. With levels, the limit has no own key and
    /// quota.
    pub levels: Vec<Level>,
    /// The cost of a request.
    pub cost: Cost,
    /// What is counted.
    pub count: Count,
    /// The responses whose charge is given back.
    pub refund: Vec<StatusClass>,
    /// Counts distinct values of this attribute, not requests.
    pub distinct: Option<Located<Attribute>>,
    /// A permissive bucket in this process, checked first.
    pub local: Option<Located<QuotaSpec>>,
    /// A second quota of the same key, charged for requests that the limit's own quota has no room for.
    pub spillover: Option<Located<QuotaSpec>>,
    /// Guaranteed parts of the limit's own quota.
    pub shares: Option<Shares>,
    /// A quota that is evaluated beside the enforced one and never enforced.
    pub candidate: Option<Located<QuotaSpec>>,
    /// `enforce`, `shadow` or `off`.
    pub mode: Mode,
    /// The share of keys that it is enforced for; other keys are in shadow mode.
    pub enforce: Percent,
    /// If the denial would end within this time, the request waits instead.
    pub wait: Option<Located<Nanos>>,
    /// What a denial costs the caller.
    pub penalty: Located<Penalty>,
    /// `charge: always`: never denies; charges may go into debt down to the overdraft.
    pub charge_always: bool,
    /// How far below zero later charges may go, in units.
    pub overdraft: u64,
    /// What to decide while the shared store does not answer.
    pub on_store_failure: OnStoreFailure,
    /// What becomes of its keys when memory is full. `None`: [`WhenFull::Forget`] if clients choose a part of the key, else
    /// [`WhenFull::Refuse`].
    pub when_full: Option<WhenFull>,
    /// How exactly a fleet shares the quota.
    pub consistency: Located<Consistency>,
    /// Limits with the same attribute here keep their state in one cluster slot.
    pub colocate: Option<Located<Attribute>>,
    /// The status of a denial.
    pub status: u16,
    /// The message of a denial.
    pub message: Option<Box<str>>,
}

impl LimitRule {
    /// A limit with a name, a quota and defaults: all requests, one shared quota.
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
            refund: Vec::new(),
            distinct: None,
            local: None,
            spillover: None,
            shares: None,
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
    /// The name that verdicts report when it denies.
    pub name: Located<Box<str>>,
    /// The parts that this level adds to the key of the level above.
    pub key: Vec<KeyPart>,
    /// How much.
    pub quota: Located<QuotaSpec>,
}
