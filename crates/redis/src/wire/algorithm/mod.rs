//! The algorithms as the scripts know them: one file each, and the one place where this crate tells them apart.
//!
//! Everything that does not depend on the state is computed here, so the scripts multiply and divide as little as possible.
//! Must not know: keys, batches, how replies become answers.

mod bucket;
mod counter;
mod leases;
mod log;
mod window;

use tollgate_core::concurrency::LeaseId;
use tollgate_core::limit::{Op, Quota};

use super::bytes::Blob;
use super::observed_state::{ObservedState, ReplyReader};
use crate::script::Which;

/// An algorithm that has a script.
trait ScriptedAlgorithm {
    /// The script that decides batches of this algorithm only.
    const SCRIPT: Which;
    /// How many nanoseconds one step of a receipt's mark is. Scripts keep all instants in nanoseconds.
    const MARK_NANOS: u64 = 1;

    /// The numbers that the script needs, or `None` if the algorithm does not know the operation. The first byte is the
    /// algorithm, the second the operation's code.
    fn encode(&self, op: Op) -> Option<Blob>;

    /// The state that the script saw. `id` is the lease that was asked about, if one was.
    fn observe(&self, reader: &mut ReplyReader<'_>, id: LeaseId) -> Option<ObservedState>;
}

/// Asks the algorithm that a quota is of; `$otherwise` if it has no script.
macro_rules! each {
    ($quota:expr, $algorithm:ident => $answer:expr, $otherwise:expr) => {
        match $quota {
            Quota::TokenBucket($algorithm) => $answer,
            Quota::LeakyBucket($algorithm) => $answer,
            Quota::FixedWindow($algorithm) => $answer,
            Quota::SlidingCounter($algorithm) => $answer,
            Quota::SlidingLog($algorithm) => $answer,
            Quota::Concurrency($algorithm) => $answer,
            _ => $otherwise,
        }
    };
}

/// The blob for a limit and an operation; see [`Scripted::encode`].
pub(super) fn encode(quota: &Quota, op: Op) -> Option<Blob> {
    each!(quota, algorithm => algorithm.encode(op), None)
}

/// The state that the script saw; see [`Scripted::observe`].
pub(super) fn observe(
    quota: &Quota,
    reader: &mut ReplyReader<'_>,
    id: LeaseId,
) -> Option<ObservedState> {
    each!(quota, algorithm => algorithm.observe(reader, id), None)
}

/// The script that decides on this quota.
pub(super) fn script(quota: &Quota) -> Which {
    const fn of<A: ScriptedAlgorithm>(_: &A) -> Which {
        A::SCRIPT
    }
    each!(quota, algorithm => of(algorithm), Which::All)
}

/// How many nanoseconds one step of a receipt's mark is.
pub(super) fn mark_nanos(quota: &Quota) -> u64 {
    const fn of<A: ScriptedAlgorithm>(_: &A) -> u64 {
        A::MARK_NANOS
    }
    each!(quota, algorithm => of(algorithm), 1)
}
