//! What the fuzz target `token` and its smoke test run: any bytes as a token and as a file with keys.
//!
//! Must not know: which fuzzer calls it.

use std::sync::OnceLock;

use tollgate_core::Timestamp;
use tollgate_policy::model::JwtSettings;

use super::key_set::KeySet;
use super::rejection::TokenCounters;
use super::verifier::TokenVerifier;

/// No bytes panic, none are believed without the private key, and a remembered result is the same as the first.
///
/// # Panics
/// One of these does not hold.
#[doc(hidden)]
pub fn fuzz_token(bytes: &[u8]) {
    let _parsed = KeySet::parse(bytes);
    let (now, counters) = (Timestamp::from_secs(1), TokenCounters::default());
    let verifier = verifier();
    let Err(digest) = verifier.recall(bytes, now, &counters) else {
        return;
    };
    let first = verifier.verify(bytes, digest, None, now, &counters);
    let again = verifier.recall(bytes, now, &counters);
    assert!(first.is_err(), "a token is believed");
    assert_eq!(again.ok(), Some(first), "it is remembered");
}

/// Verifies with the public key of RFC 8037, whose private key is not here.
fn verifier() -> &'static TokenVerifier {
    static VERIFIER: OnceLock<TokenVerifier> = OnceLock::new();
    VERIFIER.get_or_init(|| {
        let member = |name: &str, value: &str| (name.into(), value.into());
        let key = vec![
            member("kty", "OKP"),
            member("crv", "Ed25519"),
            member("x", "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"),
        ];
        let settings = JwtSettings {
            keys: vec![key.into()],
            ..JwtSettings::default()
        };
        let verifier = TokenVerifier::new(&settings, &["sub".into()]);
        verifier.unwrap_or_else(|problems| invalid(&problems))
    })
}

#[expect(clippy::panic, reason = "only for fuzzing")]
fn invalid(problems: &[tollgate_policy::source::Diagnostic]) -> TokenVerifier {
    panic!("{problems:?}")
}

#[cfg(test)]
mod tests {
    use super::fuzz_token;
    use tollgate_testkit::seeded_rng::SeededRng;

    /// The token of RFC 8037 is signed by the key, but its payload is no JSON.
    const SIGNED_TEXT: &str = "eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc.hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg";

    #[test]
    fn any_bytes_are_no_token_and_no_panic() {
        let mut random = SeededRng::new(7);
        fuzz_token(SIGNED_TEXT.as_bytes());
        for _ in 0..2_000 {
            let mut bytes = SIGNED_TEXT.as_bytes().to_vec();
            for _ in 0..=random.below(8) {
                let at = usize::try_from(random.below(bytes.len() as u64)).unwrap();
                bytes[at] = u8::try_from(random.below(256)).unwrap();
            }
            bytes.truncate(usize::try_from(random.below(bytes.len() as u64 + 1)).unwrap());
            fuzz_token(&bytes);
        }
    }
}
