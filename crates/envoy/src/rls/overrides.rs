//! Overrides of descriptors if a policy decides: counted as envoyproxy/ratelimit counts them.
//!
//! Must not know: protobuf, Tollgate's policies.

use tollgate_store::Clock;

use super::RlsError;
use super::by_files::rls_status;
use super::rls_response::{RlsLimit, RlsStatus};
use crate::EnvoyService;
use crate::config::{
    BadRequest, Descriptor, DescriptorEntry, EnvoyPolicy, MAX_ENTRIES, RlsRequest,
};
use crate::engine::EnvoyVerdict;

/// The domain in which overrides are counted.
const OVERRIDES: &str = "overrides";

/// A policy with that domain and no rules.
pub(crate) fn override_policy() -> EnvoyPolicy {
    EnvoyPolicy::without_rules(OVERRIDES)
}

impl<C: Clock> EnvoyService<C> {
    /// The status by a descriptor's override, if it has one, counted in a window of its own.
    pub(super) async fn decide_override(
        &self,
        request: &RlsRequest<'_>,
        descriptor: &Descriptor<'_>,
    ) -> Result<Option<RlsStatus<'static>>, RlsError> {
        if descriptor.limit.is_none() {
            return Ok(None);
        }
        let own = descriptor.entries;
        let full = match own.first() {
            Some(first) if own.len() >= MAX_ENTRIES => {
                Some((join_domain_and_key(request.domain, first), first))
            }
            _ => None,
        };
        let (front, own) = match &full {
            // With the most entries there is none left for the domain, so it goes into the key of the first.
            Some((key, first)) => (
                DescriptorEntry::new(key, first.value),
                own.get(1..).unwrap_or_default(),
            ),
            None => (DescriptorEntry::new("domain", request.domain), own),
        };
        let mut entries = [front; MAX_ENTRIES];
        for (slot, entry) in entries.iter_mut().skip(1).zip(own) {
            *slot = *entry;
        }
        let len = own.len().saturating_add(1);
        if len > MAX_ENTRIES {
            let reason = BadRequest::TooManyEntries { count: len };
            return Err(RlsError::BadRequest(reason));
        }
        let descriptors = [Descriptor {
            entries: entries.get(..len).unwrap_or_default(),
            ..*descriptor
        }];
        let request = RlsRequest {
            domain: OVERRIDES,
            descriptors: &descriptors,
            hits_addend: request.hits_addend,
        };
        let verdict = self.decide_descriptors(&request, unnamed_status).await?;
        Ok(Some(verdict))
    }
}

/// The status of the only descriptor. Overrides have no names.
fn unnamed_status(verdict: &EnvoyVerdict<'_>) -> RlsStatus<'static> {
    let status = verdict.reply.statuses().first().copied();
    let status = rls_status(&status.unwrap_or_default());
    RlsStatus {
        limit: status.limit.map(|limit| RlsLimit {
            requests_per_unit: limit.requests_per_unit,
            unit: limit.unit,
            name: "",
        }),
        code: status.code,
        remaining: status.remaining,
        until_reset: status.until_reset,
    }
}

/// Joins a domain and an entry's key without ambiguity. It begins with a digit, so it differs from `domain`.
fn join_domain_and_key(domain: &str, entry: &DescriptorEntry<'_>) -> String {
    format!("{}:{domain}{}", domain.len(), entry.key)
}
