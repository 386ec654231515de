//! Builds the reply to a request from the store's status of each counter.
//!
//! Must not know: stores, protobuf, headers.

use tollgate_core::{QuotaStatus, Timestamp};

use super::metadata::Metadata;
use super::plan::{ChargePlan, CountedDescriptor, PlannedDescriptor, Treatment};
use super::request::MAX_DESCRIPTORS;
use super::rule::EnvoyRule;
use super::window_unit::{WindowUnit, whole_seconds};

/// Modes that apply to all rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Modes {
    /// Deny nothing.
    pub shadow_mode: bool,
    /// Treat every rule as if it had `quota_mode`, also descriptors without a rule.
    pub quota_mode: bool,
}

/// The code of Envoy's `RateLimitResponse`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum RlsCode {
    /// Admitted.
    #[default]
    Ok = 1,
    /// Denied.
    OverLimit = 2,
}

/// The reply to a request.
#[derive(Debug)]
pub struct EnvoyReply<'a> {
    /// The code of the whole request.
    pub overall: RlsCode,
    /// Whether it is admitted only because of the global shadow mode.
    pub shadowed: bool,
    /// The descriptor that is closest to its limit, or the last one that denies. Header fields describe this one.
    pub tightest: Option<usize>,
    statuses: [DescriptorStatus<'a>; MAX_DESCRIPTORS],
    len: usize,
}

/// The status of one descriptor.
#[derive(Clone, Copy, Debug, Default)]
pub struct DescriptorStatus<'a> {
    /// Its code.
    pub code: RlsCode,
    /// The limit that applies, if there is one.
    pub current_limit: Option<CurrentLimit<'a>>,
    /// The hits that remain in this window: `u32::MAX` if it is unlimited, zero without a limit.
    pub limit_remaining: u32,
    /// Whole seconds until the window ends.
    pub until_reset: Option<u64>,
    /// Whether the limit is exceeded, also in shadow mode, where the code is `Ok`.
    pub exceeded: bool,
    /// Whether the rule is `unlimited`.
    pub unlimited: bool,
    /// The rule, if it admitted the descriptor. Its metadata are sent.
    admitting_rule: Option<&'a EnvoyRule>,
}

/// A limit, as clients see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CurrentLimit<'a> {
    /// The requests that it admits in a window.
    pub requests_per_unit: u32,
    /// The length of the window.
    pub unit: WindowUnit,
    /// The limit's name in the file; may be empty.
    pub name: &'a str,
}

impl<'a> ChargePlan<'a> {
    /// Builds the reply from the store's status of each of [`charges`](ChargePlan::charges), in their order, after it charged
    /// them. `now` matters only for windows without a count. `None` if the numbers of statuses and charges differ.
    #[must_use]
    pub fn reply(
        &self,
        statuses: &[QuotaStatus],
        now: Timestamp,
        modes: Modes,
    ) -> Option<EnvoyReply<'a>> {
        let mut reply = EnvoyReply {
            overall: RlsCode::Ok,
            shadowed: false,
            tightest: None,
            statuses: [DescriptorStatus::default(); MAX_DESCRIPTORS],
            len: self.request.descriptors.len(),
        };
        let mut aggregator = CodeAggregator::default();
        let mut statuses = statuses.iter();
        let parts = self.descriptors.iter().zip(&mut reply.statuses);
        for (index, (part, status)) in parts.enumerate().take(reply.len) {
            *status = match &part.treatment {
                Treatment::Free => DescriptorStatus::default(),
                Treatment::Unlimited => DescriptorStatus {
                    limit_remaining: u32::MAX,
                    unlimited: true,
                    ..DescriptorStatus::default()
                },
                Treatment::Counted(charge) => counted_status(part, charge, statuses.next()?, now),
            };
            aggregator.add(index, part, status, modes);
        }
        if statuses.next().is_some() {
            return None;
        }
        reply.tightest = aggregator.tightest;
        if aggregator.is_over() {
            reply.shadowed = modes.shadow_mode;
            if !modes.shadow_mode {
                reply.overall = RlsCode::OverLimit;
            }
        }
        Some(reply)
    }
}

