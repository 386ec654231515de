//! How a request is asked about, and who else is told of its keys.
//!
//! A verdict does not keep keys: they are long, and few callers want them. Who does is told while they are at hand.
//! Must not know: what is done with them.

/// What is asked about a request beside what is known of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// What the caller says it costs, whatever the rules say.
    pub cost: Option<u64>,
    /// What the answer is for.
    pub purpose: Purpose,
}

impl Terms {
    /// These.
    #[must_use]
    pub const fn of(purpose: Purpose, cost: Option<u64>) -> Self {
        Self { cost, purpose }
    }
}

/// What an answer is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Purpose {
    /// The request is made: it is charged if it is admitted.
    Charge,
    /// The same, at an estimate that is settled later.
    Estimate,
    /// Somebody wants to know: nothing is charged, punished or counted.
    Look,
    /// Units are given back that nobody can show a ticket for.
    GiveBack,
}

/// Somebody who wants to know whom each limit counted.
pub trait Witness {
    /// The state at `position` of [`Verdict::limits`](crate::Verdict::limits) is that of `key`: the encoded parts of the
    /// key, empty where everybody is counted together. Keys are secrets: digest them before they go anywhere.
    fn keyed(&self, position: usize, key: &[u8]);
}
