//! Makes keys and signs tokens. Only for tests.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::hmac;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _,
};

use super::START;

pub(super) fn encode(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// The secret of [`Signer::hs256`].
pub(super) const SHARED_SECRET: &[u8; 32] = b"a secret of thirty-two bytes....";

pub(super) enum Signer {
    EdDsa(Ed25519KeyPair),
    Es256(EcdsaKeyPair),
    Hs256(hmac::Key),
}

impl Signer {
    pub(super) fn eddsa(seed: u8) -> Self {
        Self::EdDsa(Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).unwrap())
    }

    pub(super) fn es256() -> Self {
        let random = SystemRandom::new();
        let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
        let pair = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
        Self::Es256(EcdsaKeyPair::from_pkcs8(algorithm, pair.as_ref(), &random).unwrap())
    }

    pub(super) fn hs256(secret: &[u8]) -> Self {
        Self::Hs256(hmac::Key::new(hmac::HMAC_SHA256, secret))
    }

    /// The key as a JWK, in flow style that YAML and JSON both read.
    pub(super) fn jwk(&self, kid: &str) -> String {
        match self {
            Self::EdDsa(pair) => {
                let x = encode(pair.public_key());
                format!(r#"{{"kty": "OKP", "crv": "Ed25519", "kid": "{kid}", "x": "{x}"}}"#)
            }
            Self::Es256(pair) => {
                let point = pair.public_key().as_ref();
                let (x, y) = (encode(&point[1..33]), encode(&point[33..]));
                format!(
                    r#"{{"kty": "EC", "crv": "P-256", "kid": "{kid}", "x": "{x}", "y": "{y}"}}"#
                )
            }
            Self::Hs256(_) => {
                let k = encode(SHARED_SECRET);
                format!(r#"{{"kty": "oct", "alg": "HS256", "kid": "{kid}", "k": "{k}"}}"#)
            }
        }
    }

    pub(super) const fn alg(&self) -> &'static str {
        match self {
            Self::EdDsa(_) => "EdDSA",
            Self::Es256(_) => "ES256",
            Self::Hs256(_) => "HS256",
        }
    }

    /// A token with this header and these claims.
    pub(super) fn sign_parts(&self, header: &str, claims: &str) -> String {
        let message = format!("{}.{}", encode(header), encode(claims));
        let signature = match self {
            Self::EdDsa(pair) => pair.sign(message.as_bytes()).as_ref().to_vec(),
            Self::Es256(pair) => {
                let random = SystemRandom::new();
                pair.sign(&random, message.as_bytes())
                    .unwrap()
                    .as_ref()
                    .to_vec()
            }
            Self::Hs256(key) => hmac::sign(key, message.as_bytes()).as_ref().to_vec(),
        };
        format!("{message}.{}", encode(signature))
    }

    /// A token with these claims.
    pub(super) fn sign(&self, kid: &str, claims: &str) -> String {
        let header = format!(r#"{{"alg":"{}","kid":"{kid}"}}"#, self.alg());
        self.sign_parts(&header, claims)
    }

    /// A good token for a user, valid for ten minutes.
    pub(super) fn good(&self, kid: &str, sub: &str) -> String {
        self.sign(kid, &good_claims(sub))
    }
}

pub(super) fn good_claims(sub: &str) -> String {
    let exp = START + 600;
    format!(r#"{{"sub":"{sub}","exp":{exp},"iss":"https://id.example","aud":["other","api"]}}"#)
}
