//! A descriptor as a request to the service, and the decision on it in the terms of Envoy's messages.
//!
//! Must not know: protobuf, the decisions on other descriptors.

use std::net::IpAddr;

use tollgate_core::{Nanos, Outcome};
use tollgate_engine::{CheckMode, CheckOptions, EnforcementMode, LimitState, Verdict};
use tollgate_http::retry_after;
use tollgate_policy::attributes::{Attribute, AttributeFamily, Attributes};
use tollgate_policy::rules::MeterRole;
use tollgate_service::{RateLimitService, WaitQueueFull};
use tollgate_store::Clock;

use super::limit_status::rls_limit;
use super::rls_response::RlsStatus;
use super::seconds;
use crate::config::{Descriptor, DescriptorEntry, RlsCode, RlsRequest};

/// A descriptor as a request to the service.
pub(crate) struct DescriptorRequest<'a> {
    pub(super) descriptor: &'a Descriptor<'a>,
    /// All descriptors of the same call.
    all: &'a [Descriptor<'a>],
    domain: &'a str,
    /// Its hits. If `None`, the policy sets the cost.
    hits: Option<u64>,
}

/// A descriptor and the decision on it.
pub(super) struct DescriptorDecision<'a> {
    pub(super) request: DescriptorRequest<'a>,
    pub(super) verdict: Verdict,
    /// The decision because of a full wait queue, if it would have to wait.
    pub(super) queue_full: Option<WaitQueueFull>,
}

impl<'a> DescriptorRequest<'a> {
    pub(crate) fn new(request: &RlsRequest<'a>, descriptor: &'a Descriptor<'a>) -> Self {
        let by_request = (request.hits_addend > 0).then(|| request.hits_addend.into());
        Self {
            descriptor,
            all: request.descriptors,
            domain: request.domain,
            hits: descriptor.hits_addend.or(by_request),
        }
    }

    pub(super) fn is_refund(&self) -> bool {
        self.descriptor.is_negative_hits && self.descriptor.limit.is_none()
    }

    fn is_peek(&self) -> bool {
        self.hits == Some(0)
    }

    /// Whether the engine must charge it.
    pub(super) fn is_charged(&self) -> bool {
        !self.descriptor.is_negative_hits && !self.is_peek() && self.descriptor.limit.is_none()
    }

    /// The options of its check.
    pub(super) fn options(&self) -> CheckOptions {
        match self.hits {
            hits if self.is_refund() => CheckOptions {
                cost: Some(hits.unwrap_or(1)),
                mode: CheckMode::Refund,
                ..CheckOptions::default()
            },
            Some(0) => CheckOptions::new(CheckMode::Peek).with_cost(0),
            cost => CheckOptions {
                cost,
                mode: CheckMode::Charge,
                ..CheckOptions::default()
            },
        }
    }

    /// Charges the descriptor as a reservation, which can be cancelled.
    pub(super) async fn reserve<C: Clock>(&self, service: &RateLimitService<C>) -> Verdict {
        let options = CheckOptions {
            cost: self.hits,
            mode: CheckMode::Reserve,
            ..CheckOptions::default()
        };
        service.check_uncounted(self, options).await
    }

    pub(super) async fn peek<C: Clock>(&self, service: &RateLimitService<C>) -> Verdict {
        let options = CheckOptions {
            cost: match self.is_charged() {
                true => self.hits,
                false => Some(0),
            },
            mode: CheckMode::Peek,
            ..CheckOptions::default()
        };
        service.check_uncounted(self, options).await
    }
}

impl<'a> DescriptorDecision<'a> {
    /// A decision that charges.
    pub(super) const fn charged(request: DescriptorRequest<'a>, verdict: Verdict) -> Self {
        Self {
            request,
            verdict,
            queue_full: None,
        }
    }

    /// A peek at what would be decided.
    pub(super) async fn peek<C: Clock>(
        request: DescriptorRequest<'a>,
        service: &RateLimitService<C>,
    ) -> Self {
        let verdict = request.peek(service).await;
        // A peek never waits.
        let queue_full = request
            .is_charged()
            .then(|| service.wait_queue_full(&verdict))
            .flatten();
        Self {
            request,
            verdict,
            queue_full,
        }
    }

    /// Whether it must still be charged.
    pub(super) fn is_charged(&self) -> bool {
        self.request.is_charged() && self.queue_full.is_none()
    }

    /// Whether it is admitted. A peek at an exhausted limit is not, even for `charge: always`: that stops work that is charged
    /// later.
    pub(super) fn is_admitted(&self) -> bool {
        if let Some(WaitQueueFull::Refused(_)) = self.queue_full {
            return false;
        }
        if self.request.descriptor.limit.is_some() || self.request.is_refund() {
            return true;
        }
        self.verdict.is_admitted() && !(self.request.is_peek() && self.exhausted().is_some())
    }

