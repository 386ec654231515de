//! The name of a fleet. Must not know: which nodes belong to it.

use std::fmt;
use std::str::FromStr;

const MAX_BYTES: usize = 64;

/// The name of a fleet: nodes with the same name on the same servers form one fleet.
///
/// The name is not secret and does not depend on the shared secret. Nodes with different secrets must see each other,
/// so that operators notice that they count separately.
///
/// ```
/// use tollgate_store::register::FleetName;
///
/// let name: FleetName = "eu-west.api".parse()?;
/// assert_eq!(name.as_str(), "eu-west.api");
/// assert_eq!(FleetName::default().as_str(), "default");
/// assert!("two words".parse::<FleetName>().is_err());
/// # Ok::<(), tollgate_store::register::InvalidFleetName>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FleetName(Box<str>);

impl FleetName {
    /// The name as a string.
    #[must_use]
    pub const fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for FleetName {
    fn default() -> Self {
        Self("default".into())
    }
}

impl FromStr for FleetName {
    type Err = InvalidFleetName;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        if text.is_empty() || text.len() > MAX_BYTES || !text.bytes().all(is_plain) {
            return Err(InvalidFleetName);
        }
        Ok(Self(text.into()))
    }
}

impl fmt::Display for FleetName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// An invalid fleet name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidFleetName;

impl fmt::Display for InvalidFleetName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "fleet name: it must have 1 to {MAX_BYTES} letters, digits, dots, dashes or underscores"
        )
    }
}

impl std::error::Error for InvalidFleetName {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fleet_name_cannot_leave_the_braces_of_a_key() {
        for wrong in ["", "a b", "a}b", "{", "a:b", "é", "a\n", &"a".repeat(65)] {
            assert_eq!(wrong.parse::<FleetName>(), Err(InvalidFleetName), "{wrong}");
        }
        assert!("a".repeat(64).parse::<FleetName>().is_ok());
    }
}
