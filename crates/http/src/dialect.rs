//! The dialects of rate limit header fields, and which of them can be combined.
//!
//! Must not know: how a dialect is written.

use std::fmt;
use std::str::FromStr;

/// A set of header fields that report limits to clients. `docs/headers.md` shows an example of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Dialect {
    /// `RateLimit-Policy` and `RateLimit` of draft-ietf-httpapi-ratelimit-headers-08 to -11: every limit, by name.
    Draft11,
    /// The editors' copy after draft 11: other parameter names, costs, and partition dimensions. It may still change.
    Next,
    /// Revision 07: one limit, as a dictionary.
    Draft07,
    /// Revisions 04 to 06: one limit, in three fields, and the policies in a fourth.
    Draft06,
    /// Revision 03: the same, with the policies listed after the limit.
    Draft03,
    /// Envoy's `DRAFT_VERSION_03`: the same with the prefix `X-` and policy names.
    Envoy,
    /// `X-RateLimit-*` whose reset is a number of seconds to wait.
    XRateLimit,
    /// `X-RateLimit-*` whose reset is seconds since 1970.
    XRateLimitEpoch,
    /// `X-RateLimit-*` whose reset is milliseconds since 1970.
    XRateLimitEpochMillis,
    /// Discord's `X-RateLimit-*`: with a bucket, a scope and fractions of seconds.
    Discord,
    /// GitHub's `X-RateLimit-*`: with the used quota and a resource.
    GitHub,
}

/// The fields that drafts 07 and later share.
const DICTIONARY: &[&str] = &["ratelimit", "ratelimit-policy"];
/// The field that all `X-RateLimit-*` dialects share.
const X_LIMIT: &[&str] = &["x-ratelimit-limit"];

impl Dialect {
    /// Every dialect, in the order in which fields are written.
    pub const ALL: [Self; 11] = [
        Self::Draft11,
        Self::Next,
        Self::Draft07,
        Self::Draft06,
        Self::Draft03,
        Self::Envoy,
        Self::XRateLimit,
        Self::XRateLimitEpoch,
        Self::XRateLimitEpochMillis,
        Self::Discord,
        Self::GitHub,
    ];

    /// The dialect's name in settings.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.properties().name
    }

    /// The dialect's properties.
    const fn properties(self) -> DialectProperties {
        match self {
            Self::Draft11 => DialectProperties::new("draft-11", DICTIONARY).with_partitions(),
            Self::Next => DialectProperties::new("next", DICTIONARY).with_partitions(),
            Self::Draft07 => DialectProperties::new("draft-07", DICTIONARY),
            Self::Draft06 => {
                DialectProperties::new("draft-06", &["ratelimit-limit", "ratelimit-policy"])
            }
            Self::Draft03 => DialectProperties::new("draft-03", &["ratelimit-limit"]),
            Self::Envoy => DialectProperties::new("envoy", X_LIMIT),
            Self::XRateLimit => DialectProperties::new("x-ratelimit", X_LIMIT),
            Self::XRateLimitEpoch => {
                DialectProperties::new("x-ratelimit-epoch", X_LIMIT).with_time()
            }
            Self::XRateLimitEpochMillis => {
                DialectProperties::new("x-ratelimit-epoch-ms", X_LIMIT).with_time()
            }
            Self::Discord => DialectProperties::new("discord", X_LIMIT).with_time(),
            Self::GitHub => DialectProperties::new("github", X_LIMIT).with_time(),
        }
    }

    /// Whether it sends times as well as delays. Then rendering needs the current time.
    #[must_use]
    pub const fn sends_time(self) -> bool {
        self.properties().sends_time
    }

    /// Whether it sends a digest of the partition key.
    #[must_use]
    pub const fn sends_partitions(self) -> bool {
        self.properties().sends_partitions
    }

    /// A field that both dialects write in different formats.
    fn conflicting_field(self, other: Self) -> Option<&'static str> {
        let other_fields = other.properties().contested;
        let own_fields = self.properties().contested.iter();
        own_fields
            .copied()
            .find(|field| other_fields.contains(field))
    }

    const fn bit(self) -> u16 {
        1 << self as u16
    }
}

