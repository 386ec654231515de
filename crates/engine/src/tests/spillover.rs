//! Spillover quotas: the limit's own quota first, then the second one, and a denial only if neither has room.

use std::sync::atomic::{AtomicU64, Ordering};

use tollgate_core::{Nanos, Outcome};
use tollgate_policy::rules::{MeterRole, Rules};
use tollgate_policy::source::SourceFormat;
use tollgate_store::ManualClock;

use crate::testing::{SeededRng, TestCaller, TestEngine, engine_with};
use crate::{EnforcementMode, LimitState, Verdict};

fn engine(text: &str) -> (TestEngine, std::sync::Arc<ManualClock>) {
    let policy = tollgate_policy::load(text, "test.yaml", SourceFormat::Yaml).unwrap();
    engine_with(Rules::compile(&policy, [7; 16]).unwrap())
}

/// Two units of a plan, one each ten seconds; three credits, one each minute.
const PLAN: &str = "
limits:
  - { name: plan, key: header.user, rate: 2/20s, spillover: 3/180s }
";

fn deny(seconds: u64) -> Outcome {
    Outcome::Deny {
        retry_after: Nanos::from_secs(seconds),
    }
}

/// The quota that was charged, and what it has left.
fn charged(verdict: &Verdict) -> (MeterRole, u64) {
    let state = &verdict.limits()[0];
    (state.role(), state.status.remaining)
}

#[test]
fn the_own_quota_is_charged_first_and_then_the_spillover_quota() {
    let (engine, clock) = engine(PLAN);
    let alice = TestCaller::named("alice");
    let expected = [
        (MeterRole::Main, 1),
        (MeterRole::Main, 0),
        (MeterRole::Spillover, 2),
        (MeterRole::Spillover, 1),
        (MeterRole::Spillover, 0),
    ];
    for one in expected {
        let verdict = engine.decide(&alice);
        assert!(verdict.is_admitted());
        assert_eq!(charged(&verdict), one);
        assert_eq!(verdict.limits().len(), 1, "the other quota is not listed");
    }
    let denied = engine.decide(&alice);
    assert_eq!(denied.outcome(), deny(10), "the own quota has room sooner");
    assert_eq!(denied.limits()[0].role(), MeterRole::Main);
    let totals = engine.totals("plan").unwrap();
    assert_eq!(
        (totals.allowed, totals.denied, totals.spilled_over),
        (5, 1, 3)
    );
    assert!(engine.decide(&TestCaller::named("bob")).is_admitted());
    clock.advance(Nanos::from_secs(10));
    assert_eq!(charged(&engine.decide(&alice)), (MeterRole::Main, 0));
    // 50 seconds later the own quota is full again, and the spillover quota has one unit.
    clock.advance(Nanos::from_secs(50));
    let roles: Vec<_> = (0..3).map(|_| charged(&engine.decide(&alice)).0).collect();
    let (main, second) = (MeterRole::Main, MeterRole::Spillover);
    assert_eq!(roles, [main, main, second]);
}

/// A request that the own quota has too little for is charged to the second quota as a whole, never to both in parts.
#[test]
fn retry_after_is_the_smaller_one_and_a_cost_is_never_divided() {
    let (engine, clock) = engine(
        "
limits:
  - { name: plan, key: header.user, rate: 2/1h, spillover: { rate: 6/60s, burst: 4 } }
",
    );
    let alice = TestCaller::named("alice");
    let peek = |cost| charged(&engine.peek_with_cost(&alice, cost));
    assert_eq!(peek(3), (MeterRole::Spillover, 4), "a peek looks at both");
    assert_eq!(
        charged(&engine.decide_with_cost(&alice, 3)),
        (MeterRole::Spillover, 1)
    );
    assert_eq!(peek(0), (MeterRole::Main, 2), "the own quota is untouched");
    let denied = engine.decide_with_cost(&alice, 4);
    assert_eq!(denied.outcome(), deny(30), "3 of 4 units, 10 s each");
    assert_eq!(denied.limits()[0].role(), MeterRole::Spillover);
    let never = engine.decide_with_cost(&alice, 5);
    assert_eq!(never.outcome(), Outcome::Never, "more than either holds");
    clock.advance(Nanos::from_secs(30));
    assert_eq!(
        charged(&engine.decide_with_cost(&alice, 4)),
        (MeterRole::Spillover, 0),
        "the promise holds"
    );
}

