//! Whose quota it is: the attributes that make up a key, and what an absent one means.
//!
//! Must not know: how keys are encoded or stored.

use crate::attributes::Attribute;
use crate::source::At;

/// One part of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyPart {
    /// Which attribute.
    pub attribute: At<Attribute>,
    /// Letters A to Z count as a to z.
    pub lower: bool,
    /// Only a keyed digest of the value is kept and shown.
    pub hash: bool,
    /// How many leading bits of an IPv4 address count.
    pub v4_bits: u8,
    /// How many leading bits of an IPv6 address count.
    pub v6_bits: u8,
    /// What it means if the request has no such attribute.
    pub missing: Missing,
}

impl KeyPart {
    /// The attribute as it is: IPv4 /32, IPv6 /64, shared where it is missing.
    #[must_use]
    pub const fn plain(attribute: At<Attribute>) -> Self {
        Self {
            attribute,
            lower: false,
            hash: false,
            v4_bits: 32,
            v6_bits: 64,
            missing: Missing::Shared,
        }
    }
}

/// What a limit does with a request that lacks an attribute of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Missing {
    /// All such requests share one quota. The default: leaving a header out must not be a way around a limit.
    #[default]
    Shared,
    /// The limit does not apply.
    Skip,
    /// The request is refused.
    Deny,
}
