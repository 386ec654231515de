//! The operators' state: switches, overrides and blocks in force, as it is stored and sent to other nodes.
//!
//! Must not know: generations, stores.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

use serde::{Deserialize, Serialize};
use tollgate_core::Timestamp;
use tollgate_policy::model::{Mode, Percent};
use tollgate_policy::rules::KeySpec;

use super::operator_error::OperatorError;
use crate::override_snapshot::ModeOverride;

/// The most overrides.
pub const MAX_OVERRIDES: usize = 10_000;
/// The most blocks.
pub const MAX_BLOCKS: usize = 10_000;
/// The longest quota text of an override, in bytes.
pub(super) const MAX_QUOTA_BYTES: usize = 256;
const MAX_ADDRESS_BYTES: usize = 64;
pub(super) const MAX_NAME_BYTES: usize = 64;
/// The length of a key digest in bytes.
const DIGEST_BYTES: usize = 16;
/// Enough for a key of 16 parts with long attribute names.
pub(super) const MAX_KEY_SPEC_BYTES: usize = 8_192;
/// Enough for a key of 16 parts with 64 characters each, all escaped.
const MAX_SHOWN_BYTES: usize = 16_384;
/// The most limits with a switch.
pub(super) const MAX_SWITCHES: usize = 70_000;

/// Everything that operators have set and that is still in force.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OperatorState {
    /// The switch for all limits.
    #[serde(default)]
    pub everything: Switch,
    /// The switches of single limits, by name.
    #[serde(default)]
    pub limits: BTreeMap<Box<str>, Switch>,
    /// Quotas for single keys.
    #[serde(default)]
    pub overrides: Vec<KeyOverride>,
    /// Blocked keys and addresses.
    #[serde(default)]
    pub blocks: Vec<Block>,
}

/// Whether and for which share of keys a limit is enforced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Switch {
    /// The halt, if the limit is halted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub halt: Option<Halt>,
    /// The share of keys that the limit is enforced for, in hundredths of a percent, instead of the policy's; zero
    /// means none. On the switch for all limits: an upper bound of every limit's share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enforce: Option<u16>,
}

/// How a limit is halted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Halt {
    /// The limit is counted and reported, never enforced.
    Shadow,
    /// The limit is not checked.
    Off,
}

/// A key of a limit, identified without its values.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyIdentity {
    /// The name of the limit.
    pub limit: Box<str>,
    /// The recipe of the limit's keys as text. A policy with another recipe has no such key.
    pub made_of: Box<str>,
    /// The keyed digest of the encoded key in hexadecimal. It does not reveal the key.
    pub key: Box<str>,
    /// The key for display: readable on the node where an operator named it, with digests where the policy hashes
    /// values. On other nodes the digest.
    pub shown: Box<str>,
}

/// A quota for one key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyOverride {
    /// The key.
    pub key: KeyIdentity,
    /// The quota in the policy's syntax: `9000/min burst 500`.
    pub quota: Box<str>,
    /// The expiry in nanoseconds since 1970. `None`: until it is removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<u64>,
}

/// A blocked key or address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum Block {
    /// A key of a limit.
    Key {
        /// The key.
        key: KeyIdentity,
        /// The expiry in nanoseconds since 1970. `None`: until it is removed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        until: Option<u64>,
    },
    /// An address or a network.
    Address {
        /// `192.0.2.7` or `10.0.0.0/8`.
        address: String,
        /// The expiry in nanoseconds since 1970. `None`: until it is removed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        until: Option<u64>,
    },
}

impl Switch {
    /// A switch that halts a limit and keeps the policy's share of keys.
    #[must_use]
    pub const fn halted(halt: Halt) -> Self {
        Self {
            halt: Some(halt),
            enforce: None,
        }
    }

    /// A switch that enforces a limit for this share of keys.
    #[must_use]
    pub const fn enforced_for(share: Percent) -> Self {
        Self {
            halt: None,
            enforce: Some(share.hundredths()),
        }
    }

    pub(super) fn mode_override(self) -> ModeOverride {
        ModeOverride {
            mode: match self.halt {
                None => Mode::Enforce,
                Some(Halt::Shadow) => Mode::Shadow,
                Some(Halt::Off) => Mode::Off,
            },
            enforce: self.enforce.map(Percent::from_hundredths),
        }
    }
}

impl fmt::Display for Switch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let halt = match self.halt {
            None => None,
            Some(Halt::Shadow) => Some("shadow"),
            Some(Halt::Off) => Some("off"),
        };
        match (halt, self.enforce) {
            (None, None) => f.write_str("the policy's setting"),
            (Some(halt), None) => f.write_str(halt),
            (halt, Some(share)) => {
                let share = Percent::from_hundredths(share);
                write!(f, "enforced for {share} of keys")?;
                halt.map_or(Ok(()), |halt| write!(f, ", {halt}"))
            }
        }
    }
}

