//! One state that a request may touch: whose it is, by which quota, and what part it plays.
//!
//! Must not know: how state is kept; numbers that stores want are given by the engine.

use tollgate_core::limit::Limit;

/// One state per key.
#[derive(Debug)]
pub struct Meter {
    /// The stable identity of its state across reloads: the limit's id or name, and the meter's part in it
    /// (`login`, `login#2` for a second window, `login/org` for a level, `login!block`, `login!seen`, `login!local`,
    /// `login!candidate`). Limits that share a bucket share the identity `@bucket`.
    pub identity: Box<str>,
    /// The number that the file asks for, if it does.
    pub number: Option<u16>,
    /// The part it plays.
    pub role: Role,
    /// The level's name, where the rule is a hierarchy.
    pub level: Option<Box<str>>,
    /// Every quota that it may be decided by, all sharing one state: the limit's own first, then tiers and overrides.
    pub quotas: Box<[Limit]>,
}

/// The part that a meter plays in its rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Role {
    /// It must admit.
    Main,
    /// A permissive bucket of this process that must admit too.
    Local,
    /// Spent while the key is blocked.
    Block,
    /// Spent for each value that was seen lately.
    Seen,
    /// Decided beside the others, never enforced.
    Candidate,
}

/// Which quota a request falls under.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chosen {
    /// One of the meter's quotas, by its index.
    Listed(usize),
    /// One that was computed for this request.
    Computed(Limit),
    /// None: this key is not limited.
    Unlimited,
}
