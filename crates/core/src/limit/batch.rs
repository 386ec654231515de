//! Several limits decided together on states in hand: all are charged or none is.
//!
//! Must not know: keys, stores.

use alloc::vec::Vec;

use super::op::{Op, OpError};
use super::quota::Limit;
use super::state::State;
use crate::compose::BatchOutcome;
use crate::outcome::{Outcome, QuotaStatus, Receipt};
use crate::time::Timestamp;

/// One limit's part in a request, with the state in hand. A store's `Check` has the key of the state instead.
#[derive(Debug)]
pub struct StateCheck<'a> {
    /// The limit.
    pub limit: &'a Limit,
    /// The state of the request's key under it.
    pub state: &'a mut State,
    /// What is asked of it.
    pub op: Op,
}

/// What one limit answers as part of a request. A store's `Answer` says in a note what else there is to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitReply {
    /// What this limit says by itself.
    pub outcome: Outcome,
    /// Where it stands after the request, charged or not.
    pub status: QuotaStatus,
    /// What it was charged: nothing, unless all admitted.
    pub receipt: Receipt,
}

/// Decides on all checks and charges every one of them if all admit, otherwise none.
///
/// ```
/// use tollgate_core::limit::{Limit, Op, State, StateCheck, decide_all};
/// use tollgate_core::{Outcome, Rate, Timestamp, TokenBucket};
///
/// let limit = |n| Ok::<_, tollgate_core::InvalidQuota>(Limit::new(TokenBucket::at(Rate::per_second(n)).build()?));
/// let (user, everyone) = (limit(1)?, limit(100)?);
/// let (mut of_user, mut of_all) = (State::default(), State::default());
/// let now = Timestamp::from_secs(1);
/// let mut request = || {
///     let mut checks = [
///         StateCheck { limit: &everyone, state: &mut of_all, op: Op::Spend(1) },
///         StateCheck { limit: &user, state: &mut of_user, op: Op::Spend(1) },
///     ];
///     decide_all(&mut checks, now).unwrap()
/// };
/// assert_eq!(request().0.outcome(), Outcome::Allow);
/// let (outcome, replies) = request();
/// assert_eq!(outcome.binding(), Some(1));
/// assert_eq!(replies[0].status.remaining, 99, "what one refuses, the other is not charged for");
/// # Ok::<(), tollgate_core::InvalidQuota>(())
/// ```
///
/// # Errors
/// The first check that cannot be carried out at all, by its position; then nothing has changed.
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
            .map_err(|refused| (position, refused))?;
        outcome.add(transition.outcome);
        transitions.push(transition);
    }
    let replies = checks
        .iter_mut()
        .zip(transitions)
        .map(|(check, transition)| {
            // An edit without an admission is a correction, which is due whatever the others say.
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
