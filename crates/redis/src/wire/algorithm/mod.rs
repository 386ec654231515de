//! How each algorithm is encoded for its script, one file each; the only place in this crate that distinguishes
//! algorithms.
//!
//! Values that do not depend on the state are computed here, so that the scripts multiply and divide as little as
//! possible. Must not know: keys, batches, how replies are decoded.

mod bucket;
mod counter;
mod leases;
mod log;
mod window;

use tollgate_core::concurrency::LeaseId;
use tollgate_core::limit::{Op, Quota};

use super::bytes::Blob;
use super::observed_state::{ObservedState, ReplyReader};
use crate::script::ScriptKind;

/// An algorithm with a script.
trait ScriptedAlgorithm {
    /// The script for batches of this algorithm only.
    const SCRIPT: ScriptKind;
    /// Nanoseconds per unit of a receipt's mark. Scripts store all instants in nanoseconds.
    const MARK_NANOS: u64 = 1;

    /// The script's arguments, or `None` if the algorithm does not support the operation. The first byte is the
    /// algorithm, the second the operation's code.
    fn encode(&self, op: Op) -> Option<Blob>;

    /// Reads the state that the script saw. `id` is the lease that the operation is about, if any.
    fn observe(&self, reader: &mut ReplyReader<'_>, id: LeaseId) -> Option<ObservedState>;
}

/// Calls the quota's algorithm; `$otherwise` if it has no script.
macro_rules! each {
    ($quota:expr, $algorithm:ident => $answer:expr, $otherwise:expr) => {
        match $quota {
            Quota::TokenBucket($algorithm) => $answer,
            Quota::LeakyBucket($algorithm) => $answer,
            Quota::CustomBucket($algorithm) => $answer,
            Quota::FixedWindow($algorithm) => $answer,
            Quota::SlidingCounter($algorithm) => $answer,
            Quota::SlidingLog($algorithm) => $answer,
            Quota::Concurrency($algorithm) => $answer,
            _ => $otherwise,
        }
    };
}

/// The arguments for a limit and an operation; see [`ScriptedAlgorithm::encode`].
pub(super) fn encode(quota: &Quota, op: Op) -> Option<Blob> {
    each!(quota, algorithm => algorithm.encode(op), None)
}

/// The state that the script saw; see [`ScriptedAlgorithm::observe`].
pub(super) fn observe(
    quota: &Quota,
    reader: &mut ReplyReader<'_>,
    id: LeaseId,
) -> Option<ObservedState> {
    each!(quota, algorithm => algorithm.observe(reader, id), None)
}

/// The script for this quota.
pub(super) fn script(quota: &Quota) -> ScriptKind {
    const fn of<A: ScriptedAlgorithm>(_: &A) -> ScriptKind {
        A::SCRIPT
    }
    each!(quota, algorithm => of(algorithm), ScriptKind::All)
}

/// Nanoseconds per unit of a receipt's mark.
pub(super) fn mark_nanos(quota: &Quota) -> u64 {
    const fn of<A: ScriptedAlgorithm>(_: &A) -> u64 {
        A::MARK_NANOS
    }
    each!(quota, algorithm => of(algorithm), 1)
}
