//! Files of envoyproxy/ratelimit at work: their plans, carried out on the store in memory.
//!
//! Must not know: files of tests, expectations.

use std::num::NonZeroU16;
use std::sync::Arc;

use tollgate_core::{Nanos, Status, Timestamp};
use tollgate_policy::envoy::{
    Charge, Code, CounterKey, Descriptor, Entry, EnvoyPolicy, Modes, Plan, Quota,
    Reply as Answered, Request, State,
};
use tollgate_store::{
    Answer, Check, Clock as _, Key, LimitId, ManualClock, Memory, Note, Op, Ruled, Store as _,
};

use super::model::{Reply, Retry};
use super::requests::{Asked, Entries};
use super::subject::{KEYS, SECRET, Seen, Sent, Subject};

/// A policy, its memory and its time.
pub(super) struct Envoy<'a> {
    policy: &'a EnvoyPolicy,
    store: Memory<Arc<ManualClock>>,
    clock: Arc<ManualClock>,
}

impl<'a> Envoy<'a> {
    pub(super) fn new(policy: &'a EnvoyPolicy, start: Timestamp) -> Result<Self, String> {
        let clock = Arc::new(ManualClock::at(start));
        let store =
            Memory::with_clock(KEYS, Arc::clone(&clock)).map_err(|error| error.to_string())?;
        Ok(Self {
            policy,
            store,
            clock,
        })
    }

    /// The domain of a request: what it says, or the only one there is.
    fn domain(&self, asked: &Asked) -> Result<String, String> {
        let mut domains = self.policy.domains();
        match (asked.domain(), domains.next(), domains.next()) {
            (Some(domain), _, _) => Ok(domain.to_owned()),
            (None, Some(only), None) => Ok(only.to_owned()),
            _ => Err("there are several domains: say `domain` in the request".to_owned()),
        }
    }

    /// Carries out one charge.
    fn charge(&self, plan: &Plan<'_>, charge: &Charge) -> Result<Status, String> {
        let mut bytes = CounterKey::new();
        plan.key(charge, SECRET, &mut bytes);
        let key = Key::of(bytes.as_bytes()).map_err(|error| error.to_string())?;
        let ruled = Ruled {
            id: number(charge.state).ok_or("there are more counters than numbers")?,
            limit: charge.limit,
        };
        let op = operation(charge).ok_or("the store does not know this operation")?;
        let check = Check {
            key,
            ruled: &ruled,
            op,
        };
        let mut answers = [Answer::EMPTY];
        let _one_counter_needs_no_verdict = self
            .store
            .decide(&[check], &mut answers)
            .map_err(|error| error.to_string())?;
        let [answer] = answers;
        if answer.note == Note::Overflow {
            return Err(format!(
                "a test has room for {KEYS} keys, and this one has more"
            ));
        }
        Ok(answer.status)
    }
}

impl Subject for Envoy<'_> {
    fn set_time(&mut self, now: Timestamp) {
        self.clock.set(now);
    }

    fn send(&mut self, sent: &Sent<'_>) -> Result<Seen, String> {
        let domain = self.domain(sent.asked)?;
        let all = sent.asked.descriptors(sent.number);
        let entries = entries(&all);
        let descriptors: Vec<_> = entries.iter().map(|one| Descriptor::new(one)).collect();
        let mut request = Request::new(&domain, &descriptors);
        request.hits_addend = sent.asked.hits.unwrap_or(0);
        let plan = self.policy.plan(&request);
        let plan = plan.map_err(|error| error.to_string())?;
        let mut statuses = Vec::new();
        for charge in plan.charges() {
            statuses.push(self.charge(&plan, &charge)?);
        }
        let reply = plan.reply(&statuses, self.clock.now(), Modes::default());
        let reply = reply.ok_or("the plan and its answers do not fit")?;
        Ok(seen(&plan, &reply))
    }

    fn finish(&mut self, _name: &str, _reply: &Reply) -> Result<(), String> {
        Ok(())
    }

    fn matched(&mut self, asked: &Asked, number: u64) -> Vec<String> {
        let all = asked.descriptors(number);
        let entries = entries(&all);
        let descriptors: Vec<_> = entries.iter().map(|one| Descriptor::new(one)).collect();
        let Ok(domain) = self.domain(asked) else {
            return Vec::new();
        };
        let Ok(plan) = self.policy.plan(&Request::new(&domain, &descriptors)) else {
            return Vec::new();
        };
        let applies = |index: &usize| {
            let is_counted = plan.charges().any(|charge| charge.descriptor == *index);
            let rule = plan.rule(*index);
            is_counted || rule.is_some_and(|rule| rule.quota == Quota::Unlimited)
        };
        let applying = (0..descriptors.len()).filter(applies);
        applying
            .filter_map(|index| Some(plan.rule(index)?.name.to_string()))
            .collect()
    }

    fn diverged(&self, _limit: &str) -> Option<(u64, u64)> {
        None
    }
}

fn entries(all: &[Entries]) -> Vec<Vec<Entry<'_>>> {
    all.iter()
        .map(|one| {
            one.iter()
                .map(|(key, value)| Entry::new(key, value))
                .collect()
        })
        .collect()
}

fn number(state: State) -> Option<LimitId> {
    let number = u16::try_from(state.0.checked_add(1)?).ok()?;
    NonZeroU16::new(number).map(LimitId)
}

/// What a store is asked for a charge.
fn operation(charge: &Charge) -> Option<Op> {
    use tollgate_core::limit::Op as Charged;
    match charge.op {
        Charged::ChargeAlways(hits) => Some(Op::ChargeAlways(hits)),
        Charged::Credit(hits) => Some(Op::Credit(hits)),
        _ => None,
    }
}

/// What an answer says that tests may look at.
fn seen(plan: &Plan<'_>, reply: &Answered<'_>) -> Seen {
    let admitted = reply.overall == Code::Ok;
    let mut seen = Seen {
        admitted,
        status: (!admitted).then_some(429),
        reason: (!admitted).then_some("rate"),
        ..Seen::default()
    };
    let tightest = reply.tightest;
    seen.limit = tightest
        .and_then(|index| plan.rule(index))
        .map(|rule| rule.name.to_string());
    let reset = tightest.and_then(|index| reply.statuses().get(index)?.until_reset);
    if !admitted {
        seen.retry = reset.map(|seconds| Retry::After(Nanos::from_secs(seconds)));
    }
    for (index, status) in reply.statuses().iter().enumerate() {
        let Some(rule) = plan.rule(index) else {
            continue;
        };
        if status.current_limit.is_some() {
            seen.note_remaining(&rule.name, status.limit_remaining.into());
        }
        if status.exceeded && rule.shadow_mode {
            seen.shadow_denied.push(rule.name.to_string());
        }
    }
    seen
}