impl<'a> EnvoyReply<'a> {
    /// The status of each descriptor, in the order of the request.
    #[must_use]
    pub fn statuses(&self) -> &[DescriptorStatus<'a>] {
        self.statuses.get(..self.len).unwrap_or_default()
    }

    /// Whether a rule that admitted has metadata.
    #[must_use]
    pub fn has_metadata(&self) -> bool {
        let has =
            |one: &DescriptorStatus<'_>| one.admitting_rule.is_some_and(|it| it.metadata.is_some());
        self.statuses().iter().any(has)
    }

    /// The merged metadata of the rules that admitted; the first value of a name wins. It allocates, and is needed only for
    /// dynamic metadata.
    #[must_use]
    pub fn metadata(&self) -> Option<Metadata> {
        let mut all = self
            .statuses()
            .iter()
            .filter_map(|one| one.admitting_rule?.metadata.as_ref());
        let mut merged = all.next()?.clone();
        all.for_each(|more| merged.merge(more));
        Some(merged)
    }
}

/// The status of a counter that was charged.
fn counted_status<'a>(
    part: &PlannedDescriptor<'a>,
    charge: &CountedDescriptor,
    status: &QuotaStatus,
    now: Timestamp,
) -> DescriptorStatus<'a> {
    // The counter's limit is one more than the rule's, so nothing remains exactly if the rule is exceeded.
    let exceeded = status.remaining == 0 && !charge.is_refund;
    let remaining = status.remaining.saturating_sub(1);
    let in_shadow = part.rule.is_some_and(|rule| rule.shadow_mode);
    let denied = exceeded && !in_shadow;
    let until_reset = match status.reset_after.as_nanos() {
        0 => charge.unit.until_reset(now),
        nanos => whole_seconds(nanos),
    };
    DescriptorStatus {
        code: if denied {
            RlsCode::OverLimit
        } else {
            RlsCode::Ok
        },
        current_limit: Some(CurrentLimit {
            requests_per_unit: charge.requests_per_unit,
            unit: charge.unit,
            name: part.rule.map_or("", |rule| &rule.limit_name),
        }),
        limit_remaining: u32::try_from(remaining).unwrap_or(u32::MAX),
        until_reset: Some(until_reset),
        exceeded,
        unlimited: false,
        admitting_rule: part.rule.filter(|_| !denied),
    }
}

/// Combines the statuses into one code.
#[derive(Default)]
struct CodeAggregator {
    denied: bool,
    quotas: usize,
    quotas_denied: usize,
    tightest: Option<usize>,
    least: Option<u32>,
}

impl CodeAggregator {
    fn add(
        &mut self,
        index: usize,
        part: &PlannedDescriptor<'_>,
        status: &DescriptorStatus<'_>,
        modes: Modes,
    ) {
        let least = self.least.unwrap_or(u32::MAX);
        if status.current_limit.is_some() && status.limit_remaining < least {
            self.tightest = Some(index);
            self.least = Some(status.limit_remaining);
        }
        if status.unlimited {
            return;
        }
        let counted = matches!(part.treatment, Treatment::Counted(_));
        let has_quota_rule = counted && part.rule.is_some_and(|rule| rule.quota_mode);
        let is_quota = modes.quota_mode || has_quota_rule;
        let denied = status.code == RlsCode::OverLimit;
        self.quotas += usize::from(is_quota);
        self.quotas_denied += usize::from(is_quota && denied);
        if denied && !is_quota {
            self.denied = true;
            self.tightest = Some(index);
            self.least = Some(0);
        }
    }

    /// Whether the request is denied: one limit without `quota_mode` denies, or all limits with it do.
    const fn is_over(&self) -> bool {
        self.denied || (self.quotas > 0 && self.quotas == self.quotas_denied)
    }
}