    /// The first enforced limit with nothing remaining.
    fn exhausted(&self) -> Option<&LimitState> {
        let mut states = self.verdict.limits().iter();
        states.find(|state| {
            let is_enforced = state.enforcement == EnforcementMode::Enforced
                && matches!(
                    state.role(),
                    MeterRole::Main | MeterRole::Share | MeterRole::Spillover
                );
            is_enforced && state.status.remaining == 0
        })
    }

    pub(super) fn status(&self) -> RlsStatus<'_> {
        let is_admitted = self.is_admitted();
        let code = if is_admitted {
            RlsCode::Ok
        } else {
            RlsCode::OverLimit
        };
        if self.request.descriptor.limit.is_some() {
            return RlsStatus {
                code,
                ..RlsStatus::default()
            };
        }
        let exhausted = self.exhausted().filter(|_| self.request.is_peek());
        let Some(state) = exhausted.or_else(|| self.verdict.binding()) else {
            return RlsStatus {
                code,
                until_reset: retry_after(self.verdict.outcome()),
                ..RlsStatus::default()
            };
        };
        let until_reset = match (state.retry_after(), state.outcome) {
            (Some(_), outcome) => retry_after(outcome),
            (None, Outcome::Never) => None,
            (None, _) if state.status.remaining == 0 => {
                Some(seconds(self.until_more(state)).max(1))
            }
            (None, _) => Some(seconds(state.status.reset_after)),
        };
        RlsStatus {
            code,
            limit: rls_limit(&self.verdict, state),
            remaining: u32::try_from(state.status.remaining).unwrap_or(u32::MAX),
            until_reset,
        }
    }

    /// Time until the next unit is available, if nothing remains.
    fn until_more(&self, state: &LimitState) -> Nanos {
        match self
            .verdict
            .quota_info(state)
            .time_to_next_unit(&state.status)
        {
            Nanos::ZERO => state.status.reset_after,
            more_after => more_after,
        }
    }

    pub(super) fn wait(&self) -> Nanos {
        match self.verdict.outcome() {
            Outcome::Wait(wait) if self.queue_full.is_none() => wait,
            _ => Nanos::ZERO,
        }
    }
}

impl Attributes for DescriptorRequest<'_> {
    /// The entry `ip`, or `remote_address` of Envoy's own action.
    fn ip(&self) -> Option<IpAddr> {
        let entry = self.entry("ip").or_else(|| self.entry("remote_address"));
        std::str::from_utf8(entry?).ok()?.parse().ok()
    }

    fn get(&self, attribute: &Attribute) -> Option<&[u8]> {
        match attribute {
            Attribute::Descriptor(name) => self.entry(name),
            Attribute::AnyDescriptor(name) => {
                let mut entries = self.all.iter().flat_map(|descriptor| descriptor.entries);
                let found = entries.find(|entry| entry.key == &**name);
                found.map(|entry| entry.value.as_bytes())
            }
            Attribute::Domain => Some(self.domain.as_bytes()),
            Attribute::Method => self.entry("method"),
            Attribute::Host => self.entry("host"),
            Attribute::Route => self.entry("route"),
            Attribute::Path => self.entry("path").filter(|path| path.starts_with(b"/")),
            Attribute::Header(name) => {
                self.prefixed_entry("header.", name, str::eq_ignore_ascii_case)
            }
            Attribute::Query(name) => self.prefixed_entry("query.", name, str::eq),
            Attribute::Cookie(name) => self.prefixed_entry("cookie.", name, str::eq),
            Attribute::Claim(name) => self.prefixed_entry("claim.", name, str::eq),
            _ => None,
        }
    }

    fn visit_names(&self, family: AttributeFamily, visit: &mut dyn FnMut(&str)) -> bool {
        match family {
            AttributeFamily::Descriptor => {
                let entries = self.descriptor.entries.iter();
                entries.for_each(|entry| visit(entry.key));
            }
            AttributeFamily::AnyDescriptor => {
                let entries = self.all.iter().flat_map(|descriptor| descriptor.entries);
                entries.for_each(|entry| visit(entry.key));
            }
            // The other families are written with a prefix, and headers in any case.
            _ => return false,
        }
        true
    }
}

impl DescriptorRequest<'_> {
    fn entry(&self, key: &str) -> Option<&[u8]> {
        let mut entries = self.descriptor.entries.iter();
        let found = entries.find(|entry| entry.key == key);
        found.map(|entry| entry.value.as_bytes())
    }

    fn prefixed_entry(
        &self,
        family: &str,
        name: &str,
        is_same: impl Fn(&str, &str) -> bool,
    ) -> Option<&[u8]> {
        let mut entries = self.descriptor.entries.iter();
        let is_match = |entry: &&DescriptorEntry<'_>| {
            let rest = entry.key.strip_prefix(family);
            rest.is_some_and(|rest| is_same(rest, name))
        };
        entries.find(is_match).map(|entry| entry.value.as_bytes())
    }
}
