//! Everything that operators have said and that still holds, as it is kept and handed on.
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

/// The most overrides at once.
pub const MAX_OVERRIDES: usize = 10_000;
/// The most blocks at once.
pub const MAX_BLOCKS: usize = 10_000;
/// The longest quota that an override may say.
pub(super) const MAX_QUOTA_BYTES: usize = 256;
const MAX_ADDRESS_BYTES: usize = 64;
pub(super) const MAX_NAME_BYTES: usize = 64;
/// The bytes of a digest.
const DIGEST_BYTES: usize = 16;
/// Sixteen parts whose attributes have long names.
pub(super) const MAX_KEY_SPEC_BYTES: usize = 8_192;
/// Sixteen parts of 64 characters, each escaped.
const MAX_SHOWN_BYTES: usize = 16_384;
/// The most limits that switches are kept for.
pub(super) const MAX_SWITCHES: usize = 70_000;

/// Everything that operators have said and that still holds.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OperatorState {
    /// The switch over everything.
    #[serde(default)]
    pub everything: Switch,
    /// Switches of single limits, by name.
    #[serde(default)]
    pub limits: BTreeMap<Box<str>, Switch>,
    /// Other quotas for single keys.
    #[serde(default)]
    pub overrides: Vec<KeyOverride>,
    /// Who is refused.
    #[serde(default)]
    pub blocks: Vec<Block>,
}

/// How far a limit is enforced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Switch {
    /// Whether it is halted, and how far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub halt: Option<Halt>,
    /// For which share of keys it is enforced, in hundredths of a percent, whatever the policy says; zero is for nobody. Of
    /// everything: for no larger share than this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enforce: Option<u16>,
}

/// How far something is halted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Halt {
    /// It is counted and reported, never enforced.
    Shadow,
    /// It is not asked.
    Off,
}

/// A key, known without its values.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyIdentity {
    /// The limit whose key it is.
    pub limit: Box<str>,
    /// What the limit makes its keys of. A policy that makes them of something else has no such key.
    pub made_of: Box<str>,
    /// The keyed digest of the encoded key, in hexadecimal digits: what is kept and handed on tells nobody a key.
    pub key: Box<str>,
    /// As people read it where it was named, digests where the policy hashes values; elsewhere the digest.
    pub shown: Box<str>,
}

/// Another quota for one key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyOverride {
    /// Whose quota.
    pub key: KeyIdentity,
    /// As in a policy: `9000/min burst 500`.
    pub quota: Box<str>,
    /// Until when, in nanoseconds since 1970; without it until it is taken back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<u64>,
}

/// Who is refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum Block {
    /// A key of a limit.
    Key {
        /// The key.
        key: KeyIdentity,
        /// Until when, in nanoseconds since 1970; without it until it is taken back.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        until: Option<u64>,
    },
    /// An address or a network.
    Address {
        /// `192.0.2.7` or `10.0.0.0/8`.
        address: String,
        /// Until when, in nanoseconds since 1970; without it until it is taken back.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        until: Option<u64>,
    },
}

impl Switch {
    /// Halted this far, and otherwise as the policy says.
    #[must_use]
    pub const fn halted(halt: Halt) -> Self {
        Self {
            halt: Some(halt),
            enforce: None,
        }
    }

    /// Enforced for this share of keys.
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
            (None, None) => f.write_str("what the policy says"),
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
    /// Whether both name the same key.
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
    /// Forgets what no longer holds.
    pub(super) fn expire(&mut self, now: Timestamp) {
        let holds = |until: Option<u64>| until.is_none_or(|until| now.as_nanos() < until);
        self.overrides.retain(|one| holds(one.until));
        self.blocks.retain(|one| holds(one.until()));
    }

    pub(super) fn block(&mut self, block: Block) -> Result<(), OperatorError> {
        self.blocks.retain(|other| !other.has_same_target(&block));
        if self.blocks.len() >= MAX_BLOCKS {
            return Err(OperatorError::TooMany {
                what: "blocks",
                most: MAX_BLOCKS,
            });
        }
        self.blocks.push(block);
        Ok(())
    }

    pub(super) fn unblock(&mut self, is_it: impl Fn(&Block) -> bool) -> Result<(), OperatorError> {
        let before = self.blocks.len();
        self.blocks.retain(|block| !is_it(block));
        if self.blocks.len() == before {
            return Err(OperatorError::NotFound { what: "block" });
        }
        Ok(())
    }

    /// Whether it is within all bounds.
    pub(super) fn check(&self) -> Result<(), OperatorError> {
        for (what, len, most) in [
            ("switches", self.limits.len(), MAX_SWITCHES),
            ("overrides", self.overrides.len(), MAX_OVERRIDES),
            ("blocks", self.blocks.len(), MAX_BLOCKS),
        ] {
            if len > most {
                return Err(OperatorError::TooMany { what, most });
            }
        }
        for one in &self.overrides {
            one.key.check()?;
            check_len("quota", &one.quota, MAX_QUOTA_BYTES)?;
        }
        self.blocks.iter().try_for_each(|block| match block {
            Block::Key { key, .. } => key.check(),
            Block::Address { address, .. } => check_len("address", address, MAX_ADDRESS_BYTES),
        })
    }
}

pub(super) fn check_len(field: &'static str, text: &str, most: usize) -> Result<(), OperatorError> {
    if text.len() > most {
        return Err(OperatorError::TooLong { field, most });
    }
    Ok(())
}

/// What a recipe makes keys of, in words that change with everything that changes keys.
pub(super) fn key_spec_text(recipe: &KeySpec) -> String {
    let mut words = String::new();
    for part in &recipe.parts {
        let lower = if part.lower { " lower" } else { "" };
        let hash = if part.hash { " hash" } else { "" };
        let (v4, v6) = (part.v4_bits, part.v6_bits);
        // Writing to a text cannot fail.
        let _infallible = write!(words, "{}{lower}{hash} /{v4} /{v6}; ", part.attribute.value);
    }
    words.truncate(words.trim_end().len());
    words
}

pub(super) fn hex(bytes: &[u8]) -> String {
    let mut digits = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        let _infallible = write!(digits, "{byte:02x}");
    }
    digits
}
