//! Single decisions: windows, invalid requests, allocations, and a store shared with another engine.

use std::sync::Arc;

use tollgate_core::{Nanos, Timestamp};
use tollgate_engine::{Engine, LimitIdAllocator};
use tollgate_store::{ManualClock, MemoryStore};
use tollgate_testkit::allocation::calls;
use tollgate_testkit::test_requests::{TestCaller, limit, per_second, rules};

use super::{FILE, START, Store, code, engine_of, load};
use crate::config::{BadRequest, Descriptor, DescriptorEntry, Modes, RlsCode, RlsRequest};
use crate::engine::{DecideError, EnvoyEngine};

#[test]
fn decisions_over_time_follow_fixed_windows() {
    let (engine, clock) = engine_of(FILE);
    let user = [("user", "ada")];
    let codes: Vec<(RlsCode, u32)> = (0..6).map(|_| code(&engine, &user)).collect();
    let ok = |left| (RlsCode::Ok, left);
    assert_eq!(
        codes,
        [ok(4), ok(3), ok(2), ok(1), ok(0), (RlsCode::OverLimit, 0)]
    );
    // Denied requests are counted too, and the window ends at a multiple of its length.
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
            .decide(&request, |verdict| verdict.reply.overall)
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
        "one request has three hits for the address"
    );
}

#[test]
fn two_engines_on_one_store_have_separate_counters() {
    let clock = Arc::new(ManualClock::at(START));
    let store: Store = Arc::new(MemoryStore::with_clock(1_000, Arc::clone(&clock)).unwrap());
    let limit_ids = LimitIdAllocator::default();
    let native = || rules(vec![limit("api", per_second(4))]);
    let engine = Engine::with_limit_ids(native(), Arc::clone(&store), &limit_ids).unwrap();
    let envoys = EnvoyEngine::new(load(FILE), [7; 16], store, &limit_ids).unwrap();
    let alice = TestCaller::named("alice");
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
