//! What [`Rules`](super::Rules) are made of, and why some of it cannot become rules.
//!
//! Must not know: how a policy is read, how requests are matched.

use std::fmt;

use super::Rule;
use crate::attributes::Attribute;
use crate::model::{DenyRule, Group, KeyPart, Match, Percent, Template};

/// The most parts that one key may have, those of all levels above included.
pub const MAX_KEY_PARTS: usize = 16;
/// The most segments that a route template may have.
pub const MAX_SEGMENTS: usize = 64;
/// The most bytes of a glob, not counting what stands literally before its first and after its last wildcard.
pub const MAX_GLOB_BYTES: usize = 1_024;

/// Everything that rules are made of.
#[derive(Debug, Default)]
pub struct RulesDraft {
    /// The limits, in the order of the file.
    pub limits: Vec<DraftLimit>,
    /// Requests that no limit applies to.
    pub exempt: Vec<Match>,
    /// Requests that are refused without asking a limit.
    pub deny: Vec<DenyRule>,
    /// The groups that say how their limits combine. A group that is not listed applies all of its limits.
    pub groups: Vec<Group>,
    /// Templates that name a route though no limit matches by them.
    pub routes: Vec<Template>,
    /// Above this share of differing decisions a candidate is advised against.
    pub divergence_threshold: Percent,
}

/// One limit: the compiled rule, and what this module still has to compile.
#[derive(Debug)]
pub struct DraftLimit {
    /// What was compiled already.
    pub rule: Rule,
    /// Which requests it is about.
    pub matching: Match,
    /// The group it belongs to.
    pub group: Option<Box<str>>,
    /// How the key of each meter is made: one for each of the rule's meters, in their order.
    pub keys: Vec<KeySpec>,
}

/// How a key is made of a request.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct KeySpec {
    /// Its parts; for a level those of the levels above come first. None: everyone's together.
    pub parts: Vec<KeyPart>,
    /// The attribute whose value becomes part of the key as a digest, so that each value has a state of its own.
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

    /// The same key, once for each value of an attribute.
    #[must_use]
    pub fn with_distinct(mut self, attribute: Attribute) -> Self {
        self.distinct = Some(attribute);
        self
    }
}

/// Where something stands in a draft.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RuleOrigin {
    /// In a `deny` entry, by its index.
    Deny(usize),
    /// In an `exempt` entry, by its index.
    Exempt(usize),
    /// In a limit, by its index.
    Limit(usize),
    /// In `routes`, by its index.
    Route(usize),
}

/// Why a draft cannot become rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleError {
    /// What it is about.
    pub origin: RuleOrigin,
    /// What is too much.
    pub kind: RuleErrorKind,
}

/// What is wrong with a part of a draft.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RuleErrorKind {
    /// A key has more than [`MOST_KEY_PARTS`] parts.
    KeyParts(usize),
    /// A template has more than [`MOST_SEGMENTS`] segments.
    Segments(Template),
    /// A glob is longer than [`MOST_GLOB_BYTES`].
    GlobBytes(Box<str>),
    /// There are not as many recipes as meters.
    KeySpecCount {
        /// How many meters the rule has.
        meters: usize,
        /// How many recipes there are.
        key_specs: usize,
    },
}

impl fmt::Display for RuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            RuleErrorKind::KeyParts(parts) => write!(
                f,
                "the key has {parts} parts with those of the levels above, at most {MAX_KEY_PARTS} are allowed"
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
            RuleErrorKind::KeySpecCount {
                meters,
                key_specs: recipes,
            } => write!(
                f,
                "there are {meters} meters, and keys for {recipes} of them"
            ),
        }
    }
}

impl std::error::Error for RuleError {}