/// A dialect's name and what it sends.
struct DialectProperties {
    name: &'static str,
    /// Those of its fields that other dialects write too, in lowercase.
    contested: &'static [&'static str],
    /// Whether it sends times as well as delays.
    sends_time: bool,
    /// Whether it sends a digest of the partition key.
    sends_partitions: bool,
}

impl DialectProperties {
    const fn new(name: &'static str, contested: &'static [&'static str]) -> Self {
        Self {
            name,
            contested,
            sends_time: false,
            sends_partitions: false,
        }
    }

    const fn with_time(mut self) -> Self {
        self.sends_time = true;
        self
    }

    const fn with_partitions(mut self) -> Self {
        self.sends_partitions = true;
        self
    }
}

impl fmt::Display for Dialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Dialect {
    type Err = InvalidDialect;

    /// Parses a dialect's name. Revisions with the same format are one dialect.
    fn from_str(name: &str) -> Result<Self, InvalidDialect> {
        match name {
            "draft-08" | "draft-09" | "draft-10" => return Ok(Self::Draft11),
            "draft-04" | "draft-05" => return Ok(Self::Draft06),
            _ => {}
        }
        let found = Self::ALL.into_iter().find(|dialect| dialect.name() == name);
        found.ok_or_else(|| InvalidDialect::new(name, InvalidDialectReason::Unknown))
    }
}

/// The dialects of a response, or none. Dialects that write the same field differently cannot be combined.
///
/// ```
/// use tollgate_http::{Dialect, Dialects};
///
/// let both: Dialects = "draft-11, x-ratelimit".parse()?;
/// assert!(both.iter().eq([Dialect::Draft11, Dialect::XRateLimit]));
/// assert_eq!("none".parse(), Ok(Dialects::NONE));
///
/// let clash = "draft-11, draft-07".parse::<Dialects>().unwrap_err();
/// assert_eq!(
///     clash.to_string(),
///     r#"dialect: "draft-07" is not valid: it writes `ratelimit` differently from draft-11; choose one of the two"#,
/// );
/// # Ok::<(), tollgate_http::InvalidDialect>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Dialects(u16);

impl Dialects {
    /// No rate limit fields. A denial still has `Retry-After` and `Cache-Control`.
    pub const NONE: Self = Self(0);

    /// A combination of dialects.
    ///
    /// # Errors
    /// Two of them write the same field in different formats.
    pub fn new(dialects: &[Dialect]) -> Result<Self, InvalidDialect> {
        let mut all = Self::NONE;
        for dialect in dialects {
            all = all.with(*dialect)?;
        }
        Ok(all)
    }

    /// Adds a dialect. Adding it twice has no effect.
    ///
    /// # Errors
    /// It writes a field in another format than a dialect that was added before.
    pub fn with(self, dialect: Dialect) -> Result<Self, InvalidDialect> {
        for other in self.iter().filter(|other| *other != dialect) {
            if let Some(field) = dialect.conflicting_field(other) {
                return Err(InvalidDialect::new(
                    dialect.name(),
                    InvalidDialectReason::Conflict { field, other },
                ));
            }
        }
        Ok(Self(self.0 | dialect.bit()))
    }

    /// Whether it includes this dialect.
    #[must_use]
    pub const fn contains(self, dialect: Dialect) -> bool {
        self.0 & dialect.bit() != 0
    }

    /// The dialects, in the order in which their fields are written.
    pub fn iter(self) -> impl Iterator<Item = Dialect> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            // Bits are in the order of `Dialect::ALL`. Taking the lowest set bit skips absent dialects.
            let lowest = usize::try_from(rest.trailing_zeros()).unwrap_or(usize::MAX);
            rest &= rest.saturating_sub(1);
            Dialect::ALL.get(lowest).copied()
        })
    }
}

impl fmt::Display for Dialects {
    /// The format that [`FromStr`] parses.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::NONE {
            return f.write_str("none");
        }
        for (index, dialect) in self.iter().enumerate() {
            f.write_str(if index == 0 { "" } else { "," })?;
            dialect.fmt(f)?;
        }
        Ok(())
    }
}

impl Default for Dialects {
    /// Only the current draft.
    fn default() -> Self {
        Self(Dialect::Draft11.bit())
    }
}

impl From<Dialect> for Dialects {
    fn from(dialect: Dialect) -> Self {
        Self(dialect.bit())
    }
}

impl FromStr for Dialects {
    type Err = InvalidDialect;

