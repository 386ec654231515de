//! Runs policy tests of envoyproxy/ratelimit files: the Envoy engine over the memory store, with a manual clock.
//!
//! Must not know: test files, expectations.

use std::sync::Arc;

use tollgate_core::{Nanos, Timestamp};
use tollgate_engine::LimitIdAllocator;
use tollgate_envoy::config::{
    ChargePlan, Descriptor, DescriptorEntry, EnvoyPolicy, EnvoyReply as Answered, RlsCode,
    RlsRequest, RuleQuota,
};
use tollgate_envoy::engine::{DecideError, EnvoyEngine};
use tollgate_store::{ManualClock, MemoryStore};

use super::model::{ExpectedRetry, UpstreamResponse};
use super::request_template::{DescriptorEntries, RequestTemplate};
use super::target::{KEYS, Observation, SECRET, TestRequest, TestTarget};

/// The engine of one test, with its own store and clock.
pub(super) struct EnvoyTarget<'a> {
    /// Finds matching rules without charging them.
    policy: &'a EnvoyPolicy,
    engine: EnvoyEngine<MemoryStore<Arc<ManualClock>>>,
    clock: Arc<ManualClock>,
}

impl<'a> EnvoyTarget<'a> {
    /// Starts an engine. `own` is a second copy of the policy, which the engine takes.
    pub(super) fn new(
        policy: &'a EnvoyPolicy,
        own: EnvoyPolicy,
        start: Timestamp,
    ) -> Result<Self, String> {
        let clock = Arc::new(ManualClock::at(start));
        let store =
            MemoryStore::with_clock(KEYS, Arc::clone(&clock)).map_err(|error| error.to_string())?;
        let engine = EnvoyEngine::new(own, SECRET, store, &LimitIdAllocator::default());
        Ok(Self {
            policy,
            engine: engine.map_err(|error| error.to_string())?,
            clock,
        })
    }

    /// The domain of a request, or the single domain of the policy.
    fn domain(&self, template: &RequestTemplate) -> Result<String, String> {
        let mut domains = self.policy.domains();
        match (template.domain(), domains.next(), domains.next()) {
            (Some(domain), _, _) => Ok(domain.to_owned()),
            (None, Some(only), None) => Ok(only.to_owned()),
            _ => Err("the policy has several domains: set `domain` in the request".to_owned()),
        }
    }
}

impl TestTarget for EnvoyTarget<'_> {
    fn set_time(&mut self, now: Timestamp) {
        self.clock.set(now);
    }

    fn send(&mut self, test_request: &TestRequest<'_>) -> Result<Observation, String> {
        let domain = self.domain(test_request.template)?;
        let all = test_request.template.descriptors(test_request.number);
        let entries = entries(&all);
        let descriptors: Vec<_> = entries.iter().map(|one| Descriptor::new(one)).collect();
        let mut request = RlsRequest::new(&domain, &descriptors);
        request.hits_addend = test_request.template.hits.unwrap_or(0);
        let decided = self
            .engine
            .decide(&request, |decided| observe(decided.plan, decided.reply));
        decided.map_err(|error| match error {
            DecideError::BadRequest(reason) => reason.to_string(),
            other => format!("{other:?}"),
        })
    }

    fn finish_held(&mut self, _name: &str, _reply: &UpstreamResponse) -> Result<(), String> {
        Ok(())
    }

    fn matching_limits(&mut self, template: &RequestTemplate, number: u64) -> Vec<String> {
        let all = template.descriptors(number);
        let entries = entries(&all);
        let descriptors: Vec<_> = entries.iter().map(|one| Descriptor::new(one)).collect();
        let Ok(domain) = self.domain(template) else {
            return Vec::new();
        };
        let Ok(plan) = self.policy.plan(&RlsRequest::new(&domain, &descriptors)) else {
            return Vec::new();
        };
        let applies = |index: &usize| {
            let is_counted = plan.charges().any(|charge| charge.descriptor == *index);
            let rule = plan.rule(*index);
            is_counted || rule.is_some_and(|rule| rule.quota == RuleQuota::Unlimited)
        };
        let applying = (0..descriptors.len()).filter(applies);
        applying
            .filter_map(|index| Some(plan.rule(index)?.name.to_string()))
            .collect()
    }

    fn divergence(&self, _limit: &str) -> Option<(u64, u64)> {
        None
    }
}

fn entries(all: &[DescriptorEntries]) -> Vec<Vec<DescriptorEntry<'_>>> {
    all.iter()
        .map(|one| {
            one.iter()
                .map(|(key, value)| DescriptorEntry::new(key, value))
                .collect()
        })
        .collect()
}

/// The fields of a reply that tests can check.
fn observe(plan: &ChargePlan<'_>, reply: &Answered<'_>) -> Observation {
    let admitted = reply.overall == RlsCode::Ok;
    let mut observation = Observation {
        admitted,
        status: (!admitted).then_some(429),
        reason: (!admitted).then_some("rate"),
        ..Observation::default()
    };
    let tightest = reply.tightest;
    observation.limit = tightest
        .and_then(|index| plan.rule(index))
        .map(|rule| rule.name.to_string());
    let reset = tightest.and_then(|index| reply.statuses().get(index)?.until_reset);
    if !admitted {
        observation.retry = reset.map(|seconds| ExpectedRetry::After(Nanos::from_secs(seconds)));
    }
    for (index, status) in reply.statuses().iter().enumerate() {
        let Some(rule) = plan.rule(index) else {
            continue;
        };
        if status.current_limit.is_some() {
            observation.record_remaining(&rule.name, status.limit_remaining.into());
        }
        if status.exceeded && rule.shadow_mode {
            observation.shadow_denied.push(rule.name.to_string());
        }
    }
    observation
}
