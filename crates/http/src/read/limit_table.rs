//! Collects the parts of limits from several fields, and puts them together at the end.
//!
//! Must not know: field names and syntax.

use tollgate_core::{Nanos, Timestamp};

use super::instants::Instant;
use super::{MAX_LIMITS, MAX_NAME_LEN};
use crate::rate_limit_info::{LimitInfo, LimitUnit};

/// Which set of fields a limit comes from. Sets do not complete each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    /// Named limits of `RateLimit`.
    Named,
    /// `RateLimit-*` and the dictionary of revision 07.
    Draft,
    /// `X-RateLimit-*`.
    X,
    /// `Anthropic-RateLimit-*`.
    Anthropic,
    /// Shopify's bucket.
    Shopify,
}

/// The parts of a limit that were read so far.
#[derive(Clone, Debug, Default)]
pub(super) struct PartialLimit {
    pub(super) unit: Option<LimitUnit>,
    pub(super) quota: Option<u64>,
    pub(super) window: Option<Nanos>,
    pub(super) remaining: Option<u64>,
    pub(super) used: Option<u64>,
    pub(super) reset: Option<Instant>,
    /// Discord's delay, which does not depend on the clock.
    pub(super) reset_after: Option<Instant>,
    pub(super) cost: Option<u64>,
    pub(super) partition: Option<Box<str>>,
}

impl PartialLimit {
    fn take_from(&mut self, other: Self) {
        self.unit = other.unit.or(self.unit);
        self.quota = other.quota.or(self.quota);
        self.window = other.window.or(self.window);
        // Of two items about one limit the stricter counts: a proxy may have added its own. Nobody knows which reset belongs to which
        // remaining quota, so the later reset does.
        self.remaining = match (self.remaining, other.remaining) {
            (Some(one), Some(two)) => Some(one.min(two)),
            (one, two) => one.or(two),
        };
        self.used = other.used.or(self.used);
        self.reset = later(self.reset, other.reset);
        self.reset_after = later(self.reset_after, other.reset_after);
        self.cost = other.cost.or(self.cost);
        self.partition = other.partition.or(self.partition.take());
    }
}

/// The later of two resets. A delay and a time cannot be compared here, and nobody sends both: the second counts.
fn later(one: Option<Instant>, two: Option<Instant>) -> Option<Instant> {
    match (one, two) {
        (Some(Instant::After(one)), Some(Instant::After(two))) => {
            Some(Instant::After(one.max(two)))
        }
        (Some(Instant::At(one)), Some(Instant::At(two))) => Some(Instant::At(one.max(two))),
        (one, two) => two.or(one),
    }
}

struct Entry {
    family: Family,
    name: Box<str>,
    parts: PartialLimit,
}

/// A quota with a window that has no name in the dialects that list it.
struct UnnamedPolicy {
    quota: u64,
    window: Option<Nanos>,
    name: Option<Box<str>>,
}

/// The limits of one response, at most [`MAX_LIMITS`]. More are dropped and counted.
#[derive(Default)]
pub(super) struct LimitTable {
    entries: Vec<Entry>,
    policies: Vec<UnnamedPolicy>,
    pub(super) dropped: u32,
    overflow: PartialLimit,
}

impl LimitTable {
    /// The parts of a limit. Beyond the bound they are read into a place that is dropped.
    pub(super) fn partial(&mut self, family: Family, name: &str) -> &mut PartialLimit {
        let is_same =
            |entry: &Entry| entry.family == family && entry.name.eq_ignore_ascii_case(name);
        let index = match self.entries.iter().position(is_same) {
            Some(index) => index,
            None if self.entries.len() >= MAX_LIMITS || name.len() > MAX_NAME_LEN => {
                self.dropped = self.dropped.saturating_add(1);
                return &mut self.overflow;
            }
            None => {
                self.entries.push(Entry {
                    family,
                    name: name.into(),
                    parts: PartialLimit::default(),
                });
                self.entries.len() - 1
            }
        };
        match self.entries.get_mut(index) {
            Some(entry) => &mut entry.parts,
            None => &mut self.overflow,
        }
    }

    /// Adds parts to a limit.
    pub(super) fn merge(&mut self, family: Family, name: &str, parts: PartialLimit) {
        self.partial(family, name).take_from(parts);
    }

    /// Adds a policy that is listed by its quota.
    pub(super) fn add_policy(&mut self, quota: u64, window: Option<Nanos>, name: Option<Box<str>>) {
        let fits = name.as_ref().is_none_or(|name| name.len() <= MAX_NAME_LEN);
        if self.policies.len() >= MAX_LIMITS || !fits {
            self.dropped = self.dropped.saturating_add(1);
            return;
        }
        self.policies.push(UnnamedPolicy {
            quota,
            window,
            name,
        });
    }

    /// The limits, for a server whose clock shows `now`.
    pub(super) fn finish(mut self, now: Timestamp, limits: &mut Vec<LimitInfo>) {
        for entry in std::mem::take(&mut self.entries) {
            let parts = entry.parts;
            let mut limit = LimitInfo {
                name: (!entry.name.is_empty()).then_some(entry.name),
                unit: parts.unit.unwrap_or_default(),
                quota: parts.quota,
                window: parts.window,
                remaining: parts.remaining.or_else(|| {
                    let (quota, used) = (parts.quota?, parts.used?);
                    Some(quota.saturating_sub(used))
                }),
                reset_after: parts
                    .reset_after
                    .or(parts.reset)
                    .map(|reset| reset.wait_from(now)),
                cost: parts.cost,
                partition: parts.partition,
            };
            if matches!(entry.family, Family::Draft | Family::X) && limit.name.is_none() {
                self.name_and_window(&mut limit);
            }
            limits.push(limit);
        }
        let room = MAX_LIMITS.saturating_sub(limits.len());
        limits.extend(
            self.policies
                .into_iter()
                .take(room)
                .map(|policy| LimitInfo {
                    name: policy.name,
                    quota: Some(policy.quota),
                    window: policy.window,
                    ..LimitInfo::default()
                }),
        );
    }

    /// Older drafts send the status of one limit and list policies by quota: the first with its quota is its policy.
    fn name_and_window(&mut self, limit: &mut LimitInfo) {
        let is_same = |policy: &UnnamedPolicy| Some(policy.quota) == limit.quota;
        if let Some(index) = self.policies.iter().position(is_same) {
            let policy = self.policies.remove(index);
            limit.window = limit.window.or(policy.window);
            limit.name = policy.name;
        }
    }
}
