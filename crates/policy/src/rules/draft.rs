//! The input of [`Rules`](super::Rules), and the errors of building them.
//!
//! Must not know: how a policy is read, how requests are matched.

use std::fmt;

use super::{MAX_METERS, Rule};
use crate::attributes::Attribute;
use crate::model::{
    DenyRule, DuplicateRule, Group, KeyPart, Match, OverloadSpec, PathSettings, Percent,
    PriorityClassSpec, RetrySource, Template,
};

/// The maximum number of parts of a key, including those of all levels above.
pub const MAX_KEY_PARTS: usize = 16;
/// The maximum number of segments of a route template.
pub const MAX_SEGMENTS: usize = 64;
/// The maximum bytes of a glob between its first and its last wildcard. `?` counts twice.
pub const MAX_GLOB_BYTES: usize = 127;

/// The input of [`Rules::new`](super::Rules::new).
#[derive(Debug, Default)]
pub struct RulesDraft {
    /// The limits, in file order.
    pub limits: Vec<DraftLimit>,
    /// Requests that no limit applies to.
    pub exempt: Vec<Match>,
    /// Requests that are refused before any limit.
    pub deny: Vec<DenyRule>,
    /// The groups and how their limits combine. All limits of other groups apply.
    pub groups: Vec<Group>,
    /// Route templates that no limit matches by.
    pub routes: Vec<Template>,
    /// How the servers behind read paths.
    pub paths: PathSettings,
    /// The headers, cookies and query parameters that are read, and which of several values counts.
    pub duplicates: Vec<(Attribute, DuplicateRule)>,
    /// The names of the claims that are read, sorted.
    pub claims: Vec<Box<str>>,
    /// The limit that preflights are charged to.
    pub preflights: Option<DraftLimit>,
    /// The share of differing decisions above which a candidate is not recommended.
    pub divergence_threshold: Percent,
    /// The priority classes, the most important first.
    pub priorities: Vec<PriorityClassSpec>,
    /// Which mechanisms shed requests.
    pub overload: OverloadSpec,
    /// How `overload` recognises retries.
    pub retries: RetrySource,
}

impl RulesDraft {
    /// Whether a key contains the attribute.
    pub(super) fn keys_use(&self, attribute: &Attribute) -> bool {
        let mut keys = self.limits.iter().flat_map(|limit| &limit.keys);
        keys.any(|key| key.attributes().any(|used| used == attribute))
    }
}

/// One limit: the compiled rule, its conditions and its keys.
#[derive(Debug)]
pub struct DraftLimit {
    /// The compiled rule.
    pub rule: Rule,
    /// Which requests it matches.
    pub matching: Match,
    /// The group it belongs to.
    pub group: Option<Box<str>>,
    /// The key of each meter, in the order of the rule's meters.
    pub keys: Vec<KeySpec>,
}

/// How to encode a key from a request.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct KeySpec {
    /// The parts; for a level those of the levels above come first. Empty: all requests share one key.
    pub parts: Vec<KeyPart>,
    /// An attribute whose digest becomes part of the key, so that each value has its own state.
    pub distinct: Option<Attribute>,
}

impl KeySpec {
    /// A key of these parts.
    #[must_use]
    pub const fn new(parts: Vec<KeyPart>) -> Self {
        Self {
            parts,
            distinct: None,
        }
    }

    /// The attributes of the parts, and the one whose values are distinguished.
    pub(super) fn attributes(&self) -> impl Iterator<Item = &Attribute> {
        let parts = self.parts.iter().map(|part| &part.attribute.value);
        parts.chain(&self.distinct)
    }

    /// The same key, with one state per value of an attribute.
    #[must_use]
    pub fn with_distinct(mut self, attribute: Attribute) -> Self {
        self.distinct = Some(attribute);
        self
    }
}

/// A part of a draft.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RuleOrigin {
    /// A `deny` entry, by index.
    Deny(usize),
    /// An `exempt` entry, by index.
    Exempt(usize),
    /// A limit, by index.
    Limit(usize),
    /// An entry of `routes`, by index.
    Route(usize),
    /// A priority class, by its index among those with conditions.
    Priority(usize),
}

/// Why a draft cannot be built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleError {
    /// The part of the draft.
    pub origin: RuleOrigin,
    /// The error.
    pub kind: RuleErrorKind,
}

impl RuleError {
    /// The same of a priority class, whose conditions are compiled as a `deny` list.
    pub(super) fn into_priority(self) -> Self {
        let origin = match self.origin {
            RuleOrigin::Deny(index) => RuleOrigin::Priority(index),
            other => other,
        };
        Self { origin, ..self }
    }
}

/// The kinds of errors in a draft.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RuleErrorKind {
    /// A key has more than [`MAX_KEY_PARTS`] parts.
    KeyParts(usize),
    /// A template has more than [`MAX_SEGMENTS`] segments.
    Segments(Template),
    /// A glob has more than [`MAX_GLOB_BYTES`] bytes between its wildcards.
    GlobBytes(Box<str>),
    /// One request may reach more than [`MAX_METERS`] quotas.
    TooManyQuotas {
        /// The number of quotas.
        quotas: usize,
        /// The names of their limits.
        limits: Vec<Box<str>>,
        /// The attributes of such a request, as far as they matter.
        request: Box<str>,
    },
    /// The number of key specs differs from the number of meters.
    KeySpecCount {
        /// The number of meters.
        meters: usize,
        /// The number of key specs.
        key_specs: usize,
    },
}

impl fmt::Display for RuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            RuleErrorKind::KeyParts(parts) => write!(
                f,
                "the key has {parts} parts including those of the levels above, the maximum is {MAX_KEY_PARTS}"
            ),
            RuleErrorKind::Segments(template) => write!(
                f,
                "the route {} has more than {MAX_SEGMENTS} segments",
                template.0
            ),
            RuleErrorKind::GlobBytes(glob) => write!(
                f,
                "the glob `{glob}` has more than {MAX_GLOB_BYTES} bytes between its first and its last wildcard"
            ),
            RuleErrorKind::TooManyQuotas {
                quotas,
                limits,
                request,
            } => {
                let request = match &**request {
                    "" => String::new(),
                    known => format!(" ({known})"),
                };
                write!(
                    f,
                    "one request{request} may reach {quotas} quotas, the maximum is {MAX_METERS}: "
                )?;
                write_names(f, limits)
            }
            RuleErrorKind::KeySpecCount { meters, key_specs } => {
                write!(f, "there are {meters} meters and {key_specs} key specs")
            }
        }
    }
}

/// The first names of a list, and how many there are besides.
fn write_names(f: &mut fmt::Formatter<'_>, names: &[Box<str>]) -> fmt::Result {
    const MAX_NAMES: usize = 16;
    for (index, name) in names.iter().take(MAX_NAMES).enumerate() {
        let separator = if index == 0 { "" } else { ", " };
        write!(f, "{separator}`{name}`")?;
    }
    match names.len().saturating_sub(MAX_NAMES) {
        0 => Ok(()),
        more => write!(f, " and {more} more"),
    }
}

impl std::error::Error for RuleError {}
