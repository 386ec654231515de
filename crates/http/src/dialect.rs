//! The dialects by name, and which of them can be spoken at once.
//!
//! Must not know: how any of them is written.

use std::fmt;
use std::str::FromStr;

/// A way of telling clients about limits. `docs/headers.md` shows an example of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Dialect {
    /// `RateLimit-Policy` and `RateLimit` of draft-ietf-httpapi-ratelimit-headers-08 to -11: every limit, by name.
    Draft11,
    /// The draft after that, as its editors have it: other letters, costs, and partitions explained. It may still change.
    Next,
    /// Revision 07: one limit, as a dictionary.
    Draft07,
    /// Revisions 04 to 06: one limit, in three fields, and the policies in a fourth.
    Draft06,
    /// Revision 03: the same with the policies behind the limit.
    Draft03,
    /// What Envoy calls `DRAFT_VERSION_03`: the same with `X-` and names.
    Envoy,
    /// `X-RateLimit-*` whose reset is a number of seconds to wait.
    XRateLimit,
    /// `X-RateLimit-*` whose reset is seconds since 1970.
    XRateLimitEpoch,
    /// `X-RateLimit-*` whose reset is milliseconds since 1970.
    XRateLimitEpochMillis,
    /// `X-RateLimit-*` as Discord has them, with a bucket, a scope and fractions of seconds.
    Discord,
    /// `X-RateLimit-*` as GitHub has them, with what is used and a resource.
    GitHub,
}

/// The fields of the later drafts.
const DICTIONARY: &[&str] = &["ratelimit", "ratelimit-policy"];
/// The field that all `X-RateLimit-*` have.
const X_LIMIT: &[&str] = &["x-ratelimit-limit"];

impl Dialect {
    /// Every dialect, in the order in which several are written.
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

    /// The name that settings use.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.properties().name
    }

    /// Everything that the rest of the workspace wants to know of a dialect, but how it is written.
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

    /// Whether it says when, and not only after how long: then an answer needs the time.
    #[must_use]
    pub const fn sends_time(self) -> bool {
        self.properties().sends_time
    }

    /// Whether it says whose quota it is, as a digest.
    #[must_use]
    pub const fn sends_partitions(self) -> bool {
        self.properties().sends_partitions
    }

    /// A field that both write, each in its own way, so that no client could read it.
    fn conflicting_field(self, other: Self) -> Option<&'static str> {
        let theirs = other.properties().contested;
        let ours = self.properties().contested.iter();
        ours.copied().find(|field| theirs.contains(field))
    }

    const fn bit(self) -> u16 {
        1 << self as u16
    }
}

/// What a dialect is called and what it sends.
struct DialectProperties {
    name: &'static str,
    /// The fields that it writes, in lowercase, as far as others write them too.
    contested: &'static [&'static str],
    /// Whether it says when, and not only after how long.
    sends_time: bool,
    /// Whether it says whose quota it is, as a digest.
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

    /// The dialect of that name. Revisions that are written alike are one dialect.
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

/// The dialects of an answer: those that were chosen, or none. At most one of those that share a field.
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
    /// No field but those that a denial needs: `Retry-After` and `Cache-Control`.
    pub const NONE: Self = Self(0);

    /// These dialects at once.
    ///
    /// # Errors
    /// Two of them write the same field, each in its own way.
    pub fn new(dialects: &[Dialect]) -> Result<Self, InvalidDialect> {
        let mut all = Self::NONE;
        for dialect in dialects {
            all = all.with(*dialect)?;
        }
        Ok(all)
    }

    /// One more dialect. Naming one twice is naming it once.
    ///
    /// # Errors
    /// It shares a field with one that is there.
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

    /// Whether this one is among them.
    #[must_use]
    pub const fn contains(self, dialect: Dialect) -> bool {
        self.0 & dialect.bit() != 0
    }

    /// Them, in the order in which they are written.
    pub fn iter(self) -> impl Iterator<Item = Dialect> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            // Bits are in the order of the list. Taking the lowest each time costs nothing for those that are not there.
            let lowest = usize::try_from(rest.trailing_zeros()).unwrap_or(usize::MAX);
            rest &= rest.saturating_sub(1);
            Dialect::ALL.get(lowest).copied()
        })
    }
}

impl fmt::Display for Dialects {
    /// As it is read.
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
    /// The current draft alone.
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

    /// Names with commas between them, or `none`. `off` means `none` too.
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

/// A dialect that there is not, or that cannot be spoken beside another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidDialect {
    /// The name that was given, or the beginning of it.
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
    fn errors_name_what_there_is() {
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
    fn what_is_shown_reads_back() {
        for list in ["none", "draft-11", "draft-11,draft-03,github"] {
            let dialects: Dialects = list.parse().unwrap();
            assert_eq!(dialects.to_string(), list);
        }
    }

    #[test]
    fn one_of_each_family_may_be_spoken_at_once() {
        let all: Dialects = "github, draft-03 ,draft-11,github".parse().unwrap();
        let expected = [Dialect::Draft11, Dialect::Draft03, Dialect::GitHub];
        assert!(all.iter().eq(expected));
        assert_eq!(Dialects::new(&expected), Ok(all));
        assert_eq!(Dialects::default(), Dialect::Draft11.into());
    }
}
