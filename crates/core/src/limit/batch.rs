//! Decides on several limits whose states are at hand: all are charged or none is.
//!
//! Must not know: keys, stores.

use alloc::vec::Vec;

use super::op::{Op, OpError};
use super::quota::Limit;
use super::state::State;
use crate::compose::BatchOutcome;
use crate::outcome::{Outcome, QuotaStatus, Receipt};
use crate::time::Timestamp;

/// One limit of a request, with its state. A store's `QuotaCheck` has the key of the state instead.
#[derive(Debug)]
pub struct StateCheck<'a> {
    /// The limit.
    pub limit: &'a Limit,
    /// The state of the request's key under it.
    pub state: &'a mut State,
    /// The operation.
    pub op: Op,
}

/// The reply of one limit of a request. A store's `StoreReply` has a note in addition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitReply {
    /// The outcome of this limit alone.
    pub outcome: Outcome,
    /// The status of the limit after the request, charged or not.
    pub status: QuotaStatus,
    /// What was charged: nothing, unless all limits admit.
    pub receipt: Receipt,
}

/// Decides on all checks and charges every one of them if all admit, otherwise none.
///
/// ```
/// use tollgate_core::limit::{Limit, Op, State, StateCheck, decide_all};
/// use tollgate_core::{Outcome, Rate, Timestamp, TokenBucket};
///
/// let limit = |n| Ok::<_, tollgate_core::InvalidQuota>(Limit::new(TokenBucket::builder(Rate::per_second(n)).build()?));
/// let (user, everyone) = (limit(1)?, limit(100)?);
/// let (mut user_state, mut everyone_state) = (State::default(), State::default());
/// let now = Timestamp::from_secs(1);
/// let mut request = || {
///     let mut checks = [
///         StateCheck { limit: &everyone, state: &mut everyone_state, op: Op::Spend(1) },
///         StateCheck { limit: &user, state: &mut user_state, op: Op::Spend(1) },
///     ];
///     decide_all(&mut checks, now).unwrap()
/// };
/// assert_eq!(request().0.outcome(), Outcome::Allow);
/// let (outcome, replies) = request();
/// assert_eq!(outcome.binding(), Some(1));
/// assert_eq!(replies[0].status.remaining, 99, "a denied request charges no limit");
/// # Ok::<(), tollgate_core::InvalidQuota>(())
/// ```
///
/// # Errors
/// The position of the first check that cannot be carried out, and why. Then nothing has changed.
pub fn decide_all(
    checks: &mut [StateCheck<'_>],
    now: Timestamp,
) -> Result<(BatchOutcome, Vec<LimitReply>), (usize, OpError)> {
    let mut outcome = BatchOutcome::default();
    let mut transitions = Vec::with_capacity(checks.len());
    for (position, check) in checks.iter().enumerate() {
        let transition = check
            .limit
            .decide(check.state, now, check.op)
            .map_err(|error| (position, error))?;
        outcome.add(transition.outcome);
        transitions.push(transition);
    }
    let replies = checks
        .iter_mut()
        .zip(transitions)
        .map(|(check, transition)| {
            // An edit without an admission is a correction, which is stored whatever the other limits decide.
            let is_stored = outcome.is_admitted() || !transition.outcome.is_admitted();
            if let Some(edit) = transition.next.filter(|_| is_stored) {
                check.state.apply(edit);
            }
            LimitReply {
                outcome: transition.outcome,
                status: check.limit.status(check.state, now),
                receipt: if is_stored {
                    transition.receipt
                } else {
                    Receipt::default()
                },
            }
        })
        .collect();
    Ok((outcome, replies))
}
