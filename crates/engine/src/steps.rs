//! Procedures that ask a store in steps, and the loop that runs them on an in-memory store.
//!
//! A procedure does no IO: it provides the next checks and takes the replies. A driver passes them between procedure
//! and store. [`run_local`] is the driver for memory. The fleet has an asynchronous driver; tests and simulations have
//! their own. Must not know: what is asked and why, how a fleet answers.

use arrayvec::ArrayVec;
use tollgate_core::compose::BatchOutcome;
use tollgate_store::contract::MAX_CHECKS;
use tollgate_store::{QuotaCheck, Store, StoreError, StoreReply};

use crate::sharing::Sharing;

/// A procedure that asks a store in steps.
///
/// A driver repeats: read the checks, let a store decide them as one batch, call [`resume`](Self::resume); until
/// [`batch_len`](Self::batch_len) is zero.
pub trait StoreSteps {
    /// The number of checks in the next batch. Zero: the procedure is done.
    fn batch_len(&self) -> usize;

    /// One check of the batch.
    fn check(&self, position: usize) -> Option<QuotaCheck<'_>>;

    /// How a fleet shares the state of this check.
    fn sharing(&self, position: usize) -> Sharing<'_>;

    /// A buffer for the replies, one for each check.
    fn take_replies(&mut self) -> Vec<StoreReply>;

    /// Continues with the store's replies.
    fn resume(&mut self, replies: Vec<StoreReply>, outcome: Result<BatchOutcome, StoreError>);
}

/// Runs a procedure on a store that answers at once.
pub fn run_local<P: StoreSteps, S: Store + ?Sized>(steps: &mut P, store: &S) {
    loop {
        match steps.batch_len() {
            0 => return,
            1 => decide_batch::<1, P, S>(steps, store),
            2 => decide_batch::<2, P, S>(steps, store),
            3..=4 => decide_batch::<4, P, S>(steps, store),
            5..=8 => decide_batch::<8, P, S>(steps, store),
            9..=32 => decide_batch::<32, P, S>(steps, store),
            _ => decide_batch::<MAX_CHECKS, P, S>(steps, store),
        }
    }
}

/// Compiled for a few batch sizes: a buffer for the largest batch would be cleared in every decision.
fn decide_batch<const N: usize, P: StoreSteps, S: Store + ?Sized>(steps: &mut P, store: &S) {
    let mut replies = steps.take_replies();
    let outcome = store.decide(&checks::<N, P>(steps), &mut replies);
    steps.resume(replies, outcome);
}

/// The checks of the next batch, at most `N`.
pub fn checks<const N: usize, P: StoreSteps>(steps: &P) -> ArrayVec<QuotaCheck<'_>, N> {
    let positions = 0..steps.batch_len().min(N);
    positions.filter_map(|at| steps.check(at)).collect()
}
