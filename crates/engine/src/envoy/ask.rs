//! Carrying a plan out: its counters are charged round by round, and what the store says becomes the reply.
//!
//! No charge can deny, so it makes no difference that a round is charged as a whole. Must not know: how rules are found,
//! what replies mean.

use std::cell::Cell;

use tollgate_core::limit::Op as CoreOp;
use tollgate_core::{Status, Timestamp};
use tollgate_policy::envoy::{Charge, CounterKey, MAX_DESCRIPTORS, Plan, Reply};
use tollgate_store::{Answer, Check, ErrorKind, Key, Op, Ruled, StoreError};

use super::{EnvoyEngine, Loaded};
use crate::asks::{Asks, Counters};
use crate::store::StateStore;

/// Room that every thread keeps for keys.
type Keys = [CounterKey; MAX_DESCRIPTORS];

/// One charge of a round, ready to be asked.
#[derive(Clone, Copy)]
struct Ready {
    /// Which of the plan's charges it is.
    position: usize,
    ruled: Ruled,
    op: Op,
}

impl<S: StateStore> EnvoyEngine<S> {
    pub(super) async fn ask<'a, A: Asks>(
        &self,
        store: &A,
        loaded: &Loaded,
        plan: &Plan<'a>,
    ) -> Result<Reply<'a>, StoreError> {
        let mut statuses = [Answer::EMPTY.status; MAX_DESCRIPTORS];
        let (mut len, mut rounds) = (0, 0);
        for charge in plan.charges() {
            len += 1;
            rounds = rounds.max(u16::from(charge.round).saturating_add(1));
        }
        let mut keys = take_keys();
        for round in 0..rounds {
            let (keys, statuses) = (&mut *keys, &mut statuses);
            let round = (plan, round);
            match len {
                0..=1 => {
                    self.ask_round::<1, A>(store, loaded, round, keys, statuses)
                        .await?;
                }
                2..=4 => {
                    self.ask_round::<4, A>(store, loaded, round, keys, statuses)
                        .await?;
                }
                _ => {
                    self.ask_round::<MAX_DESCRIPTORS, A>(store, loaded, round, keys, statuses)
                        .await?;
                }
            }
        }
        OWN.set(Some(keys));
        // The time matters only for windows in which nothing was counted.
        let now: Timestamp = store.now();
        let statuses = statuses.get(..len).unwrap_or_default();
        plan.reply(statuses, now, self.modes()).ok_or_else(missing)
    }

    /// Charges the counters of one round, at most `N` and all different, and notes where they stand by the order of
    /// charges.
    async fn ask_round<const N: usize, A: Asks>(
        &self,
        store: &A,
        loaded: &Loaded,
        (plan, round): (&Plan<'_>, u16),
        keys: &mut Keys,
        statuses: &mut [Status],
    ) -> Result<(), StoreError> {
        let is_now = |(_, charge): &(usize, Charge)| u16::from(charge.round) == round;
        let mut asked = plan.charges().enumerate().filter(is_now);
        let ready = |(position, charge): (usize, Charge), key: &mut CounterKey| {
            plan.key(&charge, self.secret, key);
            let ruled = Ruled {
                id: loaded.id(charge.state)?,
                limit: charge.limit,
            };
            let op = op(charge.op)?;
            Some(Ready {
                position,
                ruled,
                op,
            })
        };
        let mut room = keys.iter_mut();
        let (Some(first), Some(key)) = (asked.next(), room.next()) else {
            return Ok(());
        };
        let first = ready(first, key).ok_or_else(missing)?;
        let mut batch = [first; N];
        let mut len = 1;
        for (charge, key) in asked.zip(room) {
            let place = batch.get_mut(len).ok_or_else(missing)?;
            *place = ready(charge, key).ok_or_else(missing)?;
            len += 1;
        }
        let batch = batch.get(..len).unwrap_or_default();
        charge::<N, A>(store, batch, keys, statuses).await
    }
}

async fn charge<const N: usize, A: Asks>(
    store: &A,
    batch: &[Ready],
    keys: &Keys,
    statuses: &mut [Status],
) -> Result<(), StoreError> {
    let mut checks: Option<[Check<'_>; N]> = None;
    for (index, (one, key)) in batch.iter().zip(keys).enumerate() {
        let check = Check {
            key: Key::of(key.as_bytes()).ok().ok_or_else(missing)?,
            ruled: &one.ruled,
            op: one.op,
        };
        let checks = checks.get_or_insert([check; N]);
        if let Some(place) = checks.get_mut(index) {
            *place = check;
        }
    }
    let checks = checks.ok_or_else(missing)?;
    let asked = checks.get(..batch.len()).unwrap_or_default();
    let mut answers = [Answer::EMPTY; N];
    let answers = answers.get_mut(..asked.len()).unwrap_or_default();
    let _none_can_deny = store.ask(asked, &Counters, answers).await?;
    for (one, answer) in batch.iter().zip(&*answers) {
        if let Some(status) = statuses.get_mut(one.position) {
            *status = answer.status;
        }
    }
    Ok(())
}

/// What the store is asked, where the plan says it in core's words.
const fn op(op: CoreOp) -> Option<Op> {
    match op {
        CoreOp::ChargeAlways(hits) => Some(Op::ChargeAlways(hits)),
        CoreOp::Credit(hits) => Some(Op::Credit(hits)),
        _ => None,
    }
}

fn missing() -> StoreError {
    StoreError::new(
        ErrorKind::BadRequest,
        "a counter has no number, no key or no answer",
    )
}

thread_local! {
    static OWN: Cell<Option<Box<Keys>>> = const { Cell::new(None) };
}

/// This thread's room for keys. A decision that begins before another has ended gets its own.
fn take_keys() -> Box<Keys> {
    let new = || Box::new(std::array::from_fn(|_| CounterKey::new()));
    OWN.take().unwrap_or_else(new)
}
