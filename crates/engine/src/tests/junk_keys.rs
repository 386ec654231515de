//! Junk keys under one limit of a policy: other limits do not notice, and refusals for want of memory are `capacity`.

use std::sync::Arc;

use tollgate_core::Nanos;
use tollgate_policy::model::{Algorithm, LimitRule, WhenFull};
use tollgate_policy::rules::Rules;
use tollgate_store::{ManualClock, MemoryStore};

use crate::testing::{START, TestCaller, TestEngine, key, limit, matching, policy, quota};
use crate::{DenialReason, Engine};

/// An engine with room for this many keys.
fn engine_for(keys: usize, limits: Vec<LimitRule>) -> TestEngine {
    let rules = Rules::compile(&policy(limits), [1; 16]).unwrap();
    let clock = Arc::new(ManualClock::at(START));
    Engine::new(rules, MemoryStore::with_clock(keys, clock).unwrap()).unwrap()
}

fn bucket(
    units: u64,
    period: Nanos,
) -> tollgate_policy::model::Located<tollgate_policy::model::QuotaSpec> {
    quota(Algorithm::TokenBucket, &[(units, period)])
}

/// `small`, 1 a day by a header that clients choose, for one host; `perip`, 1000 a minute by address, for another.
fn small_and_per_ip(keys: usize) -> TestEngine {
    let small = LimitRule {
        matching: matching("host", "junk.example"),
        ..limit("small", bucket(1, Nanos::DAY))
    };
    let per_ip = LimitRule {
        matching: matching("host", "api.example"),
        key: key(&["ip"]),
        ..limit("perip", bucket(1_000, Nanos::MINUTE))
    };
    engine_for(keys, vec![small, per_ip])
}

fn junk(n: u32) -> TestCaller {
    TestCaller::named(&n.to_string()).with("host", "junk.example")
}

/// How many of 300 addresses are admitted under `perip`.
fn admitted_of_300(engine: &TestEngine, network: u8) -> usize {
    let addresses = (0..300).map(|n: u32| format!("10.{network}.{}.{}", n / 256, n % 256));
    addresses
        .filter(|ip| {
            let caller = TestCaller::default().from(ip).with("host", "api.example");
            engine.decide(&caller).is_admitted()
        })
        .count()
}

/// The attack, with defaults: 300,000 made-up header values under `small` left 37 of 300 known and 0 of 300 fresh addresses
/// admitted under `perip`, for a day, because one sketch held the debts of all limits. Here a tenth of everything.
#[test]
fn i10_junk_keys_under_one_limit_deny_no_address_under_another() {
    let engine = small_and_per_ip(10_000);
    assert_eq!(admitted_of_300(&engine, 1), 300);
    for n in 0..30_000 {
        // The key has a client-chosen part, so the default is to forget and nobody is refused for want of memory.
        assert!(engine.decide(&junk(n)).is_admitted());
    }
    assert_eq!(admitted_of_300(&engine, 1), 300, "known addresses");
    assert_eq!(admitted_of_300(&engine, 2), 300, "fresh addresses");
}

/// The attack: a victim's name is tried under 5 an hour, and between two tries junk names ask twice. The partly used key was
/// evicted and forgotten: 20 of 20 tries were admitted. With `when_full: refuse` it is kept in the limit's sketch.
#[test]
fn i01_a_limit_that_refuses_admits_a_victim_among_junk_within_its_quota() {
    let admitted = |when_full| {
        let login = LimitRule {
            when_full,
            ..limit("login", bucket(5, Nanos::HOUR))
        };
        let engine = engine_for(2_000, vec![login]);
        let ask = |name: &str| engine.decide(&TestCaller::named(name)).is_admitted();
        let round = |round: u32| {
            for n in 0..6_000 {
                let name = format!("junk-{round}-{n}");
                ask(&name);
                ask(&name);
            }
            ask("victim")
        };
        (0..8).filter(|n| round(*n)).count()
    };
    let refused = admitted(Some(WhenFull::Refuse));
    assert!(refused <= 5, "{refused} of 5");
    assert_eq!(admitted(None), 8, "the control: the default forgets");
}

/// Who is refused for want of memory was not too fast: it is 503 with reason `capacity`, also for a limit whose status is
/// another, and the time to come back is until the debt is paid, not a second.
#[test]
fn a_refusal_for_want_of_memory_is_503_capacity_and_counted() {
    let by_address = LimitRule {
        key: key(&["ip"]),
        status: 420,
        ..limit("perip", bucket(1, Nanos::DAY))
    };
    let engine = engine_for(1, vec![by_address]);
    let mut refusals = 0_u64;
    for n in 0..60_000_u32 {
        let [_, a, b, c] = n.to_be_bytes();
        let caller = TestCaller::default().from(&format!("10.{a}.{b}.{c}"));
        let verdict = engine.decide(&caller);
        if verdict.is_admitted() {
            continue;
        }
        refusals += 1;
        assert_eq!(verdict.reason(), Some(DenialReason::Capacity));
        assert_eq!(verdict.status(), Some(503));
        assert_eq!(
            verdict.outcome(),
            tollgate_core::Outcome::Deny {
                retry_after: Nanos::DAY
            }
        );
    }
    assert!(refusals > 100, "{refusals}");
    let generation = engine.generation();
    let ids: Vec<_> = generation.limit_ids_of(0).collect();
    let usage = engine.store().limit_usage(ids[0]);
    assert_eq!(usage.overflow_refusals, refusals);
}

/// The default follows from who chooses the key, and a reload can change it.
#[test]
fn what_happens_when_memory_is_full_follows_from_the_key() {
    let of = |parts: &[&str], when_full| {
        let one = LimitRule {
            key: key(parts),
            when_full,
            ..limit("x", bucket(1, Nanos::DAY))
        };
        let rules = Rules::compile(&policy(vec![one]), [1; 16]).unwrap();
        rules.rules()[0].when_full
    };
    for parts in [&["ip"][..], &["claim.sub", "route"], &["method"], &[]] {
        assert_eq!(of(parts, None), WhenFull::Refuse, "{parts:?}");
        assert_eq!(of(parts, Some(WhenFull::Forget)), WhenFull::Forget);
    }
    for parts in [
        &["header.user"][..],
        &["ip", "query.q"],
        &["cookie.c"],
        &["host"],
        &["descriptor.d"],
    ] {
        assert_eq!(of(parts, None), WhenFull::Forget, "{parts:?}");
        assert_eq!(of(parts, Some(WhenFull::Refuse)), WhenFull::Refuse);
    }
}
