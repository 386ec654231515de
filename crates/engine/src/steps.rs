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

/// Runs a procedure on a store that answers at once. Inlined: a decision then stays where the caller has it.
#[inline(always)]
pub fn run_local<P: StoreSteps, S: Store + ?Sized>(steps: &mut P, store: &S) {
    loop {
        let len = steps.batch_len();
        if len == 0 {
            return;
        }
        let mut replies = steps.take_replies();
        let outcome = match len {
            // The most common batch needs no array.
            1 => store.decide(steps.check(0).as_slice(), &mut replies),
            2 => decide::<2, P, S>(steps, store, &mut replies),
            3..=4 => decide::<4, P, S>(steps, store, &mut replies),
            5..=6 => decide::<6, P, S>(steps, store, &mut replies),
            7..=8 => decide::<8, P, S>(steps, store, &mut replies),
            9..=32 => decide::<32, P, S>(steps, store, &mut replies),
            _ => decide::<MAX_CHECKS, P, S>(steps, store, &mut replies),
        };
        steps.resume(replies, outcome);
    }
}

/// Compiled for a few batch sizes: a buffer for the largest batch would be cleared in every decision.
fn decide<const N: usize, P: StoreSteps, S: Store + ?Sized>(
    steps: &P,
    store: &S,
    replies: &mut [StoreReply],
) -> Result<BatchOutcome, StoreError> {
    let mut batch = ArrayVec::<QuotaCheck<'_>, N>::new();
    fill(steps, replies.len(), &mut batch);
    store.decide(&batch, replies)
}

/// The checks of the next batch, at most `N`.
pub fn checks<const N: usize, P: StoreSteps>(steps: &P) -> ArrayVec<QuotaCheck<'_>, N> {
    let mut batch = ArrayVec::new();
    fill(steps, steps.batch_len(), &mut batch);
    batch
}

/// Fills the batch in place: an array that is returned may be copied as a whole.
#[inline(always)]
fn fill<'a, const N: usize, P: StoreSteps>(
    steps: &'a P,
    len: usize,
    batch: &mut ArrayVec<QuotaCheck<'a>, N>,
) {
    for position in 0..len.min(N) {
        if let Some(check) = steps.check(position) {
            batch.push(check);
        }
    }
}
