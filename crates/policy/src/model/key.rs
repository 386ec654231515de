//! The attributes of a key, and what a limit does if one is absent.
//!
//! Must not know: how keys are encoded or stored.

use crate::attributes::Attribute;
use crate::source::Located;

/// One part of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyPart {
    /// The attribute.
    pub attribute: Located<Attribute>,
    /// Letters A to Z are lower-cased.
    pub lower: bool,
    /// Only a keyed digest of the value is stored and shown.
    pub hash: bool,
    /// The number of leading bits of an IPv4 address that are used.
    pub v4_bits: u8,
    /// The number of leading bits of an IPv6 address that are used.
    pub v6_bits: u8,
    /// What happens if the request lacks the attribute.
    pub missing: OnMissing,
}

impl KeyPart {
    /// A key part with default options: IPv4 /32, IPv6 /64, shared if absent.
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

/// What a limit does with a request that lacks an attribute of the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum OnMissing {
    /// All such requests share one quota. This is the default, so that a client cannot evade a limit by omitting a
    /// header.
    #[default]
    Shared,
    /// The limit does not apply.
    Skip,
    /// The request is refused.
    Deny,
}
