//! Shares of a quota: an owner is served from its share whatever others do, everybody borrows what is idle, and all together never
//! exceed the quota.

use std::sync::Arc;

use tollgate_core::{Nanos, Outcome};
use tollgate_policy::rules::{MeterRole, Rules};
use tollgate_policy::source::SourceFormat;
use tollgate_store::ManualClock;

use crate::testing::{SeededRng, TestCaller, TestEngine, engine_with};
use crate::{EnforcementMode, Verdict};

fn engine(text: &str) -> (TestEngine, Arc<ManualClock>) {
    let policy = tollgate_policy::load(text, "test.yaml", SourceFormat::Yaml).unwrap();
    engine_with(Rules::compile(&policy, [7; 16]).unwrap())
}

/// One unit each second and 20 at once. Team a holds 5 and refills one each 2 s, team b holds 2 and refills one each 5 s. 13 are left.
const TEAMS: &str = "
limits:
  - { name: api, rate: 60/min, burst: 20, shares: { by: header.team, a: 50%, b: 20% } }
";

fn team(name: &str) -> TestCaller {
    TestCaller::named("someone").with("header.team", name)
}

fn deny(seconds: u64) -> Outcome {
    Outcome::Deny {
        retry_after: Nanos::from_secs(seconds),
    }
}

/// The listed bucket, its size and what it has left.
fn listed(verdict: &Verdict) -> (MeterRole, u64, u64) {
    let [state] = verdict.limits() else {
        panic!("one bucket of the limit is listed: {verdict:?}");
    };
    (state.role(), state.status.limit, state.status.remaining)
}

fn admitted(engine: &TestEngine, caller: &TestCaller) -> u64 {
    let mut requests = 0..1_000;
    let denied = requests.find(|_| !engine.decide(caller).is_admitted());
    denied.unwrap_or(1_000)
}

#[test]
fn borrowers_use_what_is_idle_and_an_owner_is_served_at_once_when_it_returns() {
    let (engine, clock) = engine(TEAMS);
    assert_eq!(admitted(&engine, &team("c")), 13, "a team without a share");
    let denied = engine.decide(&team("c"));
    assert_eq!(denied.outcome(), deny(1));
    assert_eq!(listed(&denied), (MeterRole::Main, 13, 0));
    // Nothing is left to borrow, and both owners have what is guaranteed to them. So the whole quota is 20.
    let own = engine.decide(&team("a"));
    assert_eq!(listed(&own), (MeterRole::Share, 5, 4));
    assert_eq!(own.level(&own.limits()[0]), Some("a"));
    assert_eq!(
        (admitted(&engine, &team("a")), admitted(&engine, &team("b"))),
        (4, 2)
    );
    assert_eq!(
        engine.decide(&team("a")).outcome(),
        deny(2),
        "its share has room first"
    );
    // The debt is seven units, and one more is needed.
    assert_eq!(engine.decide(&team("c")).outcome(), deny(8));
    clock.advance(Nanos::from_secs(2));
    assert_eq!(
        listed(&engine.decide(&team("a"))),
        (MeterRole::Share, 5, 0),
        "the promise holds"
    );
    assert_eq!(
        engine.decide(&team("c")).outcome(),
        deny(7),
        "owners come first"
    );
    let totals = engine.totals("api").unwrap();
    assert_eq!(
        (totals.allowed, totals.spilled_over),
        (21, 13),
        "13 borrowed"
    );
}

/// An owner whose share is empty borrows, and is told what it could send at once.
#[test]
fn remaining_is_what_a_caller_could_send_at_once() {
    let (engine, _clock) = engine(TEAMS);
    for left in (0..13).rev() {
        let before = engine.peek_with_cost(&team("a"), 1);
        let now = engine.decide(&team("a"));
        assert_eq!(listed(&before).2, left + 1, "a peek looks at both");
        assert_eq!(listed(&now).2, left, "the promise holds");
    }
    assert_eq!(
        engine.decide(&team("a")).outcome(),
        deny(1),
        "borrowing comes first"
    );
    assert_eq!(engine.totals("api").unwrap().spilled_over, 8);
    assert_eq!(
        listed(&engine.peek_with_cost(&team("b"), 1)),
        (MeterRole::Share, 2, 2)
    );
    assert_eq!(
        engine.peek_with_cost(&team("b"), 3).outcome(),
        deny(3),
        "more than its share holds"
    );
}

