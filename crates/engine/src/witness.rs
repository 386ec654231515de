//! How a request is asked about, and who else is told what was seen on the way.
//!
//! A verdict keeps neither keys nor quotas: few callers want them, and it is made for all. Who does is told while they are
//! at hand. Must not know: what is done with them.

use tollgate_core::Nanos;

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

/// Somebody who wants to know whom each limit counted, and by which quota.
pub trait Witness: Sync {
    /// What was seen of the state at `position` of [`Verdict::limits`](crate::Verdict::limits).
    fn saw(&self, position: usize, seen: &Seen<'_>);
}

/// What is at hand while a limit is decided, and not kept.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Seen<'a> {
    /// The encoded parts of the key, empty where everybody is counted together. Keys are secrets: digest them before
    /// they go anywhere.
    pub key: &'a [u8],
    /// What the request costs here.
    pub cost: u64,
    /// The time in which the whole of the quota that decided is given. Zero where there is no such time: places are held
    /// as long as work takes, and months have no one length.
    pub window: Nanos,
    /// Where nothing remains of a bucket: time until there is one more. Zero for anything else.
    pub more_after: Nanos,
}