#[test]
fn a_denial_by_another_limit_charges_neither_quota() {
    let (engine, _clock) = engine(
        "
limits:
  - { name: plan, key: header.user, rate: 1/1h, spillover: 3/1h }
  - { name: speed, key: header.user, rate: 2/1h }
",
    );
    let alice = TestCaller::named("alice");
    assert!(engine.decide(&alice).is_admitted());
    assert!(engine.decide(&alice).is_admitted());
    let denied = engine.decide(&alice);
    assert_eq!(denied.rule_name(), Some("speed"));
    assert_eq!(denied.outcome(), deny(1_800));
    assert_eq!(charged(&denied), (MeterRole::Spillover, 2));
    let totals = |name| engine.totals(name).unwrap();
    assert_eq!(totals("plan").denied, 0, "it had room");
    assert_eq!(totals("plan").spilled_over, 1);
    assert_eq!(totals("speed").denied, 1);
}

/// Each limit chooses by itself, and all are charged together.
#[test]
fn several_limits_spill_over_in_one_request() {
    let (engine, _clock) = engine(
        "
limits:
  - { name: a, key: header.user, rate: 1/1h, spillover: 3/1h }
  - { name: b, key: header.user, rate: 2/1h, spillover: 1/1h }
",
    );
    let alice = TestCaller::named("alice");
    let roles = || {
        let verdict = engine.decide(&alice);
        let roles: Vec<_> = verdict.limits().iter().map(LimitState::role).collect();
        (verdict.is_admitted(), roles)
    };
    let (main, second) = (MeterRole::Main, MeterRole::Spillover);
    assert_eq!(roles(), (true, vec![main, main]));
    assert_eq!(roles(), (true, vec![second, main]));
    assert_eq!(roles(), (true, vec![second, second]));
    assert!(!roles().0, "b has no room");
}

#[test]
fn tickets_correct_the_quota_that_was_charged() {
    let (engine, _clock) = engine(
        "
limits:
  - { name: plan, key: header.user, rate: 10/1h, spillover: 100/1h }
",
    );
    let alice = TestCaller::named("alice");
    let left = || {
        let own = charged(&engine.peek_with_cost(&alice, 0)).1;
        (own, charged(&engine.peek_with_cost(&alice, 11)).1)
    };
    let mut own = engine.reserve(&alice, 8);
    let mut second = engine.reserve(&alice, 40);
    assert_eq!(left(), (2, 60));
    engine.settle(second.take_ticket().unwrap(), 15).unwrap();
    assert_eq!(left(), (2, 85));
    let mut third = engine.reserve(&alice, 20);
    engine.cancel(third.take_ticket().unwrap()).unwrap();
    assert_eq!(left(), (2, 85));
    engine.cancel(own.take_ticket().unwrap()).unwrap();
    assert_eq!(left(), (10, 85));
    // After a restart the ticket still knows the quota.
    let mut fourth = engine.reserve(&alice, 30);
    assert_eq!(left(), (10, 55));
    let saved = fourth.take_ticket().unwrap().save().unwrap();
    engine
        .cancel(engine.restore_ticket(saved).unwrap())
        .unwrap();
    assert_eq!(left(), (10, 85));
    // A refund without a ticket cannot know which quota was charged: it goes to the own one, up to its burst.
    assert!(engine.decide_with_cost(&alice, 10).is_admitted());
    let _refunded = engine.refund(&alice, 4);
    assert_eq!(left(), (4, 85));
}

#[test]
fn shadow_limits_and_penalties_know_the_second_quota() {
    let (engine, _clock) = engine(
        "
limits:
  - { name: trial, key: header.user, rate: 1/1h, spillover: 2/1h, mode: shadow }
  - { name: abuse, key: header.user, rate: 2/1h, spillover: 3/1h, penalty: block 2h }
",
    );
    let alice = TestCaller::named("alice");
    for _ in 0..5 {
        assert!(
            engine.decide(&alice).is_admitted(),
            "no block before both are empty"
        );
    }
    let denied = engine.decide(&alice);
    assert_eq!(denied.outcome(), deny(7_200));
    let is_shadow = |verdict: &Verdict| {
        let mut states = verdict.limits().iter();
        states.any(|state| state.enforcement == EnforcementMode::Shadow)
    };
    assert!(!is_shadow(&denied));
    let trial = engine.totals("trial").unwrap();
    assert_eq!(
        (trial.allowed, trial.would_deny, trial.spilled_over),
        (3, 2, 2)
    );
}

