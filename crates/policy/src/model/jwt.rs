//! How tokens are verified, so that `claim.NAME` has values.
//!
//! Must not know: how signatures are verified, where requests come from.

use tollgate_core::Nanos;

use crate::attributes::Attribute;
use crate::source::Located;

/// `jwt`: which tokens (RFC 7519) are accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JwtSettings {
    /// Public keys in the policy itself (RFC 7517): the members of each key that are single values.
    pub keys: Vec<Located<JwkMembers>>,
    /// A file with a JWK Set.
    pub keys_file: Option<Located<Box<str>>>,
    /// The accepted values of `iss`. Empty: any.
    pub issuers: Vec<Box<str>>,
    /// The accepted values of `aud`. Empty: any.
    pub audiences: Vec<Box<str>>,
    /// The attribute that carries the token.
    pub from: Attribute,
    /// By how much clocks may differ.
    pub leeway: Nanos,
    /// The length of the longest token, in bytes.
    pub max_bytes: u32,
}

/// The members of a JSON Web Key: names and values.
pub type JwkMembers = Vec<(Box<str>, Box<str>)>;

impl JwtSettings {
    /// The default of `leeway`.
    pub const LEEWAY: Nanos = Nanos::from_secs(30);
    /// The maximum of `leeway`.
    pub const MAX_LEEWAY: Nanos = Nanos::from_secs(300);
    /// The default of `max_bytes`. Servers accept header fields of about this length.
    pub const MAX_BYTES: u32 = 8_192;
    /// The maximum number of keys, of issuers and of audiences.
    pub const MAX_LISTED: usize = 64;
    /// The maximum number of different claims that a policy may read.
    pub const MAX_CLAIMS: usize = 64;
}

impl Default for JwtSettings {
    /// Without keys, so that no token is accepted.
    fn default() -> Self {
        Self {
            keys: Vec::new(),
            keys_file: None,
            issuers: Vec::new(),
            audiences: Vec::new(),
            from: Attribute::Header("authorization".into()),
            leeway: Self::LEEWAY,
            max_bytes: Self::MAX_BYTES,
        }
    }
}
