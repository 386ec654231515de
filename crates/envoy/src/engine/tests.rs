//! Envoy's files on a store, against a server as small as can be: one state of core for each identity and key.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use tollgate_core::limit::State as CoreState;
use tollgate_core::{Nanos, Timestamp};
use tollgate_store::{ManualClock, MemoryStore};
use tollgate_testkit::allocation::calls;

use tollgate_engine::{Engine, LimitIdAllocator};
use tollgate_testkit::dice::Dice;
use tollgate_testkit::requests::{Caller, limit, per_second, rules};

use super::{DecideError, EnvoyEngine};
use crate::config::{
    self, BadRequest, CounterKey, Descriptor, DescriptorEntry, EnvoyPolicy, EnvoyReply,
    LimitOverride, Modes, RlsCode, RlsRequest, WindowUnit,
};

const START: Timestamp = Timestamp::from_secs(1_700_000_000);

const FILE: &str = "
domain: edge
descriptors:
  - key: ip
    rate_limit: { unit: second, requests_per_unit: 3 }
  - key: ip
    value: 10.0.0.1
    rate_limit: { unlimited: true }
  - key: user
    rate_limit: { unit: minute, requests_per_unit: 5, name: per-user }
    descriptors:
      - key: path
        value: /a*
        share_threshold: true
        rate_limit: { unit: minute, requests_per_unit: 2, replaces: [{ name: per-user }] }
      - key: path
        value: shadow
        shadow_mode: true
        rate_limit: { unit: hour, requests_per_unit: 1 }
";

type Store = Arc<MemoryStore<Arc<ManualClock>>>;

fn load(text: &str) -> EnvoyPolicy {
    config::load(&[("edge.yaml", text)]).unwrap_or_else(|refused| panic!("{refused}"))
}

fn engine_of(text: &str) -> (EnvoyEngine<Store>, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::at(START));
    let store = Arc::new(MemoryStore::with_clock(10_000, Arc::clone(&clock)).unwrap());
    let engine =
        EnvoyEngine::new(load(text), [7; 16], store, &LimitIdAllocator::default()).unwrap();
    (engine, clock)
}

/// What can be compared of a reply.
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

/// A store as small as can be.
#[derive(Default)]
struct ReferenceEngine {
    states: HashMap<(String, Vec<u8>), CoreState>,
    /// Whether it forgets every seventh charge, to show that the comparison notices.
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

/// A descriptor: its entries, the limit that it brings, its hits, and whether they are given back.
type DescriptorSample = (
    Vec<(&'static str, &'static str)>,
    Option<LimitOverride>,
    Option<u64>,
    bool,
);

/// A random request of one to five descriptors, some of them alike.
fn random(dice: &mut Dice) -> Vec<DescriptorSample> {
    let one = |dice: &mut Dice| {
        let ips = ["10.0.0.1", "10.0.0.2", "10.0.0.3"];
        let users = ["ada", "bob"];
        let entries = match dice.below(4) {
            0 => vec![("ip", dice.pick(&ips))],
            1 => vec![("user", dice.pick(&users))],
            2 => vec![
                ("user", dice.pick(&users)),
                ("path", dice.pick(&["/a1", "/a2", "shadow", "none"])),
            ],
            _ => vec![("other", "x")],
        };
        let limit = dice.one_in(8).then(|| LimitOverride {
            requests_per_unit: 1 + u32::try_from(dice.below(4)).unwrap(),
            unit: dice.pick(&[WindowUnit::Second, WindowUnit::Minute, WindowUnit::Hour]),
        });
        let hits = dice.one_in(4).then(|| dice.below(4));
        (entries, limit, hits, dice.one_in(12))
    };
    (0..=dice.below(5)).map(|_| one(dice)).collect()
}

/// The first difference between the engine and the naive server on random requests over time.
fn difference(seed: u64, mut naive: ReferenceEngine) -> Option<String> {
    let (engine, clock) = engine_of(FILE);
    let policy = load(FILE);
    let mut dice = Dice::new(seed);
    let mut now = START;
    for step in 0..3_000 {
        let span = Nanos::from_millis(dice.below(600));
        clock.advance(span);
        now = now.after(span);
        if dice.one_in(200) {
            engine.set_modes(Modes {
                shadow_mode: dice.one_in(2),
                quota_mode: dice.one_in(2),
            });
        }
        let asked = random(&mut dice);
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
            .decide(&request, |decided| format_reply(decided.reply))
            .unwrap();
        let theirs = naive.decide(&policy, &request, now, engine.modes());
        if ours != theirs {
            return Some(format!("step {step}: {asked:?}\n{ours}\n{theirs}"));
        }
    }
    None
}

#[test]
fn envoys_files_are_decided_as_by_a_server_as_small_as_can_be() {
    for seed in 0..4 {
        assert_eq!(
            difference(seed, ReferenceEngine::default()),
            None,
            "seed {seed}"
        );
    }
}

#[test]
fn control_a_server_that_forgets_charges_is_noticed() {
    let naive = ReferenceEngine {
        is_forgetful: true,
        ..ReferenceEngine::default()
    };
    assert!(difference(1, naive).is_some());
}

fn code(engine: &EnvoyEngine<Store>, entries: &[(&str, &str)]) -> (RlsCode, u32) {
    let entries: Vec<DescriptorEntry<'_>> = entries
        .iter()
        .map(|(key, value)| DescriptorEntry::new(key, value))
        .collect();
    let descriptors = [Descriptor::new(&entries)];
    let request = RlsRequest::new("edge", &descriptors);
    let see = |decided: &super::EnvoyVerdict<'_>| {
        (
            decided.reply.overall,
            decided.reply.statuses()[0].limit_remaining,
        )
    };
    engine.decide(&request, see).unwrap()
}

