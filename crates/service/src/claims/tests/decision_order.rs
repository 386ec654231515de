//! When tokens are verified: only if a matching limit reads a claim, and after the limits that need none.

use super::signer::{Signer, good_claims};
use super::*;

fn policy(limits: &str) -> (TestService, Arc<ManualClock>, Signer) {
    let signer = Signer::eddsa(1);
    let (service, clock) = service(&format!("jwt: {{ keys: [{}] }}\n{limits}", signer.jwk("k")));
    (service, clock, signer)
}

fn checks(service: &TestService) -> u64 {
    service.claims().counters().signature_checks()
}

/// A different good token each time.
fn token(signer: &Signer, number: u64) -> String {
    signer.good("k", &format!("user-{number}"))
}

#[test]
fn a_token_is_verified_only_if_a_matching_limit_reads_a_claim() {
    let limits = "limits:\n  - { name: a, match: { path: /api, claim.plan: pro }, rate: 9/s }\n  - { name: b, match: { route: /keyed }, key: claim.sub, rate: 9/s }\n  - { name: c, match: { route: /shadow }, key: claim.sub, rate: 9/s, mode: shadow }\n  - { name: d, match: { route: /plain }, key: ip, rate: 9/s }\n";
    let (service, _, signer) = policy(limits);
    for (path, expected) in [
        ("/plain", 0),
        ("/none", 0),
        ("/api", 1),
        ("/keyed", 2),
        ("/shadow", 3),
    ] {
        let mut caller = caller(&token(&signer, expected));
        caller.path = path;
        assert!(check(&service, &caller).is_admitted());
        assert_eq!(checks(&service), expected, "{path}");
    }
}

/// Wrong or new tokens cost no signature once the address is over its limit.
#[test]
fn the_limit_of_an_address_is_decided_before_a_signature_is_computed() {
    let limits = "limits:\n  - { name: address, key: ip, rate: 5/h }\n  - { name: user, key: claim.sub, rate: 100/h }\n";
    let (service, _, signer) = policy(limits);
    let mut admitted = 0;
    for number in 0..200 {
        let verdict = check(&service, &caller(&token(&signer, number)));
        admitted += u64::from(verdict.is_admitted());
        if !verdict.is_admitted() {
            assert_eq!(verdict.rule_name(), Some("address"));
            assert_eq!(verdict.status(), Some(429));
        }
    }
    assert_eq!((admitted, checks(&service)), (5, 5));
    let totals = service.engine().totals("address").unwrap();
    assert_eq!(
        (totals.allowed, totals.denied),
        (5, 195),
        "each request is counted once"
    );
    let mut other = caller(&token(&signer, 1));
    other.ip = [192, 0, 2, 9].into();
    assert!(check(&service, &other).is_admitted());
    assert_eq!(checks(&service), 5, "the token is known");
}

/// A request that the first pass admits is charged once, and a refused one not at all.
#[test]
fn both_passes_together_charge_like_one() {
    let limits = "limits:\n  - { name: address, key: ip, rate: 10/h }\n  - { name: user, key: claim.sub, rate: 2/h }\n  - { name: open, key: ip, concurrency: 4 }\n";
    let (service, _, signer) = policy(limits);
    for number in 0..4 {
        // The tickets are dropped, so the permits stay held.
        assert!(check(&service, &caller(&token(&signer, number))).is_admitted());
    }
    let verdict = check(&service, &caller(&token(&signer, 9)));
    assert_eq!(
        verdict.rule_name(),
        Some("open"),
        "permits are not acquired twice"
    );
    let left = check(&service, &caller(&token(&signer, 9)));
    let address = left
        .limits()
        .iter()
        .find(|state| left.rule(state).unwrap().name.as_ref() == "address");
    assert_eq!(address.unwrap().status.remaining, 6);
}

#[test]
fn a_denial_before_claims_is_penalised_like_any_other() {
    let limits = "limits:\n  - { name: address, key: ip, rate: 1/min, penalty: block 10m }\n  - { name: user, key: claim.sub, rate: 100/h }\n";
    let (service, clock, signer) = policy(limits);
    assert!(check(&service, &caller(&token(&signer, 1))).is_admitted());
    let denied = check(&service, &caller(&token(&signer, 2)));
    assert_eq!(
        denied.reason().map(tollgate_engine::DenialReason::as_str),
        Some("blocked")
    );
    clock.advance(tollgate_core::Nanos::from_secs(300));
    assert!(!check(&service, &caller(&token(&signer, 3))).is_admitted());
    assert_eq!(checks(&service), 1);
}

/// A claim that exempts a request or selects a narrower limit counts, so limits that it can switch off wait for it.
#[test]
fn limits_that_a_claim_can_switch_off_wait_for_it() {
    let exempt =
        "exempt: [{ claim.role: admin }]\nlimits:\n  - { name: address, key: ip, rate: 1/h }\n";
    let narrowest = "groups: { g: { apply: narrowest } }\nlimits:\n  - { name: address, group: g, key: ip, rate: 1/h }\n  - { name: admins, group: g, match: { claim.role: admin }, key: claim.sub, rate: 100/h }\n";
    for limits in [exempt, narrowest] {
        let (service, _, signer) = policy(limits);
        let admin = |number: u64| {
            let claims = good_claims(&format!("a{number}")).replace('{', r#"{"role":"admin","#);
            signer.sign("k", &claims)
        };
        let of = |token: &str| check(&service, &caller(token)).is_admitted();
        assert!(of(&token(&signer, 1)));
        assert!(!of(&token(&signer, 2)), "the address is over its limit");
        for number in 0..5 {
            assert!(of(&admin(number)), "{limits}");
        }
    }
}

#[test]
fn more_tokens_than_the_cache_holds_fill_only_the_cache() {
    let signer = Signer::hs256(super::signer::SHARED_SECRET);
    let names = ["sub".into()];
    let settings = load("jwt: { keys_file: k.json }\nlimits: [{ name: a, rate: 1/s }]")
        .jwt
        .unwrap();
    let dir = std::env::temp_dir().join(format!("tollgate-claims-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let path = dir.join("cache.json");
    std::fs::write(&path, format!(r#"{{"keys": [{}]}}"#, signer.jwk("k"))).unwrap();
    let settings = tollgate_policy::model::JwtSettings {
        keys_file: Some(Box::<str>::from(path.to_str().unwrap()).into()),
        ..settings
    };
    let verifier = crate::claims::verifier::TokenVerifier::new(&settings, &names).unwrap();
    std::fs::remove_dir_all(&dir).unwrap();
    let (now, counters) = (Timestamp::from_secs(START), crate::TokenCounters::default());
    let verify = |token: &str, is_good: bool| {
        if let Err(digest) = verifier.recall(token.as_bytes(), now, &counters) {
            let verified = verifier.verify(token.as_bytes(), digest, None, now, &counters);
            assert_eq!(verified.is_ok(), is_good);
        }
    };
    for number in 0..12_000 {
        verify(&signer.good("k", &format!("user-{number}")), true);
    }
    let (verified, _) = verifier.cached_tokens();
    assert!((8_500..=10_000).contains(&verified), "{verified}");
    for number in 0..6_000 {
        verify(&format!("{number}.junk.token"), false);
    }
    let (still_verified, rejected) = verifier.cached_tokens();
    assert_eq!(still_verified, verified, "junk displaces no verified token");
    assert!((3_000..=4_000).contains(&rejected), "{rejected}");
}
