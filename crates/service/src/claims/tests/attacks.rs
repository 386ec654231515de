//! Tokens that must not be believed, each counted by its reason; and those that must.

use super::rsa_tokens::{MODULUS, PS256, RS256};
use super::signer::{Signer, encode, good_claims};
use super::*;
use tollgate_core::Nanos;

fn settings(keys: &str) -> String {
    format!("{{ keys: [{keys}], issuers: https://id.example, audiences: api, max_bytes: 2048 }}")
}

#[test]
fn a_good_token_of_every_kind_of_key_has_claims() {
    for signer in [Signer::eddsa(1), Signer::es256()] {
        let (service, _) = service(&who(&settings(&signer.jwk("k"))));
        let token = signer.good("k", "ada");
        assert_eq!(sub_of(&service, &caller(&token)).as_deref(), Some("ada"));
        let mut bare = caller("");
        bare.token = token;
        assert_eq!(sub_of(&service, &bare).as_deref(), Some("ada"), "no scheme");
        let counters = service.claims().counters();
        assert_eq!((counters.verified(), counters.cached()), (1, 1));
    }
    for (alg, token) in [("RS256", RS256), ("PS256", PS256)] {
        let key = format!(r#"{{ kty: RSA, alg: {alg}, kid: rsa, e: AQAB, n: "{MODULUS}" }}"#);
        let (service, _) = service(&who(&settings(&key)));
        assert_eq!(
            sub_of(&service, &caller(token)).as_deref(),
            Some("ada"),
            "{alg}"
        );
        let other = if alg == "RS256" { PS256 } else { RS256 };
        assert_eq!(
            sub_of(&service, &caller(other)),
            None,
            "alg belongs to the key"
        );
        assert_eq!(rejections(&service, TokenRejection::Algorithm), 1);
    }
}

/// Claims are absent without a token, whatever the transport says.
#[test]
fn without_a_token_there_are_no_claims() {
    let (service, _) = service(&who(&settings(&Signer::eddsa(1).jwk("k"))));
    for token in ["", " "] {
        assert_eq!(sub_of(&service, &caller(token)), None);
    }
    assert_eq!(service.claims().counters().signature_checks(), 0);
}

/// A token that must not be believed: what is wrong, the token, and the reason that is counted.
type Attack = (&'static str, String, TokenRejection);

/// Attacks on the signature and the header.
fn header_attacks(signer: &Signer) -> Vec<Attack> {
    use TokenRejection as R;
    let claims = good_claims("ada");
    let good = signer.good("k", "ada");
    let (message, signature) = good.rsplit_once('.').unwrap();
    let (header, payload) = message.split_once('.').unwrap();
    // The public key as the secret of an HMAC: RFC 8725, 2.1.
    let Signer::EdDsa(pair) = signer else {
        unreachable!()
    };
    let public = ring::signature::KeyPair::public_key(pair);
    let confused = Signer::hs256(public.as_ref()).good("k", "ada");
    let none = |alg: &str| {
        let header = encode(format!(r#"{{"alg":"{alg}","kid":"k"}}"#));
        format!("{header}.{payload}.")
    };
    let bob = encode(claims.replace("ada", "bob"));
    let with = |header: &str| signer.sign_parts(header, &claims);
    let own_key = format!(r#"{{"alg":"EdDSA","kid":"z","jwk":{}}}"#, signer.jwk("z"));
    let crit = r#"{"alg":"EdDSA","kid":"k","crit":["b64"],"b64":false}"#;
    let twice = r#"{"alg":"none","alg":"EdDSA","kid":"k"}"#;
    vec![
        ("none", none("none"), R::Algorithm),
        ("None", none("None"), R::Algorithm),
        ("key confusion", confused, R::Algorithm),
        ("other key", Signer::eddsa(2).good("k", "ada"), R::Signature),
        (
            "changed",
            format!("{header}.{bob}.{signature}"),
            R::Signature,
        ),
        ("no signature", format!("{message}."), R::Signature),
        (
            "cut",
            format!("{message}.{}", &signature[..84]),
            R::Signature,
        ),
        ("unknown kid", signer.good("other", "ada"), R::UnknownKey),
        ("kid", with(r#"{"alg":"EdDSA","kid":1}"#), R::Malformed),
        ("alg twice", with(twice), R::Malformed),
        ("crit", with(crit), R::Algorithm),
        ("own key", with(&own_key), R::UnknownKey),
    ]
}

/// Attacks on the claims, all signed by the right key.
fn claim_attacks(signer: &Signer) -> Vec<Attack> {
    use TokenRejection as R;
    let claims = good_claims("ada");
    let with = |text: &str, by: &str| signer.sign("k", &claims.replace(text, by));
    let exp = format!(r#""exp":{}"#, START + 600);
    let past = format!(r#""exp":{}"#, START - 30);
    let text = format!(r#""exp":"{}""#, START + 600);
    let ahead = format!(r#"{exp},"nbf":{}"#, START + 31);
    let iss = r#""https://id.example""#;
    let sub = r#""sub":"ada""#;
    vec![
        ("expired", with(&exp, &past), R::Expired),
        ("never expires", with(&format!("{exp},"), ""), R::Expired),
        ("exp is a text", with(&exp, &text), R::Malformed),
        ("exp is huge", with(&exp, r#""exp":1e400"#), R::Malformed),
        ("exp is negative", with(&exp, r#""exp":-1"#), R::Expired),
        ("nbf ahead", with(&exp, &ahead), R::NotYetValid),
        ("issuer", with("id.example", "evil.example"), R::Issuer),
        ("issuers", with(iss, &format!("[{iss}]")), R::Issuer),
        ("audience", with(r#""api""#, r#""apis""#), R::Audience),
        (
            "no audience",
            with(r#","aud":["other","api"]"#, ""),
            R::Audience,
        ),
        (
            "sub twice",
            with(sub, &format!("{sub},{sub}")),
            R::Malformed,
        ),
        ("claims are a list", signer.sign("k", "[]"), R::Malformed),
    ]
}

/// Texts that are no tokens, or other spellings of one.
fn form_attacks(signer: &Signer) -> Vec<Attack> {
    use TokenRejection as R;
    let good = signer.good("k", "ada");
    let (message, _) = good.rsplit_once('.').unwrap();
    vec![
        ("two parts", message.to_owned(), R::Malformed),
        ("five parts", format!("{good}.a.b"), R::Malformed),
        ("padding", format!("{good}="), R::Malformed),
        ("line break", good.replacen('.', ".\n", 1), R::Malformed),
        ("not base64", "a.b.c".to_owned(), R::Malformed),
        ("dots", "..".to_owned(), R::Malformed),
        ("oversize", "a".repeat(2_049), R::Oversize),
        ("basic", "Basic YWRhOnNlY3JldA==".to_owned(), R::Malformed),
    ]
}

#[test]
fn every_attack_leaves_the_claim_absent_and_is_counted_by_its_reason() {
    let signer = Signer::eddsa(1);
    let good = signer.good("k", "ada");
    let mut attacks = header_attacks(&signer);
    attacks.extend(claim_attacks(&signer));
    attacks.extend(form_attacks(&signer));
    for (what, token, reason) in attacks {
        let (service, _) = service(&who(&settings(&signer.jwk("k"))));
        let counters = service.claims().counters();
        // A second time the rejection is remembered, and still counted.
        for times in 1..=2 {
            assert_eq!(sub_of(&service, &caller(&token)), None, "{what}");
            assert_eq!(counters.rejections(reason), times, "{what}: {counters:?}");
        }
        assert!(counters.signature_checks() <= 1, "{what}");
        let control = sub_of(&service, &caller(&good));
        assert_eq!(control.as_deref(), Some("ada"), "{what}: control");
    }
}

#[test]
fn a_token_begins_and_ends_with_its_times_and_the_leeway() {
    let signer = Signer::eddsa(1);
    let (service, clock) = service(&who(&settings(&signer.jwk("k"))));
    let claims = good_claims("ada").replace(r#""sub""#, &format!(r#""nbf":{},"sub""#, START + 100));
    let token = caller(&signer.sign("k", &claims));
    let at = |second: u64| {
        clock.set(Timestamp::from_secs(START + second));
        sub_of(&service, &token).is_some()
    };
    // With a leeway of 30 s: valid from 70 s on and until 630 s; a remembered "not yet" ends in time.
    for (second, expected) in [
        (0, false),
        (69, false),
        (70, true),
        (629, true),
        (630, false),
    ] {
        assert_eq!(at(second), expected, "{second}");
    }
    assert!(!at(10_000));
    let counters = service.claims().counters();
    assert_eq!(counters.verified(), 1);
    assert!(counters.cached() > 0);
}

#[test]
fn claims_select_tiers_keys_and_computed_quotas() {
    let signer = Signer::eddsa(1);
    let text = format!(
        "jwt: {{ keys: [{}] }}\nlimits:\n  - {{ name: tier, key: claim.org.id, rate: 1/h, tiers: {{ by: claim.plan, pro: 3/h }} }}\n  - {{ name: computed, key: claim.sub, rate: \"1/h + 1/h × claim.seats, at most 9/h\" }}\n",
        signer.jwk("k")
    );
    let (service, _) = service(&text);
    let token = |sub: &str, plan: &str, seats: u64| {
        let exp = START + 600;
        signer.sign("k", &format!(r#"{{"sub":"{sub}","exp":{exp},"plan":"{plan}","seats":{seats},"org":{{"id":"{sub}"}}}}"#))
    };
    let admitted = |token: &str| {
        (0..20)
            .filter(|_| check(&service, &caller(token)).is_admitted())
            .count()
    };
    assert_eq!(admitted(&token("ada", "pro", 1)), 2, "computed: 1 + 1");
    assert_eq!(admitted(&token("bob", "pro", 8)), 3, "the tier");
    assert_eq!(admitted(&token("eve", "free", 8)), 1, "the own quota");
}

/// An address that sends wrong signatures stops to cost anything, and others are not concerned.
#[test]
fn wrong_signatures_of_one_address_are_bounded() {
    let signer = Signer::eddsa(1);
    let (service, clock) = service(&who(&settings(&signer.jwk("k"))));
    let other = Signer::eddsa(2);
    for number in 0..500 {
        let forged = other.good("k", &format!("user-{number}"));
        assert_eq!(sub_of(&service, &caller(&forged)), None);
    }
    let counters = service.claims().counters();
    assert_eq!(counters.signature_checks(), 50);
    assert_eq!(rejections(&service, TokenRejection::Throttled), 450);
    let mut elsewhere = caller(&signer.good("k", "ada"));
    elsewhere.ip = [192, 0, 2, 2].into();
    assert_eq!(sub_of(&service, &elsewhere).as_deref(), Some("ada"));
    elsewhere.ip = [192, 0, 2, 1].into();
    assert_eq!(
        sub_of(&service, &elsewhere).as_deref(),
        Some("ada"),
        "a known token is not verified again"
    );
    let fresh = caller(&signer.good("k", "bob"));
    assert_eq!(
        sub_of(&service, &fresh),
        None,
        "the stated price: a new token of that address"
    );
    clock.advance(Nanos::from_secs(1));
    assert_eq!(sub_of(&service, &fresh).as_deref(), Some("bob"));
}