/// The own quota has room only if all of its rates do, and the denial says when it has. A tier changes only the own quota.
#[test]
fn the_second_quota_replaces_all_rates_and_is_the_same_for_every_tier() {
    let (engine, _clock) = engine(
        "
limits:
  - name: plan
    key: header.user
    rate: [2/10s, 3/1h]
    spillover: 1/1h
    tiers: { by: header.plan, big: 4/20s, partner: unlimited }
",
    );
    let caller = |user: &str, plan: &str| TestCaller::named(user).with("header.plan", plan);
    let admitted = |caller: &TestCaller| {
        let mut requests = 0..100;
        let denied = requests.find(|_| !engine.decide(caller).is_admitted());
        denied.unwrap_or(100)
    };
    let alice = TestCaller::named("alice");
    assert_eq!(admitted(&alice), 3);
    let denied = engine.decide(&alice);
    assert_eq!(denied.outcome(), deny(5), "the own rates have room first");
    assert!(denied.limits().len() > 1, "both own rates are listed again");
    assert_eq!(admitted(&caller("bob", "big")), 5);
    assert_eq!(admitted(&caller("carol", "partner")), 100);
}

/// Requests at the boundary may use either quota, and together never more than both hold.
#[test]
fn i01_threads_are_admitted_exactly_the_sum_of_both_quotas() {
    let (engine, _clock) = engine(
        "
limits:
  - { name: plan, key: header.user, rate: 100/1h, spillover: 150/1h }
",
    );
    let admitted = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let alice = TestCaller::named("alice");
                for _ in 0..100 {
                    if engine.decide(&alice).is_admitted() {
                        admitted.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    assert_eq!(admitted.into_inner(), 250);
    assert_eq!(engine.totals("plan").unwrap().spilled_over, 150);
}

/// A mistake that the property must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OracleMistake {
    SecondFirst,
    ChargesBoth,
    LongerWait,
    ChargesDespiteDenial,
    DividesCost,
}

/// A bucket as the time that its free units took to refill: written independently of the engine's arithmetic.
#[derive(Clone, Copy, Debug)]
struct OracleBucket {
    nanos_per_unit: u64,
    capacity: u64,
    free_nanos: u64,
}

impl OracleBucket {
    fn new(units: u64, nanos_per_unit: u64) -> Self {
        Self {
            nanos_per_unit,
            capacity: units,
            free_nanos: units * nanos_per_unit,
        }
    }

    fn advance(&mut self, nanos: u64) {
        let full = self.capacity * self.nanos_per_unit;
        self.free_nanos = (self.free_nanos + nanos).min(full);
    }

    /// How long a request has to wait: `Some(0)` not at all, `None` for ever.
    fn wait(&self, cost: u64) -> Option<u64> {
        let needed = cost * self.nanos_per_unit;
        (cost <= self.capacity).then(|| needed.saturating_sub(self.free_nanos))
    }

    fn charge(&mut self, cost: u64) {
        self.free_nanos -= (cost * self.nanos_per_unit).min(self.free_nanos);
    }
}

/// The expected role of each limit that is charged, or how long the request has to wait.
type Expected = Result<Vec<MeterRole>, Option<u64>>;

/// Decides a request by limits of two buckets each.
fn expect(limits: &mut [[OracleBucket; 2]], cost: u64, mistake: Option<OracleMistake>) -> Expected {
    let (mut roles, mut denials) = (Vec::new(), Vec::new());
    for [own, second] in limits.iter_mut() {
        let (first_wait, second_wait) = (own.wait(cost), second.wait(cost));
        let divided = (own.free_nanos / own.nanos_per_unit)
            + (second.free_nanos / second.nanos_per_unit)
            >= cost;
        if mistake == Some(OracleMistake::SecondFirst) && second_wait == Some(0) {
            roles.push(MeterRole::Spillover);
        } else if first_wait == Some(0) {
            roles.push(MeterRole::Main);
        } else if second_wait == Some(0) || (mistake == Some(OracleMistake::DividesCost) && divided)
        {
            roles.push(MeterRole::Spillover);
        } else {
            let waits = [first_wait, second_wait].into_iter().flatten();
            denials.push(if mistake == Some(OracleMistake::LongerWait) {
                waits.max()
            } else {
                waits.min()
            });
            roles.push(MeterRole::Main);
        }
    }
    let is_denied = !denials.is_empty();
    for ([own, second], role) in limits.iter_mut().zip(&roles) {
        let is_second = *role == MeterRole::Spillover;
        let both = mistake == Some(OracleMistake::ChargesBoth) && is_second;
        let despite = mistake == Some(OracleMistake::ChargesDespiteDenial) && is_second;
        if is_denied && !despite {
            continue;
        }
        if !is_second || both {
            own.charge(cost);
        }
        if is_second {
            second.charge(cost);
        }
    }
    if !is_denied {
        return Ok(roles);
    }
    // The longest wait of the limits that deny; for ever is longest.
    Err(match denials.iter().all(Option::is_some) {
        true => denials.into_iter().flatten().max(),
        false => None,
    })
}

/// Runs random requests. Returns the first difference, and how many requests were charged to a second quota.
fn differ(seed: u64, mistake: Option<OracleMistake>) -> (Option<String>, u64) {
    let mut rng = SeededRng::new(seed);
    let (mut text, mut fresh) = ("limits:\n".to_owned(), Vec::new());
    for index in 0..=rng.below(2) {
        let mut bucket = || {
            let (units, seconds) = (1 + rng.below(6), 1 + rng.below(9));
            let rate = format!("{units}/{}s", units * seconds);
            (rate, OracleBucket::new(units, seconds * 1_000_000_000))
        };
        let ((own, first), (other, second)) = (bucket(), bucket());
        text.push_str(&format!(
            "  - {{ name: limit-{index}, key: header.user, rate: {own}, spillover: {other} }}\n"
        ));
        fresh.push([first, second]);
    }
    let (engine, clock) = engine(&text);
    let users = ["alice", "bob"];
    let mut states = [fresh.clone(), fresh];
    let mut spilled = 0;
    for step in 0..200 {
        let nanos = rng.pick(&[0, 0, 1, 250_000_000, 1_000_000_000, 7_000_000_000]);
        clock.advance(Nanos::from_nanos(nanos));
        let buckets = states.iter_mut().flatten().flatten();
        buckets.for_each(|bucket| bucket.advance(nanos));
        let user = usize::try_from(rng.below(2)).unwrap();
        let cost = 1 + rng.below(4);
        let expected = expect(&mut states[user], cost, mistake);
        let verdict = engine.decide_with_cost(&TestCaller::named(users[user]), cost);
        let actual: Expected = match verdict.outcome() {
            Outcome::Deny { retry_after } => Err(Some(retry_after.as_nanos())),
            Outcome::Never => Err(None),
            _ => Ok(verdict.limits().iter().map(LimitState::role).collect()),
        };
        if expected != actual {
            let difference =
                format!("seed {seed}, step {step}: expected {expected:?}, got {actual:?}\n{text}");
            return (Some(difference), spilled);
        }
        let is_second = |role: &&MeterRole| **role == MeterRole::Spillover;
        spilled += actual.iter().flatten().filter(is_second).count() as u64;
    }
    (None, spilled)
}

#[test]
fn i01_spillover_agrees_with_an_independent_oracle() {
    let mut spilled = 0;
    for seed in 0..300 {
        let (difference, of_seed) = differ(seed, None);
        assert_eq!(difference, None);
        spilled += of_seed;
    }
    assert!(spilled > 1_000, "only {spilled} charges of second quotas");
}

/// The property is worth nothing unless it finds mistakes.
#[test]
fn control_the_property_finds_every_mistake() {
    for mistake in [
        OracleMistake::SecondFirst,
        OracleMistake::ChargesBoth,
        OracleMistake::LongerWait,
        OracleMistake::ChargesDespiteDenial,
        OracleMistake::DividesCost,
    ] {
        let mut seeds = 0..300;
        let found = seeds.any(|seed| differ(seed, Some(mistake)).0.is_some());
        assert!(found, "{mistake:?} is not found");
    }
}