#[test]
fn a_flow_over_time_is_as_the_reference_says() {
    let (engine, clock) = engine_of(FILE);
    let user = [("user", "ada")];
    let codes: Vec<(RlsCode, u32)> = (0..6).map(|_| code(&engine, &user)).collect();
    let ok = |left| (RlsCode::Ok, left);
    assert_eq!(
        codes,
        [ok(4), ok(3), ok(2), ok(1), ok(0), (RlsCode::OverLimit, 0)]
    );
    // What is denied is counted too, and the window ends on a multiple of its length.
    clock.set(Timestamp::from_secs(
        START.as_nanos() / 1_000_000_000 / 60 * 60 + 60,
    ));
    assert_eq!(code(&engine, &user), ok(4));
    assert_eq!(
        code(&engine, &[("ip", "10.0.0.1")]),
        (RlsCode::Ok, u32::MAX)
    );
    assert_eq!(code(&engine, &[("nothing", "of it")]), (RlsCode::Ok, 0));
    engine.set_modes(Modes {
        shadow_mode: true,
        quota_mode: false,
    });
    for _ in 0..20 {
        assert_eq!(code(&engine, &user).0, RlsCode::Ok);
    }
}

#[test]
fn files_are_swapped_and_counters_of_the_same_identity_go_on() {
    let (engine, _clock) = engine_of(FILE);
    let user = [("user", "ada")];
    for _ in 0..4 {
        assert_eq!(code(&engine, &user).0, RlsCode::Ok);
    }
    let more = FILE.replace("requests_per_unit: 5", "requests_per_unit: 9");
    assert_eq!(engine.replace(load(&more)).unwrap(), 2);
    assert_eq!(
        code(&engine, &user),
        (RlsCode::Ok, 4),
        "four were counted before"
    );
    let hours = FILE.replace(
        "unit: minute, requests_per_unit: 5",
        "unit: hour, requests_per_unit: 5",
    );
    engine.replace(load(&hours)).unwrap();
    assert_eq!(
        code(&engine, &user),
        (RlsCode::Ok, 4),
        "another unit counts anew"
    );
    engine.replace(load(FILE)).unwrap();
    assert_eq!(
        code(&engine, &user),
        (RlsCode::OverLimit, 0),
        "and back again"
    );
    assert_eq!(engine.generation(), 4);
}

#[test]
fn i09_every_reply_under_swaps_is_explained_by_one_version_of_the_files() {
    let file = |n: u32| {
        format!(
            "domain: edge\ndescriptors:\n  - key: user\n    rate_limit: {{ unit: day, requests_per_unit: {n}000000, name: v{n} }}\n"
        )
    };
    let (engine, _clock) = engine_of(&file(1));
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let entries = [DescriptorEntry::new("user", "ada")];
                let descriptors = [Descriptor::new(&entries)];
                let request = RlsRequest::new("edge", &descriptors);
                while !done.load(Ordering::Relaxed) {
                    let is_whole = |decided: &super::EnvoyVerdict<'_>| {
                        let limit = decided.reply.statuses()[0].current_limit.unwrap();
                        let n = u32::try_from((decided.generation - 1) % 4 + 1).unwrap();
                        limit.requests_per_unit == n * 1_000_000 && limit.name == format!("v{n}")
                    };
                    assert!(engine.decide(&request, is_whole).unwrap());
                }
            });
        }
        for n in (0..100_u32).map(|n| (n + 1) % 4 + 1) {
            engine.replace(load(&file(n))).unwrap();
        }
        done.store(true, Ordering::Relaxed);
    });
}