impl Block {
    pub(super) fn until(&self) -> Option<u64> {
        match self {
            Self::Key { until, .. } | Self::Address { until, .. } => *until,
        }
    }

    fn has_same_target(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Key { key: one, .. }, Self::Key { key: two, .. }) => one.is_same_key(two),
            (Self::Address { address: one, .. }, Self::Address { address: two, .. }) => one == two,
            _ => false,
        }
    }
}

impl KeyIdentity {
    /// Whether both identify the same key.
    pub(super) fn is_same_key(&self, other: &Self) -> bool {
        (&self.limit, &self.made_of, &self.key) == (&other.limit, &other.made_of, &other.key)
    }

    fn check(&self) -> Result<(), OperatorError> {
        check_len("limit", &self.limit, MAX_NAME_BYTES)?;
        check_len("made_of", &self.made_of, MAX_KEY_SPEC_BYTES)?;
        check_len("key", &self.key, 2 * DIGEST_BYTES)?;
        check_len("shown", &self.shown, MAX_SHOWN_BYTES)
    }

    /// The digest of the encoded key.
    pub(super) fn digest(&self) -> Option<[u8; DIGEST_BYTES]> {
        let is_digits = self.key.bytes().all(|digit| digit.is_ascii_hexdigit());
        let whole = Some(&*self.key).filter(|key| is_digits && key.len() == 2 * DIGEST_BYTES)?;
        Some(u128::from_str_radix(whole, 16).ok()?.to_be_bytes())
    }
}

impl fmt::Debug for KeyIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.shown, self.limit)
    }
}

impl OperatorState {
    /// Removes expired overrides and blocks.
    pub(super) fn expire(&mut self, now: Timestamp) {
        let is_active = |until: Option<u64>| until.is_none_or(|until| now.as_nanos() < until);
        self.overrides.retain(|entry| is_active(entry.until));
        self.blocks.retain(|entry| is_active(entry.until()));
    }

    pub(super) fn block(&mut self, block: Block) -> Result<(), OperatorError> {
        self.blocks.retain(|other| !other.has_same_target(&block));
        if self.blocks.len() >= MAX_BLOCKS {
            return Err(OperatorError::TooMany {
                kind: "blocks",
                max: MAX_BLOCKS,
            });
        }
        self.blocks.push(block);
        Ok(())
    }

    pub(super) fn unblock(
        &mut self,
        is_target: impl Fn(&Block) -> bool,
    ) -> Result<(), OperatorError> {
        let before = self.blocks.len();
        self.blocks.retain(|block| !is_target(block));
        if self.blocks.len() == before {
            return Err(OperatorError::NotFound { kind: "block" });
        }
        Ok(())
    }

    /// Checks all bounds.
    pub(super) fn check(&self) -> Result<(), OperatorError> {
        for (kind, len, max) in [
            ("switches", self.limits.len(), MAX_SWITCHES),
            ("overrides", self.overrides.len(), MAX_OVERRIDES),
            ("blocks", self.blocks.len(), MAX_BLOCKS),
        ] {
            if len > max {
                return Err(OperatorError::TooMany { kind, max });
            }
        }
        for entry in &self.overrides {
            entry.key.check()?;
            check_len("quota", &entry.quota, MAX_QUOTA_BYTES)?;
        }
        self.blocks.iter().try_for_each(|block| match block {
            Block::Key { key, .. } => key.check(),
            Block::Address { address, .. } => check_len("address", address, MAX_ADDRESS_BYTES),
        })
    }
}

pub(super) fn check_len(field: &'static str, text: &str, max: usize) -> Result<(), OperatorError> {
    if text.len() > max {
        return Err(OperatorError::TooLong { field, max });
    }
    Ok(())
}

/// A recipe as text. The text differs whenever two recipes build different keys.
pub(super) fn key_spec_text(key_spec: &KeySpec) -> String {
    let mut text = String::new();
    for part in &key_spec.parts {
        let lower = if part.lower { " lower" } else { "" };
        let hash = if part.hash { " hash" } else { "" };
        let (v4, v6) = (part.v4_bits, part.v6_bits);
        // Writing to a string cannot fail.
        let _infallible = write!(text, "{}{lower}{hash} /{v4} /{v6}; ", part.attribute.value);
    }
    text.truncate(text.trim_end().len());
    text
}

pub(super) fn hex(bytes: &[u8]) -> String {
    let mut digits = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        let _infallible = write!(digits, "{byte:02x}");
    }
    digits
}