#[test]
fn a_cost_is_charged_to_the_share_or_borrowed_as_a_whole() {
    let (engine, _clock) = engine(TEAMS);
    let decide = |cost| engine.decide_with_cost(&team("a"), cost);
    assert_eq!(listed(&decide(4)), (MeterRole::Main, 13, 9));
    assert_eq!(
        listed(&decide(3)),
        (MeterRole::Main, 13, 6),
        "one is left in the share"
    );
    assert_eq!(listed(&decide(7)).0, MeterRole::Main);
    assert_eq!(decide(7).outcome(), deny(1), "six are left to borrow");
    assert_eq!(
        decide(14).outcome(),
        Outcome::Never,
        "more than either holds"
    );
    assert!(decide(1).is_admitted());
}

#[test]
fn keys_have_shares_of_their_own_and_other_limits_are_charged_together_with_them() {
    let (engine, _clock) = engine(
        "
limits:
  - { name: api, key: header.user, rate: 60/min, burst: 20, shares: { by: header.team, a: 50% } }
  - { name: all, rate: 8/1h }
",
    );
    let caller = |user: &str| TestCaller::named(user).with("header.team", "a");
    let (alice, bob) = (caller("alice"), caller("bob"));
    for _ in 0..5 {
        assert!(engine.decide(&alice).is_admitted());
    }
    assert_eq!(admitted(&engine, &bob), 3, "the other limit has no room");
    let denied = engine.decide(&bob);
    assert_eq!(denied.rule_name(), Some("all"));
    // Nothing was charged to the share or the common bucket by the denials.
    let state = denied.limits()[0];
    assert_eq!(state.status.remaining, 15 - 3);
}

/// Both buckets are corrected, also after a restart. Without a ticket nobody knows whether the request was within its share; the common
/// bucket was charged in any case.
#[test]
fn refunds_go_to_the_buckets_that_were_charged() {
    let (engine, _clock) = engine(TEAMS);
    let left = || {
        let share = engine.peek_with_cost(&team("a"), 0);
        let common = engine.peek_with_cost(&team("c"), 0);
        (listed(&share).2, listed(&common).2)
    };
    assert_eq!(admitted(&engine, &team("c")), 13);
    let mut own = engine.reserve(&team("a"), 4);
    assert_eq!(left(), (1, 0));
    let saved = own.take_ticket().unwrap().save().unwrap();
    engine
        .settle(engine.restore_ticket(saved).unwrap(), 1)
        .unwrap();
    assert_eq!(left(), (4, 0));
    assert_eq!(
        engine.decide(&team("c")).outcome(),
        deny(2),
        "a debt of one is left"
    );
    let mut other = engine.reserve(&team("a"), 2);
    engine.cancel(other.take_ticket().unwrap()).unwrap();
    assert_eq!(
        (left(), engine.decide(&team("c")).outcome()),
        ((4, 0), deny(2))
    );
    let _refunded = engine.refund(&team("a"), 1);
    assert_eq!(
        (left(), engine.decide(&team("c")).outcome()),
        ((4, 0), deny(1))
    );
    let mut settled = engine.reserve(&team("b"), 1);
    engine.settle(settled.take_ticket().unwrap(), 9).unwrap();
    assert_eq!(
        engine.decide(&team("c")).outcome(),
        deny(8),
        "at most what shares hold is owed"
    );
}

#[test]
fn a_response_that_is_refunded_gives_back_both_charges() {
    let (engine, _clock) = engine(
        "
limits:
  - { name: api, rate: 60/min, burst: 20, shares: { by: header.team, a: 50% }, refund: [5xx] }
",
    );
    assert_eq!(admitted(&engine, &team("c")), 15);
    let mut tickets: Vec<_> = (0..5)
        .map(|_| engine.decide(&team("a")).take_ticket().unwrap())
        .collect();
    assert!(!engine.decide(&team("a")).is_admitted());
    engine.respond(tickets.pop().unwrap(), &200_u16).unwrap();
    assert!(!engine.decide(&team("a")).is_admitted());
    engine.respond(tickets.pop().unwrap(), &503_u16).unwrap();
    assert!(engine.decide(&team("a")).is_admitted());
    assert_eq!(engine.decide(&team("c")).outcome(), deny(6));
}

