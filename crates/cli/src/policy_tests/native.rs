//! Runs policy tests of Tollgate policies: the real engine over the memory store, with a manual clock.
//!
//! Must not know: test files, expectations.

use std::collections::HashMap;
use std::sync::Arc;

use tollgate_core::{Outcome, Timestamp};
use tollgate_engine::{
    CheckOptions, DenialReason, EnforcementMode, Engine, Response, Ticket, Verdict,
};
use tollgate_policy::model::{Mode, Policy};
use tollgate_policy::rules::{KeyBuffer, KeyOutcome, ListVerdict, MatchedRules, MeterRef, Rules};
use tollgate_store::{ManualClock, MemoryStore};

use super::model::{ExpectedRetry, UpstreamResponse};
use super::request_template::RequestTemplate;
use super::target::{KEYS, Observation, SECRET, TestRequest, TestTarget};

/// The engine of one test, with its own store and clock.
pub(super) struct NativeTarget {
    engine: Engine<MemoryStore<Arc<ManualClock>>>,
    clock: Arc<ManualClock>,
    held: HashMap<String, Vec<Ticket>>,
}

impl NativeTarget {
    pub(super) fn new(policy: &Policy, start: Timestamp) -> Result<Self, String> {
        let rules = Rules::compile(policy, SECRET).map_err(|problems| {
            let messages = problems.iter().map(|problem| &*problem.message);
            messages.collect::<Vec<_>>().join("; ")
        })?;
        let clock = Arc::new(ManualClock::at(start));
        let store =
            MemoryStore::with_clock(KEYS, Arc::clone(&clock)).map_err(|error| error.to_string())?;
        Ok(Self {
            engine: Engine::new(rules, store).map_err(|error| error.to_string())?,
            clock,
            held: HashMap::new(),
        })
    }
}

impl TestTarget for NativeTarget {
    fn set_time(&mut self, now: Timestamp) {
        self.clock.set(now);
    }

    fn send(&mut self, test_request: &TestRequest<'_>) -> Result<Observation, String> {
        let request = test_request.template.instantiate(test_request.number);
        let request = request.map_err(|wrong| wrong.message.into_string())?;
        let options = CheckOptions {
            cost: test_request.cost,
            ..CheckOptions::default()
        };
        let mut verdict = self.engine.check(&request, options);
        if verdict.degraded().overflow {
            return Err(format!("a test may use at most {KEYS} keys"));
        }
        let ticket = verdict.take_ticket();
        let observation = observe(&verdict);
        match (ticket, test_request.hold) {
            (Some(ticket), Some(name)) => {
                self.held.entry(name.to_owned()).or_default().push(ticket);
            }
            (Some(ticket), None) => {
                let result = self.engine.respond(ticket, test_request.reply);
                result.map_err(|error| error.to_string())?;
            }
            (None, _) => {}
        }
        Ok(observation)
    }

    fn finish_held(&mut self, name: &str, reply: &UpstreamResponse) -> Result<(), String> {
        for ticket in self.held.remove(name).unwrap_or_default() {
            let result = self.engine.respond(ticket, reply);
            result.map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    fn matching_limits(&mut self, template: &RequestTemplate, number: u64) -> Vec<String> {
        let Ok(request) = template.instantiate(number) else {
            return Vec::new();
        };
        let generation = self.engine.generation();
        let rules = generation.rules();
        let mut found = MatchedRules::new();
        rules.match_rules(&request, &mut found);
        if found.list_verdict() != ListVerdict::Limits {
            return Vec::new();
        }
        let mut buffer = KeyBuffer::new();
        let indexes = found.rules().iter();
        let applying = indexes.filter_map(|&index| {
            let rule = rules.rules().get(index)?;
            let first = MeterRef {
                rule: index,
                meter: 0,
            };
            let keyed = rules.write_key(first, &request, &found, &mut buffer);
            (rule.mode != Mode::Off && keyed != KeyOutcome::Skip).then(|| rule.name.to_string())
        });
        applying.collect()
    }

    fn divergence(&self, limit: &str) -> Option<(u64, u64)> {
        let divergence = self.engine.divergence(limit)?;
        Some((divergence.would_deny, divergence.would_allow))
    }
}

impl Response for UpstreamResponse {
    fn status(&self) -> u16 {
        self.status
    }

    fn header(&self, name: &str) -> Option<&[u8]> {
        let found = self.headers.iter().find(|(header, _)| **header == *name);
        found.map(|(_, value)| value.as_bytes())
    }
}

/// The fields of a verdict that tests can check.
fn observe(verdict: &Verdict) -> Observation {
    let mut observation = Observation {
        admitted: verdict.is_admitted(),
        reason: verdict.reason().map(DenialReason::as_str),
        status: verdict.status(),
        message: verdict.message().map(str::to_owned),
        ..Observation::default()
    };
    match verdict.outcome() {
        Outcome::Allow => {}
        Outcome::Wait(wait) => observation.wait = Some(wait),
        Outcome::Deny { retry_after } => {
            observation.retry = Some(ExpectedRetry::After(retry_after));
        }
        Outcome::Never => observation.retry = Some(ExpectedRetry::Never),
    }
    let binding = verdict.binding();
    let of_binding = || binding.and_then(|state| verdict.rule(state));
    observation.limit = verdict
        .rule_name()
        .or_else(|| of_binding().map(|rule| &*rule.name))
        .map(str::to_owned);
    observation.level = binding
        .and_then(|state| verdict.level(state))
        .map(str::to_owned);
    for state in verdict.limits() {
        let Some(rule) = verdict.rule(state) else {
            continue;
        };
        observation.record_remaining(&rule.name, state.status.remaining);
        if let Some(level) = verdict.level(state) {
            let name = format!("{}/{level}", rule.name);
            observation.record_remaining(&name, state.status.remaining);
        }
        let would_deny =
            state.enforcement == EnforcementMode::Shadow && !state.outcome.is_admitted();
        if would_deny
            && !observation
                .shadow_denied
                .iter()
                .any(|name| **name == *rule.name)
        {
            observation.shadow_denied.push(rule.name.to_string());
        }
    }
    observation
}