    /// Parses names separated by commas, or `none`. `off` is an alias of `none`.
    fn from_str(list: &str) -> Result<Self, InvalidDialect> {
        let is_none = |name: &str| matches!(name, "none" | "off");
        if is_none(list.trim()) {
            return Ok(Self::NONE);
        }
        let mut all = Self::NONE;
        for name in list.split(',') {
            let name = name.trim();
            if is_none(name) {
                return Err(InvalidDialect::new(
                    name,
                    InvalidDialectReason::NoneAmongOthers,
                ));
            }
            all = all.with(name.parse()?)?;
        }
        Ok(all)
    }
}

/// The dialect is unknown, or conflicts with another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidDialect {
    /// The name that was given, cut to 64 characters.
    pub name: String,
    reason: InvalidDialectReason,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InvalidDialectReason {
    Unknown,
    NoneAmongOthers,
    Conflict { field: &'static str, other: Dialect },
}

impl InvalidDialect {
    fn new(name: &str, reason: InvalidDialectReason) -> Self {
        Self {
            name: name.chars().take(64).collect(),
            reason,
        }
    }
}

impl fmt::Display for InvalidDialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "dialect: {:?} is not valid: ", self.name)?;
        match self.reason {
            InvalidDialectReason::Unknown => {
                f.write_str("there is no such dialect; there are ")?;
                for dialect in Dialect::ALL {
                    write!(f, "{dialect}, ")?;
                }
                f.write_str("and none")
            }
            InvalidDialectReason::NoneAmongOthers => {
                f.write_str("it means no dialect, so it must stand alone")
            }
            InvalidDialectReason::Conflict { field, other } => write!(
                f,
                "it writes `{field}` differently from {other}; choose one of the two"
            ),
        }
    }
}

impl std::error::Error for InvalidDialect {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_reads_back_and_every_dialect_has_a_bit_of_its_own() {
        let mut bits = 0_u16;
        for dialect in Dialect::ALL {
            assert_eq!(dialect.name().parse(), Ok(dialect));
            assert_eq!(bits & dialect.bit(), 0, "{dialect}");
            bits |= dialect.bit();
            assert!(Dialects::from(dialect).iter().eq([dialect]));
        }
        for (name, dialect) in [
            ("draft-08", Dialect::Draft11),
            ("draft-05", Dialect::Draft06),
        ] {
            assert_eq!(name.parse(), Ok(dialect));
        }
    }

    #[test]
    fn errors_list_the_known_dialects() {
        let error = |list: &str| list.parse::<Dialects>().unwrap_err().to_string();
        assert_eq!(
            error("draft-12"),
            "dialect: \"draft-12\" is not valid: there is no such dialect; there are draft-11, next, draft-07, \
             draft-06, draft-03, envoy, x-ratelimit, x-ratelimit-epoch, x-ratelimit-epoch-ms, discord, github, and none"
        );
        assert!(error("").starts_with("dialect: \"\" is not valid: there is no such dialect"));
        assert!(error("draft-11,").contains("\"\" is not valid"));
        for list in [
            "draft-11, none",
            "none,github",
            "none,none",
            "off, draft-11",
        ] {
            assert!(error(list).ends_with("so it must stand alone"), "{list}");
        }
        assert_eq!(" off ".parse(), Ok(Dialects::NONE));
        assert!(error("discord,github").contains("`x-ratelimit-limit` differently from discord"));
        assert!(
            error("draft-06,draft-11").contains("`ratelimit-policy` differently from draft-06")
        );
        assert!(error(&"x".repeat(10_000)).len() < 300);
    }

    #[test]
    fn the_displayed_dialects_parse_back() {
        for list in ["none", "draft-11", "draft-11,draft-03,github"] {
            let dialects: Dialects = list.parse().unwrap();
            assert_eq!(dialects.to_string(), list);
        }
    }

    #[test]
    fn one_dialect_of_each_family_can_be_combined() {
        let all: Dialects = "github, draft-03 ,draft-11,github".parse().unwrap();
        let expected = [Dialect::Draft11, Dialect::Draft03, Dialect::GitHub];
        assert!(all.iter().eq(expected));
        assert_eq!(Dialects::new(&expected), Ok(all));
        assert_eq!(Dialects::default(), Dialect::Draft11.into());
    }
}
