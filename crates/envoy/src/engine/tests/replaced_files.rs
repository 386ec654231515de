//! Files that are replaced: counters and totals continue, and every reply is from one version.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::{FILE, code, engine_of, load};
use crate::config::{Descriptor, DescriptorEntry, Modes, RlsCode, RlsRequest};
use crate::engine::EnvoyVerdict;

#[test]
fn counters_of_the_same_identity_continue_after_files_are_replaced() {
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
        "four requests were counted before"
    );
    let hours = FILE.replace(
        "unit: minute, requests_per_unit: 5",
        "unit: hour, requests_per_unit: 5",
    );
    engine.replace(load(&hours)).unwrap();
    assert_eq!(
        code(&engine, &user),
        (RlsCode::Ok, 4),
        "another unit has a new count"
    );
    engine.replace(load(FILE)).unwrap();
    assert_eq!(
        code(&engine, &user),
        (RlsCode::OverLimit, 0),
        "the first unit's count is still there"
    );
    assert_eq!(engine.generation(), 4);
}

/// envoyproxy/ratelimit counts by the entries of a request, whichever rule applies. Ours counted by rule, so a value that got a
/// rule of its own began a new count, and a client had its quota twice.
#[test]
fn a_value_that_gets_a_rule_of_its_own_keeps_its_count() {
    let file = |more: &str| {
        format!(
            "domain: edge\ndescriptors:\n  - {{ key: user, rate_limit: {{ unit: minute, requests_per_unit: 5 }} }}\n{more}"
        )
    };
    let own = "  - { key: user, value: ada, rate_limit: { unit: minute, requests_per_unit: 9 } }\n";
    let (engine, _clock) = engine_of(&file(""));
    let (ada, bob) = ([("user", "ada")], [("user", "bob")]);
    for _ in 0..3 {
        code(&engine, &ada);
        code(&engine, &bob);
    }
    engine.replace(load(&file(own))).unwrap();
    assert_eq!(code(&engine, &ada), (RlsCode::Ok, 5), "the fourth of nine");
    assert_eq!(code(&engine, &bob), (RlsCode::Ok, 1), "the fourth of five");
    engine.replace(load(&file(""))).unwrap();
    assert_eq!(code(&engine, &ada), (RlsCode::Ok, 0), "the fifth of five");
    assert_eq!(code(&engine, &ada).0, RlsCode::OverLimit);
    // Totals stay those of the rule.
    let totals = engine.rule_totals();
    let names: Vec<&str> = totals.iter().map(|(name, _)| &**name).collect();
    assert_eq!(names.last(), Some(&"edge.user/minute"));
}

#[test]
fn i09_every_reply_during_swaps_is_explained_by_one_version_of_the_files() {
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
                    let is_whole = |verdict: &EnvoyVerdict<'_>| {
                        let limit = verdict.reply.statuses()[0].current_limit.unwrap();
                        let n = u32::try_from((verdict.generation - 1) % 4 + 1).unwrap();
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
fn rule_totals_continue_after_files_are_replaced() {
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
