//! A minimal server for tests, with one state for each identity and key, and a short notation for requests and replies.

use std::collections::{HashMap, HashSet};

use tollgate_core::Timestamp;
use tollgate_core::limit::{Op, State};

use crate::config::{
    ChargePlan, CounterKey, Descriptor, DescriptorEntry, EnvoyPolicy, EnvoyReply, LimitOverride,
    Modes, RlsCode, RlsRequest, WindowUnit,
};

pub(super) struct TestServer {
    pub(super) policy: EnvoyPolicy,
    pub(super) modes: Modes,
    states: HashMap<(String, Vec<u8>), State>,
    /// Replaces the operation of a charge, as a negative control.
    pub(super) sabotage: fn(Op) -> Op,
}

impl TestServer {
    pub(super) fn new(policy: EnvoyPolicy) -> Self {
        Self {
            policy,
            modes: Modes::default(),
            states: HashMap::new(),
            sabotage: |op| op,
        }
    }

    pub(super) fn from_text(text: &str) -> Self {
        Self::new(crate::config::load(&[("test.yaml", text)]).unwrap_or_else(|e| panic!("{e}")))
    }

    /// Decides a request and calls `inspect` with its plan and reply.
    pub(super) fn decide<T>(
        &mut self,
        now: Timestamp,
        request: &RlsRequest<'_>,
        inspect: impl FnOnce(&ChargePlan<'_>, &EnvoyReply<'_>) -> T,
    ) -> T {
        let plan = self.policy.plan(request).unwrap();
        let mut statuses = Vec::new();
        let mut charged = HashSet::new();
        for charge in plan.charges() {
            let mut key = CounterKey::new();
            plan.key(&charge, [7; 16], &mut key);
            let identity = self.policy.identity(charge.state).unwrap().to_owned();
            let counter = (identity, key.as_bytes().to_vec());
            let first = charged.insert((counter.clone(), charge.round));
            assert!(first, "a counter occurs twice in one round");
            let state = self.states.entry(counter).or_default();
            let op = (self.sabotage)(charge.op);
            let transition = charge.limit.decide(state, now, op).unwrap();
            if let Some(next) = transition.next {
                state.apply(next);
            }
            statuses.push(charge.limit.status(state, now));
        }
        let reply = plan.reply(&statuses, now, self.modes).unwrap();
        assert_eq!(reply.statuses().len(), request.descriptors.len());
        inspect(&plan, &reply)
    }

    /// Decides a request in the notation of [`TestRequest::parse`].
    pub(super) fn check(&mut self, seconds: u64, domain: &str, text: &str) -> String {
        let test_request = TestRequest::parse(domain, text);
        test_request.with(|request| {
            self.decide(Timestamp::from_secs(seconds), request, |_, reply| {
                format_reply(reply)
            })
        })
    }

    /// Decides a request in domain `d` and compares the reply.
    pub(super) fn expect(&mut self, seconds: u64, text: &str, expected: &str) {
        let reply = self.check(seconds, "d", text);
        assert_eq!(reply, expected, "at {seconds} s: {text}");
    }
}

/// Formats a reply: `OVER: OK 9/10 minute 60s | OVER 0/5 hour 3600s 'name' | OK free | OK unlimited`.
pub(super) fn format_reply(reply: &EnvoyReply<'_>) -> String {
    let code = |code| match code {
        RlsCode::Ok => "OK",
        RlsCode::OverLimit => "OVER",
    };
    let each = reply.statuses().iter().map(|one| {
        let limit = match one.current_limit {
            None if one.unlimited => {
                assert_eq!((one.limit_remaining, one.until_reset), (u32::MAX, None));
                "unlimited".to_owned()
            }
            None => {
                assert_eq!((one.limit_remaining, one.until_reset), (0, None));
                "free".to_owned()
            }
            Some(limit) => {
                let name = match limit.name {
                    "" => String::new(),
                    name => format!(" '{name}'"),
                };
                format!(
                    "{}/{} {} {}s{name}",
                    one.limit_remaining,
                    limit.requests_per_unit,
                    limit.unit.name(),
                    one.until_reset.unwrap()
                )
            }
        };
        format!("{} {limit}", code(one.code))
    });
    let each: Vec<String> = each.collect();
    format!("{}: {}", code(reply.overall), each.join(" | "))
}

/// A request that owns its texts.
#[derive(Clone, Debug)]
pub(super) struct TestRequest {
    pub(super) domain: String,
    pub(super) hits_addend: u32,
    pub(super) descriptors: Vec<TestDescriptor>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct TestDescriptor {
    pub(super) entries: Vec<(String, String)>,
    pub(super) limit: Option<(u32, WindowUnit)>,
    pub(super) hits: Option<u64>,
    pub(super) negative: bool,
}

impl TestRequest {
    /// Parses descriptors separated by `|`, with entries `key=value` separated by commas. Then tokens: `+3` hits, `-3` refunded
    /// hits, `5/minute` an override.
    pub(super) fn parse(domain: &str, text: &str) -> Self {
        let descriptors = text.split('|').map(|descriptor| {
            let mut tokens = descriptor.split_whitespace();
            let entries = tokens.next().unwrap().split(',');
            let pair = |entry: &str| {
                let (key, value) = entry.split_once('=').unwrap();
                (key.to_owned(), value.to_owned())
            };
            let mut one = TestDescriptor {
                entries: entries.map(pair).collect(),
                ..TestDescriptor::default()
            };
            for token in tokens {
                if let Some((requests, unit)) = token.split_once('/') {
                    let unit = WindowUnit::from_name(unit).unwrap();
                    one.limit = Some((requests.parse().unwrap(), unit));
                } else {
                    one.negative = token.starts_with('-');
                    one.hits = Some(token[1..].parse().unwrap());
                }
            }
            one
        });
        Self {
            domain: domain.to_owned(),
            hits_addend: 0,
            descriptors: descriptors.collect(),
        }
    }

    pub(super) fn with<T>(&self, ask: impl FnOnce(&RlsRequest<'_>) -> T) -> T {
        let entries: Vec<Vec<DescriptorEntry<'_>>> = self
            .descriptors
            .iter()
            .map(|one| {
                one.entries
                    .iter()
                    .map(|(k, v)| DescriptorEntry::new(k, v))
                    .collect()
            })
            .collect();
        let descriptors: Vec<Descriptor<'_>> = self
            .descriptors
            .iter()
            .zip(&entries)
            .map(|(one, entries)| Descriptor {
                entries,
                limit: one.limit.map(|(requests_per_unit, unit)| LimitOverride {
                    requests_per_unit,
                    unit,
                }),
                hits_addend: one.hits,
                is_negative_hits: one.negative,
            })
            .collect();
        ask(&RlsRequest {
            domain: &self.domain,
            descriptors: &descriptors,
            hits_addend: self.hits_addend,
        })
    }
}
