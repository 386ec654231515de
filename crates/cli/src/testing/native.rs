//! A policy of ours at work: the real engine over the store in memory, on a clock that steps move.
//!
//! Must not know: files of tests, expectations.

use std::collections::HashMap;
use std::sync::Arc;

use tollgate_core::{Outcome, Timestamp};
use tollgate_engine::{
    CheckOptions, DenialReason, EnforcementMode, Engine, Response, Ticket, Verdict,
};
use tollgate_policy::model::{Mode, Policy};
use tollgate_policy::rules::{KeyBuffer, Keyed, Listed, MatchedRules, MeterRef, Rules};
use tollgate_store::{ManualClock, Memory};

use super::model::{Reply, Retry};
use super::requests::Asked;
use super::subject::{KEYS, SECRET, Seen, Sent, Subject};

/// A policy, its memory and its time.
pub(super) struct Native {
    engine: Engine<Memory<Arc<ManualClock>>>,
    clock: Arc<ManualClock>,
    held: HashMap<String, Vec<Ticket>>,
}

impl Native {
    pub(super) fn new(policy: &Policy, start: Timestamp) -> Result<Self, String> {
        let rules = Rules::compile(policy, SECRET).map_err(|problems| {
            let messages = problems.iter().map(|problem| &*problem.message);
            messages.collect::<Vec<_>>().join("; ")
        })?;
        let clock = Arc::new(ManualClock::at(start));
        let store =
            Memory::with_clock(KEYS, Arc::clone(&clock)).map_err(|error| error.to_string())?;
        Ok(Self {
            engine: Engine::new(rules, store).map_err(|error| error.to_string())?,
            clock,
            held: HashMap::new(),
        })
    }
}

impl Subject for Native {
    fn set_time(&mut self, now: Timestamp) {
        self.clock.set(now);
    }

    fn send(&mut self, sent: &Sent<'_>) -> Result<Seen, String> {
        let request = sent.asked.numbered(sent.number);
        let request = request.map_err(|wrong| wrong.message.into_string())?;
        let options = CheckOptions {
            cost: sent.cost,
            ..CheckOptions::default()
        };
        let mut verdict = self.engine.check(&request, options);
        if verdict.degraded().overflow {
            return Err(format!(
                "a test has room for {KEYS} keys, and this one has more"
            ));
        }
        let ticket = verdict.take_ticket();
        let seen = seen(&verdict);
        match (ticket, sent.hold) {
            (Some(ticket), Some(name)) => {
                self.held.entry(name.to_owned()).or_default().push(ticket);
            }
            (Some(ticket), None) => {
                let done = self.engine.respond(ticket, sent.reply);
                done.map_err(|error| error.to_string())?;
            }
            (None, _) => {}
        }
        Ok(seen)
    }

    fn finish(&mut self, name: &str, reply: &Reply) -> Result<(), String> {
        for ticket in self.held.remove(name).unwrap_or_default() {
            let done = self.engine.respond(ticket, reply);
            done.map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    fn matched(&mut self, asked: &Asked, number: u64) -> Vec<String> {
        let Ok(request) = asked.numbered(number) else {
            return Vec::new();
        };
        let generation = self.engine.generation();
        let rules = generation.rules();
        let mut found = MatchedRules::new();
        rules.find(&request, &mut found);
        if found.listed() != Listed::Limits {
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
            let keyed = rules.key(first, &request, &found, &mut buffer);
            (rule.mode != Mode::Off && keyed != Keyed::Skip).then(|| rule.name.to_string())
        });
        applying.collect()
    }

    fn diverged(&self, limit: &str) -> Option<(u64, u64)> {
        let divergence = self.engine.divergence(limit)?;
        Some((divergence.would_deny, divergence.would_allow))
    }
}

impl Response for Reply {
    fn status(&self) -> u16 {
        self.status
    }

    fn header(&self, name: &str) -> Option<&[u8]> {
        let found = self.headers.iter().find(|(header, _)| **header == *name);
        found.map(|(_, value)| value.as_bytes())
    }
}

/// What a verdict says that tests may look at.
fn seen(verdict: &Verdict) -> Seen {
    let mut seen = Seen {
        admitted: verdict.is_admitted(),
        reason: verdict.reason().map(DenialReason::word),
        status: verdict.status(),
        message: verdict.message().map(str::to_owned),
        ..Seen::default()
    };
    match verdict.outcome() {
        Outcome::Allow => {}
        Outcome::Wait(wait) => seen.wait = Some(wait),
        Outcome::Deny { retry_after } => seen.retry = Some(Retry::After(retry_after)),
        Outcome::Never => seen.retry = Some(Retry::Never),
    }
    let binding = verdict.binding();
    let of_binding = || binding.and_then(|state| verdict.rule(state));
    seen.limit = verdict
        .rule_name()
        .or_else(|| of_binding().map(|rule| &*rule.name))
        .map(str::to_owned);
    seen.level = binding
        .and_then(|state| verdict.level(state))
        .map(str::to_owned);
    for state in verdict.limits() {
        let Some(rule) = verdict.rule(state) else {
            continue;
        };
        seen.note_remaining(&rule.name, state.status.remaining);
        if let Some(level) = verdict.level(state) {
            let name = format!("{}/{level}", rule.name);
            seen.note_remaining(&name, state.status.remaining);
        }
        let would_deny =
            state.enforcement == EnforcementMode::Shadow && !state.outcome.is_admitted();
        if would_deny && !seen.shadow_denied.iter().any(|name| **name == *rule.name) {
            seen.shadow_denied.push(rule.name.to_string());
        }
    }
    seen
}