#[test]
fn shadow_limits_lend_too_and_deny_nothing() {
    let (engine, _clock) = engine(
        "
limits:
  - { name: api, mode: shadow, rate: 60/min, burst: 20, shares: { by: header.team, a: 50% } }
",
    );
    for _ in 0..30 {
        let verdict = engine.decide(&team("c"));
        assert!(verdict.is_admitted());
        assert_eq!(verdict.limits()[0].enforcement, EnforcementMode::Shadow);
    }
    assert_eq!(listed(&engine.decide(&team("a"))), (MeterRole::Share, 5, 4));
    let totals = engine.totals("api").unwrap();
    assert_eq!(
        (totals.allowed, totals.would_deny, totals.spilled_over),
        (16, 15, 15)
    );
}

/// What an implementation may do wrong. The policy is written so that the real engine does it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mistake {
    /// Nothing is guaranteed.
    NoShares,
    /// Each team has a limit of its own.
    NothingIsLent,
    /// Shares beside the quota, which are not charged to it.
    SharesAreFree,
}

/// A bucket as the time that its free units took to refill: written independently of the engine's arithmetic.
#[derive(Clone, Copy, Debug)]
struct OracleBucket {
    interval: u64,
    capacity: u64,
    free: u64,
}

impl OracleBucket {
    const fn new(interval: u64, burst: u64) -> Self {
        let capacity = interval * burst;
        Self {
            interval,
            capacity,
            free: capacity,
        }
    }

    fn advance(&mut self, nanos: u64) {
        self.free = (self.free + nanos).min(self.capacity);
    }

    fn spend(&mut self) -> bool {
        let is_free = self.free >= self.interval;
        self.free -= if is_free { self.interval } else { 0 };
        is_free
    }
}

const INTERVAL: u64 = 1_000_000_000;

fn policy_text(burst: u64, shares: &[u64], mistake: Option<Mistake>) -> String {
    let own = |(team, percent): (usize, &u64)| {
        let burst = (burst * percent / 200).max(1);
        format!(
            "  - {{ name: t{team}, match: {{ header.team: t{team} }}, rate: {percent}/100s, burst: {burst} }}\n"
        )
    };
    let each: String = shares.iter().enumerate().map(own).collect();
    match mistake {
        Some(Mistake::NoShares) => {
            format!("limits:\n  - {{ name: api, rate: 60/min, burst: {burst} }}\n")
        }
        Some(Mistake::NothingIsLent) => format!("limits:\n{each}"),
        Some(Mistake::SharesAreFree) => {
            let teams: Vec<_> = (0..shares.len()).map(|team| format!("t{team}")).collect();
            let teams = teams.join(", ");
            let rest = format!(
                "  - {{ name: api, match: {{ header.team: {{ not: [{teams}] }} }}, rate: 60/min, burst: {burst} }}\n"
            );
            format!("limits:\n{each}{rest}")
        }
        None => {
            let shares: Vec<_> = shares
                .iter()
                .enumerate()
                .map(|(team, percent)| format!("t{team}: {percent}%"))
                .collect();
            let shares = shares.join(", ");
            format!(
                "limits:\n  - {{ name: api, rate: 60/min, burst: {burst}, shares: {{ by: header.team, {shares} }} }}\n"
            )
        }
    }
}