#[test]
fn bad_requests_are_refused_and_charge_nothing() {
    let (engine, _clock) = engine_of(FILE);
    let refused = engine
        .decide(&RlsRequest::new("edge", &[]), |_| ())
        .unwrap_err();
    assert_eq!(refused, DecideError::BadRequest(BadRequest::NoDescriptors));
    assert_eq!(refused.to_string(), "descriptors: must not be empty");
}

#[test]
fn a_warm_decision_allocates_nothing() {
    let (engine, _clock) = engine_of(FILE);
    let ip = [DescriptorEntry::new("ip", "10.0.0.2")];
    let user = [
        DescriptorEntry::new("user", "ada"),
        DescriptorEntry::new("path", "/a1"),
    ];
    let alike = [
        Descriptor::new(&ip),
        Descriptor::new(&user),
        Descriptor::new(&ip),
        Descriptor::new(&ip),
    ];
    let request = RlsRequest::new("edge", &alike);
    let decide = || {
        engine
            .decide(&request, |decided| decided.reply.overall)
            .unwrap()
    };
    assert_eq!(decide(), RlsCode::Ok);
    let mut denied = 0;
    let calls = calls(|| {
        for _ in 0..100 {
            denied += u64::from(decide() == RlsCode::OverLimit);
        }
    });
    assert_eq!(
        (calls, denied),
        (0, 100),
        "three hits an address are one request"
    );
}

#[test]
fn both_engines_share_a_store_without_taking_each_others_counters() {
    let clock = Arc::new(ManualClock::at(START));
    let store: Store = Arc::new(MemoryStore::with_clock(1_000, Arc::clone(&clock)).unwrap());
    let numbering = LimitIdAllocator::default();
    let native = || rules(vec![limit("api", per_second(4))]);
    let engine = Engine::with_limit_ids(native(), Arc::clone(&store), &numbering).unwrap();
    let envoys = EnvoyEngine::new(load(FILE), [7; 16], store, &numbering).unwrap();
    let alice = Caller::named("alice");
    for _ in 0..4 {
        assert!(engine.decide(&alice).is_admitted());
        assert_eq!(code(&envoys, &[("user", "alice")]).0, RlsCode::Ok);
    }
    engine.replace(native()).unwrap();
    envoys.replace(load(FILE)).unwrap();
    clock.advance(Nanos::from_millis(1));
    assert!(!engine.decide(&alice).is_admitted());
    assert_eq!(code(&envoys, &[("user", "alice")]), (RlsCode::Ok, 0));
}

#[test]
fn what_rules_decide_is_counted_and_goes_on_with_other_files() {
    let (engine, _clock) = engine_of(FILE);
    let ask = |entries: &[DescriptorEntry<'_>], hits: u32| {
        let mut descriptor = Descriptor::new(entries);
        descriptor.hits_addend = Some(hits.into());
        let descriptors = [descriptor];
        let request = RlsRequest::new("edge", &descriptors);
        engine.decide(&request, |_| ()).unwrap();
    };
    let ip = [DescriptorEntry::new("ip", "192.0.2.7")];
    for _ in 0..5 {
        ask(&ip, 1);
    }
    ask(&ip, 0);
    let shadow = [
        DescriptorEntry::new("user", "a"),
        DescriptorEntry::new("path", "shadow"),
    ];
    ask(&shadow, 1);
    ask(&shadow, 1);
    let counted = |name: &str| {
        let all = engine.rule_totals();
        let found = all.iter().find(|(identity, _)| **identity == *name);
        found.map(|(_, counted)| *counted)
    };
    let of_ip = counted("edge.ip/second").unwrap();
    assert_eq!((of_ip.allowed, of_ip.denied, of_ip.near_limit), (3, 2, 1));
    let of_shadow = counted("edge.user.path_shadow/hour").unwrap();
    assert_eq!((of_shadow.allowed, of_shadow.would_deny), (1, 1));
    engine.set_modes(Modes {
        shadow_mode: true,
        ..Modes::default()
    });
    ask(&ip, 1);
    assert_eq!(counted("edge.ip/second").unwrap().would_deny, 1);
    engine
        .replace(load(
            &FILE.replace("requests_per_unit: 3", "requests_per_unit: 4"),
        ))
        .unwrap();
    assert_eq!(counted("edge.ip/second").unwrap().denied, 2);
    engine.replace(load("domain: other\ndescriptors: [{ key: a, rate_limit: { unit: day, requests_per_unit: 1 } }]")).unwrap();
    assert_eq!(counted("edge.ip/second"), None);
    assert!(counted("other.a/day").is_some());
}
