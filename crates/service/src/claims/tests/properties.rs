//! No change to a good token is believed, and no bytes make the verifier panic.

use proptest::prelude::*;

use super::signer::Signer;
use super::*;
use crate::TokenCounters;
use crate::claims::verifier::TokenVerifier;

fn verifier(signer: &Signer) -> TokenVerifier {
    let text = format!(
        "jwt: {{ keys: [{}] }}\nlimits: [{{ name: a, rate: 1/s }}]",
        signer.jwk("k")
    );
    let names = ["sub".into()];
    TokenVerifier::new(&load(&text).jwt.unwrap(), &names).unwrap()
}

/// The claim `sub` of a token.
fn sub(verifier: &TokenVerifier, token: &[u8]) -> Option<Vec<u8>> {
    let (now, counters) = (Timestamp::from_secs(START), TokenCounters::default());
    let known = verifier.recall(token, now, &counters);
    let result =
        known.unwrap_or_else(|digest| verifier.verify(token, digest, None, now, &counters));
    result.ok()?.get(0).map(<[u8]>::to_vec)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_token_with_any_byte_changed_has_no_claims(at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let signer = Signer::eddsa(1);
        let verifier = verifier(&signer);
        let mut token = signer.good("k", "ada").into_bytes();
        prop_assert_eq!(sub(&verifier, &token), Some(b"ada".to_vec()), "control");
        let at = at.index(token.len());
        prop_assume!(token[at] != byte);
        token[at] = byte;
        prop_assert_eq!(sub(&verifier, &token), None);
    }

    #[test]
    fn any_signed_claims_are_read_as_they_are(value in "\\PC{0,40}") {
        let signer = Signer::eddsa(1);
        let claims = serde_json::json!({ "sub": value, "exp": START + 1 }).to_string();
        let token = signer.sign("k", &claims);
        prop_assert_eq!(sub(&verifier(&signer), token.as_bytes()), Some(value.into_bytes()));
    }

    #[test]
    fn any_bytes_are_no_token(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        prop_assert_eq!(sub(&verifier(&Signer::eddsa(1)), &bytes), None);
    }
}
