//! What the store says about each counter becomes the answer to the request.
//!
//! Must not know: stores, protobuf, headers.

use tollgate_core::{QuotaStatus, Timestamp};

use super::metadata::Metadata;
use super::plan::{ChargePlan, CountedDescriptor, PlannedDescriptor, Treatment};
use super::request::MAX_DESCRIPTORS;
use super::rule::EnvoyRule;
use super::window_unit::{WindowUnit, whole_seconds};

/// What holds for all rules at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Modes {
    /// Nothing is denied.
    pub shadow_mode: bool,
    /// Every descriptor is decided as if its rule said `quota_mode`, also those that no rule applies to.
    pub quota_mode: bool,
}

/// Admitted or not, as Envoy's messages number it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum RlsCode {
    /// Admitted.
    #[default]
    Ok = 1,
    /// Denied.
    OverLimit = 2,
}

/// The answer to a request.
#[derive(Debug)]
pub struct EnvoyReply<'a> {
    /// Whether the request is admitted.
    pub overall: RlsCode,
    /// Whether it is admitted only because everything is in shadow.
    pub shadowed: bool,
    /// The descriptor that is closest to its limit, or the last one that denies: the one to tell clients about.
    pub tightest: Option<usize>,
    statuses: [DescriptorStatus<'a>; MAX_DESCRIPTORS],
    len: usize,
}

/// What is answered about one descriptor.
#[derive(Clone, Copy, Debug, Default)]
pub struct DescriptorStatus<'a> {
    /// Admitted or not.
    pub code: RlsCode,
    /// The limit that it falls under, if there is one.
    pub current_limit: Option<CurrentLimit<'a>>,
    /// How many more are admitted in this window. The largest number if it is unlimited, zero if there is no limit.
    pub limit_remaining: u32,
    /// Whole seconds until the window ends.
    pub until_reset: Option<u64>,
    /// Whether the limit was exceeded, even where it is in shadow and the code says that all is well.
    pub exceeded: bool,
    /// Whether a rule says that there is no limit.
    pub unlimited: bool,
    /// The rule whose metadata count, if the descriptor passed.
    admitting_rule: Option<&'a EnvoyRule>,
}

/// A limit, as clients are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CurrentLimit<'a> {
    /// How many.
    pub requests_per_unit: u32,
    /// In which time.
    pub unit: WindowUnit,
    /// The name that the file gives it; often empty.
    pub name: &'a str,
}

impl<'a> ChargePlan<'a> {
    /// The answer, given what the store says about each of [`charges`](Plan::charges), in their order, after it charged
    /// them. `now` is only needed for windows in which nothing has been counted. None if there are not as many
    /// statuses as charges.
    #[must_use]
    pub fn reply(
        &self,
        answers: &[QuotaStatus],
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
        let mut tally = CodeAggregator::default();
        let mut answers = answers.iter();
        let parts = self.descriptors.iter().zip(&mut reply.statuses);
        for (index, (part, status)) in parts.enumerate().take(reply.len) {
            *status = match &part.treatment {
                Treatment::Free => DescriptorStatus::default(),
                Treatment::Unlimited => DescriptorStatus {
                    limit_remaining: u32::MAX,
                    unlimited: true,
                    ..DescriptorStatus::default()
                },
                Treatment::Counted(charge) => counted_status(part, charge, answers.next()?, now),
            };
            tally.add(index, part, status, modes);
        }
        if answers.next().is_some() {
            return None;
        }
        reply.tightest = tally.tightest;
        if tally.is_over() {
            reply.shadowed = modes.shadow_mode;
            if !modes.shadow_mode {
                reply.overall = RlsCode::OverLimit;
            }
        }
        Some(reply)
    }
}

impl<'a> EnvoyReply<'a> {
    /// One status for each descriptor of the request, in order.
    #[must_use]
    pub fn statuses(&self) -> &[DescriptorStatus<'a>] {
        self.statuses.get(..self.len).unwrap_or_default()
    }

    /// The metadata of the rules that admitted, put together; the first to say something about a name wins. This one
    /// allocates, and is for those who send dynamic metadata.
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
    answer: &QuotaStatus,
    now: Timestamp,
) -> DescriptorStatus<'a> {
    // The counter's limit is one more than the rule's: nothing left means that the count is above the rule's.
    let exceeded = answer.remaining == 0 && !charge.is_refund;
    let remaining = answer.remaining.saturating_sub(1);
    let in_shadow = part.rule.is_some_and(|rule| rule.shadow_mode);
    let denied = exceeded && !in_shadow;
    let until_reset = match answer.reset_after.as_nanos() {
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

/// How statuses make one code.
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
        let says_so = counted && part.rule.is_some_and(|rule| rule.quota_mode);
        let is_quota = modes.quota_mode || says_so;
        let denied = status.code == RlsCode::OverLimit;
        self.quotas += usize::from(is_quota);
        self.quotas_denied += usize::from(is_quota && denied);
        if denied && !is_quota {
            self.denied = true;
            self.tightest = Some(index);
            self.least = Some(0);
        }
    }

    /// Any limit that is no quota denies; quotas deny only all together.
    const fn is_over(&self) -> bool {
        self.denied || (self.quotas > 0 && self.quotas == self.quotas_denied)
    }
}