/// Runs random demand of some teams, the last of which has no share. Returns what is wrong, and how many requests borrowed.
fn run(seed: u64, mistake: Option<Mistake>) -> Result<u64, String> {
    let mut rng = SeededRng::new(seed);
    let burst = 20 + rng.below(180);
    let mut shares: Vec<u64> = (0..=rng.below(3)).map(|_| 1 + rng.below(50)).collect();
    while shares.iter().sum::<u64>() > 100 {
        shares.pop();
    }
    let (engine, clock) = engine(&policy_text(burst, &shares, mistake));
    let mut quota = OracleBucket::new(INTERVAL, burst);
    let entitlement = |percent: &u64| {
        OracleBucket::new(
            (INTERVAL * 100).div_ceil(*percent),
            (burst * percent / 200).max(1),
        )
    };
    let mut entitlements: Vec<_> = shares.iter().map(entitlement).collect();
    let teams = shares.len() + 1;
    let callers: Vec<_> = (0..teams).map(|index| team(&format!("t{index}"))).collect();
    for phase in 0..6 {
        let demand: Vec<u64> = (0..teams).map(|_| rng.below(4)).collect();
        let is_saturated = demand.iter().sum::<u64>() >= 2;
        let rounds = 100 + rng.below(100);
        let mut lost = 0;
        for round in 0..rounds {
            clock.advance(Nanos::from_nanos(INTERVAL));
            // Time in which the quota was full is lost. Before the first request of a phase nobody wanted it.
            if round > 0 {
                lost += (quota.free + INTERVAL).saturating_sub(quota.capacity);
            }
            quota.advance(INTERVAL);
            entitlements
                .iter_mut()
                .for_each(|own| own.advance(INTERVAL));
            for turn in 0..teams {
                let index = (turn + usize::try_from(round).unwrap()) % teams;
                for _ in 0..demand[index] {
                    let verdict = engine.decide(&callers[index]);
                    let is_admitted = verdict.is_admitted();
                    let own = entitlements.get_mut(index);
                    let interval = own.as_ref().map(|own| own.interval);
                    if own.is_some_and(OracleBucket::spend) && !is_admitted {
                        return Err(format!(
                            "seed {seed}, phase {phase}: team {index} waits for others"
                        ));
                    }
                    if let (Outcome::Deny { retry_after }, Some(interval)) =
                        (verdict.outcome(), interval)
                        && retry_after.as_nanos() > interval
                    {
                        return Err(format!("seed {seed}: an owner waits {retry_after:?}"));
                    }
                    if is_admitted && !quota.spend() {
                        return Err(format!("seed {seed}, phase {phase}: more than the quota"));
                    }
                }
            }
        }
        if is_saturated && lost * 100 > rounds * INTERVAL {
            return Err(format!("seed {seed}, phase {phase}: {lost} ns are lost"));
        }
    }
    Ok(engine.totals("api").map_or(0, |totals| totals.spilled_over))
}

/// No owner waits longer than one refill interval of its share, all together never exceed the quota in any window, and less than 1 % of
/// it is unused while there is demand.
#[test]
fn i01_shares_are_guaranteed_and_lent_and_never_exceed_the_quota() {
    let mut borrowed = 0;
    for seed in 0..60 {
        borrowed += run(seed, None).unwrap();
    }
    assert!(borrowed > 1_000, "only {borrowed} requests borrowed");
}

#[test]
fn control_the_property_of_shares_finds_every_mistake() {
    for mistake in [
        Mistake::NoShares,
        Mistake::NothingIsLent,
        Mistake::SharesAreFree,
    ] {
        let mut seeds = 0..60;
        assert!(
            seeds.any(|seed| run(seed, Some(mistake)).is_err()),
            "{mistake:?} is not found"
        );
    }
}

/// Requests at the boundary may use either bucket. At one instant all get at least what the common bucket holds, and at most the quota.
#[test]
fn i01_threads_are_never_admitted_more_than_the_quota() {
    let (engine, _clock) = engine(
        "
limits:
  - { name: api, rate: 100/1h, shares: { by: header.team, a: 50%, b: 30% } }
",
    );
    let admitted: u64 = std::thread::scope(|scope| {
        let threads: Vec<_> = ["a", "b", "c", "a"]
            .into_iter()
            .map(|name| {
                let engine = &engine;
                scope.spawn(move || {
                    let caller = team(name);
                    let requests = 0..100;
                    requests
                        .filter(|_| engine.decide(&caller).is_admitted())
                        .count() as u64
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .sum()
    });
    assert!((60..=100).contains(&admitted), "{admitted}");
}
