//! One verification key out of a JSON Web Key (RFC 7517), with its one algorithm.
//!
//! The algorithm belongs to the key, never to the token: a public key cannot pass for a shared secret. All cryptography is
//! ring's. Must not know: tokens, files.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ED25519, EcdsaVerificationAlgorithm,
    RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_2048_8192_SHA384, RSA_PKCS1_2048_8192_SHA512,
    RSA_PSS_2048_8192_SHA256, RSA_PSS_2048_8192_SHA384, RSA_PSS_2048_8192_SHA512, RsaParameters,
    RsaPublicKeyComponents, UnparsedPublicKey,
};
use ring::{hmac, signature};

use super::strict_json::{JsonMap, text_of};

/// A key and the algorithm that it verifies.
pub(super) struct VerificationKey {
    pub(super) kid: Option<Box<str>>,
    /// The `alg` of tokens that it verifies.
    pub(super) alg: &'static str,
    material: KeyMaterial,
}

enum KeyMaterial {
    Rsa(&'static RsaParameters, RsaPublicKeyComponents<Vec<u8>>),
    Elliptic(UnparsedPublicKey<Vec<u8>>),
    Secret(hmac::Key),
}

/// Why a key is not used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum UnusableKey {
    /// It is for something else: encryption, or an algorithm that is not supported.
    OtherPurpose,
    /// It is broken.
    Invalid(&'static str),
}

use UnusableKey::{Invalid, OtherPurpose};

impl VerificationKey {
    /// Reads the members of a JSON Web Key.
    pub(super) fn from_members(members: &JsonMap) -> Result<Self, UnusableKey> {
        if text_of(members, "use").is_some_and(|purpose| purpose != "sig") {
            return Err(OtherPurpose);
        }
        let kty = text_of(members, "kty").ok_or(Invalid("it has no `kty`"))?;
        let alg = text_of(members, "alg");
        let (alg, material) = match kty {
            "RSA" => rsa(members, alg.unwrap_or("RS256"))?,
            "EC" => elliptic(members, alg)?,
            "OKP" => edwards(members, alg)?,
            "oct" => secret(members, alg)?,
            _ => return Err(OtherPurpose),
        };
        let kid = match members.get("kid") {
            None => None,
            Some(kid) => Some(kid.as_text().ok_or(Invalid("`kid` is no text"))?.into()),
        };
        Ok(Self { kid, alg, material })
    }

    /// Whether the signature is this key's signature of the message.
    pub(super) fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        match &self.material {
            KeyMaterial::Rsa(parameters, key) => key.verify(parameters, message, signature).is_ok(),
            KeyMaterial::Elliptic(key) => key.verify(message, signature).is_ok(),
            KeyMaterial::Secret(key) => hmac::verify(key, message, signature).is_ok(),
        }
    }
}

fn rsa(members: &JsonMap, alg: &str) -> Result<(&'static str, KeyMaterial), UnusableKey> {
    let (alg, parameters): (_, &'static RsaParameters) = match alg {
        "RS256" => ("RS256", &RSA_PKCS1_2048_8192_SHA256),
        "RS384" => ("RS384", &RSA_PKCS1_2048_8192_SHA384),
        "RS512" => ("RS512", &RSA_PKCS1_2048_8192_SHA512),
        "PS256" => ("PS256", &RSA_PSS_2048_8192_SHA256),
        "PS384" => ("PS384", &RSA_PSS_2048_8192_SHA384),
        "PS512" => ("PS512", &RSA_PSS_2048_8192_SHA512),
        _ => return Err(OtherPurpose),
    };
    let n = bytes(members, "n")?;
    if !(256..=1_024).contains(&n.len()) {
        return Err(Invalid("an RSA key must have 2048 to 8192 bits"));
    }
    let e = bytes(members, "e")?;
    Ok((
        alg,
        KeyMaterial::Rsa(parameters, RsaPublicKeyComponents { n, e }),
    ))
}

fn elliptic(
    members: &JsonMap,
    alg: Option<&str>,
) -> Result<(&'static str, KeyMaterial), UnusableKey> {
    let crv = text_of(members, "crv").ok_or(Invalid("it has no `crv`"))?;
    let (expected, length, algorithm): (_, _, &'static EcdsaVerificationAlgorithm) = match crv {
        "P-256" => ("ES256", 32, &ECDSA_P256_SHA256_FIXED),
        "P-384" => ("ES384", 48, &ECDSA_P384_SHA384_FIXED),
        _ => return Err(OtherPurpose),
    };
    let (x, y) = (bytes(members, "x")?, bytes(members, "y")?);
    if x.len() != length || y.len() != length {
        return Err(Invalid("`x` or `y` has the wrong length"));
    }
    let point = [&[4][..], &x, &y].concat();
    let key = KeyMaterial::Elliptic(UnparsedPublicKey::new(algorithm, point));
    Ok((only_algorithm(alg, expected)?, key))
}

fn edwards(
    members: &JsonMap,
    alg: Option<&str>,
) -> Result<(&'static str, KeyMaterial), UnusableKey> {
    if text_of(members, "crv") != Some("Ed25519") {
        return Err(OtherPurpose);
    }
    let x = bytes(members, "x")?;
    if x.len() != 32 {
        return Err(Invalid("`x` has the wrong length"));
    }
    let algorithm: &'static signature::EdDSAParameters = &ED25519;
    let key = KeyMaterial::Elliptic(UnparsedPublicKey::new(algorithm, x));
    Ok((only_algorithm(alg, "EdDSA")?, key))
}

fn secret(
    members: &JsonMap,
    alg: Option<&str>,
) -> Result<(&'static str, KeyMaterial), UnusableKey> {
    let (alg, algorithm) = match alg {
        Some("HS256") => ("HS256", hmac::HMAC_SHA256),
        Some("HS384") => ("HS384", hmac::HMAC_SHA384),
        Some("HS512") => ("HS512", hmac::HMAC_SHA512),
        Some(_) => return Err(OtherPurpose),
        None => return Err(Invalid("a secret key needs `alg`")),
    };
    let k = bytes(members, "k")?;
    if k.len() < algorithm.digest_algorithm().output_len() {
        return Err(Invalid("the secret is shorter than its digest (RFC 7518)"));
    }
    Ok((alg, KeyMaterial::Secret(hmac::Key::new(algorithm, &k))))
}

/// The algorithm of a curve, which `alg` may repeat but not change.
fn only_algorithm(alg: Option<&str>, expected: &'static str) -> Result<&'static str, UnusableKey> {
    match alg {
        None => Ok(expected),
        Some(alg) if alg == expected => Ok(expected),
        Some(_) => Err(Invalid("`alg` does not fit `crv`")),
    }
}

fn bytes(members: &JsonMap, name: &'static str) -> Result<Vec<u8>, UnusableKey> {
    let text = text_of(members, name).ok_or(Invalid("a member of the key is missing"))?;
    let decoded = URL_SAFE_NO_PAD.decode(text);
    decoded.map_err(|_invalid| Invalid("a member of the key is not base64url"))
}

impl fmt::Debug for VerificationKey {
    /// Without the key itself.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VerificationKey")
            .field("kid", &self.kid)
            .field("alg", &self.alg)
            .finish_non_exhaustive()
    }
}
