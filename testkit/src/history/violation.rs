//! A promise that was not kept, and how it was found out.
//!
//! Must not know: how promises are checked.

use std::fmt;

/// A promise of ours that histories can disprove.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Promise {
    /// I-01: no window admits more than the burst, the refill and what the mode allows.
    Bound,
    /// I-02: what was admitted was charged, once.
    NoDoubleSpend,
    /// I-03: a client that keeps to its rate is not denied.
    NoFalseDenial,
    /// I-04: every question is answered in time, whatever the store does.
    Availability,
    /// I-05: the store decides again soon after it is back.
    Recovery,
    /// I-08: time that jumps mints nothing.
    Clock,
    /// I-11: a request is charged to all of its limits or to none.
    AllOrNothing,
    /// I-12: what is told fits together.
    Coherence,
    /// I-14: places held never exceed the limit, and lost ones come back.
    Conservation,
    /// I-15: every key ends.
    TimeToLive,
}

impl Promise {
    /// Its number.
    #[must_use]
    pub const fn id(self) -> &'static str {
        match self {
            Self::Bound => "I-01",
            Self::NoDoubleSpend => "I-02",
            Self::NoFalseDenial => "I-03",
            Self::Availability => "I-04",
            Self::Recovery => "I-05",
            Self::Clock => "I-08",
            Self::AllOrNothing => "I-11",
            Self::Coherence => "I-12",
            Self::Conservation => "I-14",
            Self::TimeToLive => "I-15",
        }
    }
}

/// Which promise was broken, on which key, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The promise.
    pub promise: Promise,
    /// Whose key; empty if it is not about one.
    pub key: String,
    /// What shows it.
    pub why: String,
}

impl Violation {
    pub(super) fn new(promise: Promise, key: &str, why: impl Into<String>) -> Self {
        Self {
            promise,
            key: key.to_owned(),
            why: why.into(),
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.promise.id())?;
        if !self.key.is_empty() {
            write!(f, " on {:?}", self.key)?;
        }
        write!(f, ": {}", self.why)
    }
}

impl std::error::Error for Violation {}
