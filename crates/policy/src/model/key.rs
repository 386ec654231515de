//! Whose quota it is: the attributes that make up a key, and what an absent one means.
//!
//! Must not know: how keys are encoded or stored.

use crate::attributes::Attribute;
use crate::source::Located;

/// One part of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyPart {
    /// Which attribute.
    pub attribute: Located<Attribute>,
    /// Letters A to Z count as a to z.
    pub lower: bool,
    /// Only a keyed digest of the value is kept and shown.
    pub hash: bool,
    /// How many leading bits of an IPv4 address count.
    pub v4_bits: u8,
    /// How many leading bits of an IPv6 address count.
    pub v6_bits: u8,
    /// What it means if the request has no such attribute.
    pub missing: OnMissing,
}

impl KeyPart {
    /// The attribute as it is: IPv4 /32, IPv6 /64, shared where it is missing.
    #[must_use]
    pub const fn new(attribute: Located<Attribute>) -> Self {
        Self {
            attribute,
            lower: false,
            hash: false,
            v4_bits: 32,
            v6_bits: 64,
            missing: OnMissing::Shared,
        }
    }
}

/// What a limit does with a request that lacks an attribute of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum OnMissing {
    /// All such requests share one quota. The default: leaving a header out must not be a way around a limit.
    #[default]
    Shared,
    /// The limit does not apply.
    Skip,
    /// The request is refused.
    Deny,
}
