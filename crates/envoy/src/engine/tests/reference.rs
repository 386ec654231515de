//! Random requests, decided by the engine and by a minimal reference implementation.

use std::collections::HashMap;

use tollgate_core::limit::State as CoreState;
use tollgate_core::{Nanos, Timestamp};
use tollgate_testkit::seeded_rng::SeededRng;

use super::{FILE, START, engine_of, load};
use crate::config::{
    self, CounterKey, Descriptor, DescriptorEntry, EnvoyPolicy, EnvoyReply, LimitOverride, Modes,
    RlsRequest, WindowUnit,
};

/// The comparable parts of a reply.
fn format_reply(reply: &EnvoyReply<'_>) -> String {
    let one = |status: &config::DescriptorStatus<'_>| {
        let limit = status
            .current_limit
            .map(|limit| (limit.requests_per_unit, limit.unit, limit.name.to_owned()));
        format!(
            "{:?} {limit:?} {} {:?} {}",
            status.code, status.limit_remaining, status.until_reset, status.exceeded
        )
    };
    let each: Vec<String> = reply.statuses().iter().map(one).collect();
    format!(
        "{:?} {} {:?}: {}",
        reply.overall,
        reply.shadowed,
        reply.tightest,
        each.join(" | ")
    )
}

/// A minimal reference implementation: one state for each identity and key.
#[derive(Default)]
struct ReferenceEngine {
    states: HashMap<(String, Vec<u8>), CoreState>,
    /// Whether it skips every seventh charge, as a negative control.
    is_forgetful: bool,
    charges: usize,
}

impl ReferenceEngine {
    fn decide(
        &mut self,
        policy: &EnvoyPolicy,
        request: &RlsRequest<'_>,
        now: Timestamp,
        modes: Modes,
    ) -> String {
        let plan = policy.plan(request).unwrap();
        let mut statuses = Vec::new();
        for charge in plan.charges() {
            let mut key = CounterKey::new();
            plan.key(&charge, [7; 16], &mut key);
            let identity = policy.identity(charge.state).unwrap().to_owned();
            let state = self
                .states
                .entry((identity, key.as_bytes().to_vec()))
                .or_default();
            self.charges += 1;
            if !(self.is_forgetful && self.charges.is_multiple_of(7)) {
                let transition = charge.limit.decide(state, now, charge.op).unwrap();
                transition
                    .next
                    .into_iter()
                    .for_each(|next| state.apply(next));
            }
            statuses.push(charge.limit.status(state, now));
        }
        format_reply(&plan.reply(&statuses, now, modes).unwrap())
    }
}

/// A descriptor: its entries, its override, its hits, and whether they are refunded.
type DescriptorSample = (
    Vec<(&'static str, &'static str)>,
    Option<LimitOverride>,
    Option<u64>,
    bool,
);

/// A random request of one to five descriptors, some of them equal.
fn random(rng: &mut SeededRng) -> Vec<DescriptorSample> {
    let one = |rng: &mut SeededRng| {
        let ips = ["10.0.0.1", "10.0.0.2", "10.0.0.3"];
        let users = ["ada", "bob"];
        let entries = match rng.below(4) {
            0 => vec![("ip", rng.pick(&ips))],
            1 => vec![("user", rng.pick(&users))],
            2 => vec![
                ("user", rng.pick(&users)),
                ("path", rng.pick(&["/a1", "/a2", "shadow", "none"])),
            ],
            _ => vec![("other", "x")],
        };
        let limit = rng.one_in(8).then(|| LimitOverride {
            requests_per_unit: 1 + u32::try_from(rng.below(4)).unwrap(),
            unit: rng.pick(&[WindowUnit::Second, WindowUnit::Minute, WindowUnit::Hour]),
        });
        let hits = rng.one_in(4).then(|| rng.below(4));
        (entries, limit, hits, rng.one_in(12))
    };
    (0..=rng.below(5)).map(|_| one(rng)).collect()
}

/// The first difference between the engine and the reference on random requests over time.
fn difference(seed: u64, mut reference: ReferenceEngine) -> Option<String> {
    let (engine, clock) = engine_of(FILE);
    let policy = load(FILE);
    let mut rng = SeededRng::new(seed);
    let mut now = START;
    for step in 0..3_000 {
        let span = Nanos::from_millis(rng.below(600));
        clock.advance(span);
        now = now.after(span);
        if rng.one_in(200) {
            engine.set_modes(Modes {
                shadow_mode: rng.one_in(2),
                quota_mode: rng.one_in(2),
            });
        }
        let asked = random(&mut rng);
        let entries: Vec<Vec<DescriptorEntry<'_>>> = asked
            .iter()
            .map(|one| {
                one.0
                    .iter()
                    .map(|(key, value)| DescriptorEntry::new(key, value))
                    .collect()
            })
            .collect();
        let descriptors: Vec<Descriptor<'_>> = asked
            .iter()
            .zip(&entries)
            .map(|((_, limit, hits, back), entries)| Descriptor {
                entries,
                limit: *limit,
                hits_addend: *hits,
                is_negative_hits: *back,
            })
            .collect();
        let request = RlsRequest::new("edge", &descriptors);
        let ours = engine
            .decide(&request, |verdict| format_reply(verdict.reply))
            .unwrap();
        let theirs = reference.decide(&policy, &request, now, engine.modes());
        if ours != theirs {
            return Some(format!("step {step}: {asked:?}\n{ours}\n{theirs}"));
        }
    }
    None
}

#[test]
fn decisions_equal_those_of_a_minimal_reference() {
    for seed in 0..4 {
        assert_eq!(
            difference(seed, ReferenceEngine::default()),
            None,
            "seed {seed}"
        );
    }
}

#[test]
fn control_a_reference_that_skips_charges_is_detected() {
    let reference = ReferenceEngine {
        is_forgetful: true,
        ..ReferenceEngine::default()
    };
    assert!(difference(1, reference).is_some());
}
