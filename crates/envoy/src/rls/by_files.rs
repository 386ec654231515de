//! RLS by files of envoyproxy/ratelimit: every descriptor is charged on its own, and denied requests are charged too.
//!
//! Must not know: Tollgate's policies, protobuf.

use std::cell::RefCell;

use tollgate_core::{Nanos, Outcome};
use tollgate_http::{HeaderFields, RateLimitItem};
use tollgate_service::{RequestOutcome, Transport, with_header_fields};
use tollgate_store::Clock;

use super::RlsError;
use super::rls_response::{RlsLimit, RlsResponse, RlsStatus};
use super::rule_policies::VersionPolicies;
use crate::EnvoyService;
use crate::config::{DescriptorStatus, MAX_DESCRIPTORS, RlsCode, RlsRequest};
use crate::engine::{DecideError, EnvoyVerdict};

impl<C: Clock> EnvoyService<C> {
    pub(super) async fn decide_by_files<T>(
        &self,
        transport: Transport,
        request: &RlsRequest<'_>,
        inspect: impl FnOnce(&RlsResponse<'_>) -> T + Send,
    ) -> Result<T, RlsError> {
        let inspect = |verdict: &EnvoyVerdict<'_>| {
            let answered = match verdict.reply.overall {
                RlsCode::Ok => RequestOutcome::Allowed,
                RlsCode::OverLimit => RequestOutcome::Denied,
            };
            let metrics = self.service().metrics();
            metrics.record_outcome(transport, answered);
            self.answer_by_files(verdict, inspect)
        };
        Ok(self.decide_descriptors(request, inspect).await?)
    }

    /// Charges descriptors as envoyproxy/ratelimit does, on this node or with the fleet.
    pub(super) async fn decide_descriptors<T>(
        &self,
        request: &RlsRequest<'_>,
        inspect: impl FnOnce(&EnvoyVerdict<'_>) -> T + Send,
    ) -> Result<T, DecideError> {
        match self.service().fleet() {
            // In a box, so that the future over memory stays small.
            Some(fleet) => Box::pin(self.engine().decide_shared(fleet, request, inspect)).await,
            None => self.engine().decide(request, inspect),
        }
    }

    fn answer_by_files<T>(
        &self,
        verdict: &EnvoyVerdict<'_>,
        inspect: impl FnOnce(&RlsResponse<'_>) -> T,
    ) -> T {
        let mut statuses = [RlsStatus::default(); MAX_DESCRIPTORS];
        let answered = verdict.reply.statuses();
        for (slot, status) in statuses.iter_mut().zip(answered) {
            *slot = rls_status(status);
        }
        let statuses = statuses.get(..answered.len()).unwrap_or_default();
        let rules = verdict.plan.policy().rules().len();
        let policies = self.rule_policies.for_version(verdict.generation, rules);
        let has_metadata = self.options().dynamic_metadata || verdict.reply.has_metadata();
        let metadata = has_metadata.then(|| verdict.plan.dynamic_metadata(verdict.reply));
        with_header_fields(|fields| {
            match answered.len() {
                0..=2 => self.render_rules::<2>(verdict, &policies, fields),
                3..=8 => self.render_rules::<8>(verdict, &policies, fields),
                _ => self.render_rules::<MAX_DESCRIPTORS>(verdict, &policies, fields),
            }
            inspect(&RlsResponse {
                overall: verdict.reply.overall,
                statuses,
                fields,
                metadata: metadata.as_ref(),
                wait: Nanos::ZERO,
                wait_tickets: &RefCell::default(),
            })
        })
    }

    /// Renders the header fields of every enforced rule, and `Retry-After`. There are at most `N` descriptors.
    fn render_rules<const N: usize>(
        &self,
        verdict: &EnvoyVerdict<'_>,
        policies: &VersionPolicies,
        fields: &mut HeaderFields,
    ) {
        let is_over = verdict.reply.overall == RlsCode::OverLimit;
        let mut items: [Option<RateLimitItem<'_>>; N] = [None; N];
        let mut count = 0;
        let mut longest = Nanos::ZERO;
        for (index, status) in verdict.reply.statuses().iter().enumerate() {
            let denies = is_over && status.code == RlsCode::OverLimit;
            let until_reset = Nanos::from_secs(status.until_reset.unwrap_or(0));
            if denies {
                longest = longest.max(until_reset);
            }
            let rule = verdict.plan.rule(index).filter(|rule| !rule.shadow_mode);
            let (Some(limit), Some(policy)) = (
                status.current_limit,
                rule.and_then(|rule| policies.for_rule(rule)),
            ) else {
                continue;
            };
            let outcome = if denies {
                Outcome::Deny {
                    retry_after: until_reset,
                }
            } else {
                Outcome::Allow
            };
            let item = RateLimitItem::new(
                policy,
                outcome,
                &tollgate_core::QuotaStatus {
                    limit: limit.requests_per_unit.into(),
                    remaining: status.limit_remaining.into(),
                    reset_after: until_reset,
                },
            );
            if let Some(slot) = items.get_mut(count) {
                *slot = Some(item);
                count += 1;
            }
        }
        let outcome = if is_over {
            Outcome::Deny {
                retry_after: longest,
            }
        } else {
            Outcome::Allow
        };
        let mut present = items.into_iter().flatten();
        let Some(first) = present.next() else {
            return self.render(outcome, &[], fields);
        };
        let mut list = [first; N];
        for (slot, item) in list.iter_mut().skip(1).zip(present) {
            *slot = item;
        }
        let list = list.get(..count).unwrap_or_default();
        self.render(outcome, list, fields);
    }
}

/// The status of a descriptor in the response.
pub(super) fn rls_status<'a>(status: &DescriptorStatus<'a>) -> RlsStatus<'a> {
    RlsStatus {
        code: status.code,
        limit: status.current_limit.map(|limit| RlsLimit {
            requests_per_unit: limit.requests_per_unit,
            unit: limit.unit.number(),
            name: limit.name,
        }),
        remaining: status.limit_remaining,
        until_reset: status.until_reset,
    }
}
