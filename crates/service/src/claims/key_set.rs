//! The keys that verify tokens, and which of them may have signed one.
//!
//! Must not know: where keys come from, when they change.

use std::sync::Arc;

use tollgate_policy::model::{JwkMembers, JwtSettings};

use super::jwk::{UnusableKey, VerificationKey};
use super::rejection::TokenRejection;
use super::strict_json::{JsonMap, StrictJson, parse_object};

/// The most keys that one token is checked with. Keys without `kid` are tried one after the other, and each try costs a signature.
const MAX_TRIED: usize = 4;

/// The keys in force.
#[derive(Clone, Debug, Default)]
pub(super) struct KeySet {
    keys: Vec<Arc<VerificationKey>>,
}

impl KeySet {
    /// Reads a JWK Set. Keys for other purposes are left out, as RFC 7517 says; a broken key is an error.
    pub(super) fn parse(text: &[u8]) -> Result<Self, String> {
        let members = parse_object(text).ok_or("it is no JSON object, or a name is there twice")?;
        let Some(StrictJson::List(list)) = members.get("keys") else {
            return Err("it has no list `keys`".to_owned());
        };
        let mut set = Self::default();
        for (index, key) in list.iter().enumerate() {
            let StrictJson::Map(members) = key else {
                return Err(format!("key {} is no object", index + 1));
            };
            set.add(members, index)?;
        }
        if set.keys.is_empty() {
            return Err("none of its keys can verify a signature".to_owned());
        }
        Ok(set)
    }

    /// Reads one key of a policy.
    pub(super) fn add_members(&mut self, members: &JwkMembers) -> Result<(), String> {
        let text = |value: &str| StrictJson::Text(value.into());
        let members: JsonMap = members
            .iter()
            .map(|(name, value)| (name.clone(), text(value)))
            .collect();
        match VerificationKey::from_members(&members) {
            Ok(key) => self.keys.push(Arc::new(key)),
            Err(UnusableKey::OtherPurpose) => {
                return Err("the key cannot verify a signature: `kty`, `crv`, `alg` or `use` is not supported".to_owned());
            }
            Err(UnusableKey::Invalid(why)) => return Err(format!("the key is invalid: {why}")),
        }
        Ok(())
    }

    /// The keys of both sets.
    pub(super) fn with(mut self, other: Self) -> Self {
        self.keys.extend(other.keys);
        self
    }

    fn add(&mut self, members: &JsonMap, index: usize) -> Result<(), String> {
        match VerificationKey::from_members(members) {
            Ok(key) => self.keys.push(Arc::new(key)),
            Err(UnusableKey::OtherPurpose) => {}
            Err(UnusableKey::Invalid(why)) => {
                return Err(format!("key {} is invalid: {why}", index + 1));
            }
        }
        match self.keys.len() > JwtSettings::MAX_LISTED {
            true => Err(format!("it has more than {} keys", JwtSettings::MAX_LISTED)),
            false => Ok(()),
        }
    }

    /// The keys that may have signed a token with this header.
    ///
    /// # Errors
    /// No key has the algorithm, or none has the id.
    pub(super) fn candidates(
        &self,
        alg: &str,
        kid: Option<&str>,
    ) -> Result<impl Iterator<Item = &VerificationKey>, TokenRejection> {
        let with_alg = || {
            self.keys
                .iter()
                .map(|key| &**key)
                .filter(move |key| key.alg == alg)
        };
        if with_alg().next().is_none() {
            return Err(TokenRejection::Algorithm);
        }
        let may_have_signed = move |key: &&VerificationKey| match (kid, key.kid.as_deref()) {
            (Some(kid), Some(own)) => kid == own,
            (None, _) | (_, None) => true,
        };
        let mut candidates = with_alg()
            .filter(may_have_signed)
            .take(MAX_TRIED)
            .peekable();
        match candidates.peek() {
            Some(_) => Ok(candidates),
            None => Err(TokenRejection::UnknownKey),
        }
    }
}
