//! Telling the store what was spent and learning where the fleet stands, many keys in one call.
//!
//! Must not know: how accounts decide, when a round is due.

use tollgate_core::Timestamp;
use tollgate_core::limit::Limit;
use tollgate_store::contract::MAX_CHECKS;
use tollgate_store::{Answer, Check, Key, Op, RemoteStore, Ruled, StoreError};

use super::Reconciled;
use super::account::merged;
use crate::fleet::keyed::Who;

/// What a round did.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Round {
    /// Keys that the store was told of.
    pub keys: usize,
    /// Calls that were made.
    pub calls: usize,
    /// Calls of them that were not answered.
    pub failed: usize,
    /// Why the last of those was not.
    pub error: Option<StoreError>,
}

/// One account's part of a call.
struct Due {
    who: Who,
    ruled: Ruled,
    key: Box<[u8]>,
    place: Option<Box<[u8]>>,
    units: u64,
}

impl Reconciled {
    /// One round: every key that is due is told and asked about, [`MAX_CHECKS`] of them in a call. To be called at least
    /// ten times in the shortest interval that a limit has; what is not due costs a look. `now` reads the clock that
    /// [`spend`](Self::spend) is told the time by.
    pub async fn reconcile(
        &self,
        remote: &dyn RemoteStore,
        now: impl Fn() -> Timestamp + Send + Sync,
    ) -> Round {
        let mut round = Round::default();
        for part in 0..self.table.parts() {
            let due = self.due(part, now());
            for some in due.chunks(MAX_CHECKS) {
                round.keys = round.keys.saturating_add(some.len());
                round.calls = round.calls.saturating_add(1);
                if let Err(error) = self.tell(remote, some, &now).await {
                    round.failed = round.failed.saturating_add(1);
                    round.error = Some(error);
                }
            }
        }
        round
    }

    /// Takes what is to be told of one part of the table, and forgets what nobody uses.
    fn due(&self, part: usize, now: Timestamp) -> Vec<Due> {
        let mut due = Vec::new();
        let Some(mut shard) = self.table.at(part) else {
            return due;
        };
        shard.entries.retain(|_, account| !account.is_idle(now));
        for (who, account) in &mut shard.entries {
            if !account.is_due(now) {
                continue;
            }
            let limit = merged(&account.ruled.limit, account.interval, self.nodes());
            due.push(Due {
                who: *who,
                ruled: Ruled {
                    limit: limit.unwrap_or(account.ruled.limit),
                    ..account.ruled
                },
                key: account.key.clone(),
                place: account.place.clone(),
                units: account.tell(now),
            });
        }
        due
    }

    async fn tell(
        &self,
        remote: &dyn RemoteStore,
        some: &[Due],
        now: impl Fn() -> Timestamp,
    ) -> Result<(), StoreError> {
        let unheard = Unheard {
            reconciled: self,
            some,
        };
        let mut checks = Vec::with_capacity(some.len());
        let mut places = Vec::with_capacity(some.len());
        for due in some {
            // It was a key when it came in.
            let Ok(key) = Key::of(&due.key) else { continue };
            places.push(due.place.as_deref().and_then(|place| Key::of(place).ok()));
            checks.push(Check {
                key,
                ruled: &due.ruled,
                op: Op::ChargeAlways(due.units),
            });
        }
        let mut answers = vec![Answer::EMPTY; checks.len()];
        let _never_denied = remote.decide(&places, &checks, &mut answers).await?;
        unheard.heard();
        let now = now();
        for (due, answer) in some.iter().zip(&answers) {
            self.heard(due.who, now, answer, &due.ruled.limit);
        }
        Ok(())
    }

    fn heard(&self, who: Who, now: Timestamp, answer: &Answer, merged: &Limit) {
        if let Some(mut shard) = self.table.shard(who)
            && let Some(account) = shard.entries.get_mut(&who)
        {
            account.heard(now, &answer.status, merged);
        }
    }
}

/// What is being told. If it is dropped, because the call failed or nobody waits for it any more, it is told again.
struct Unheard<'a> {
    reconciled: &'a Reconciled,
    some: &'a [Due],
}

impl Unheard<'_> {
    fn heard(mut self) {
        self.some = &[];
    }
}

impl Drop for Unheard<'_> {
    fn drop(&mut self) {
        for due in self.some {
            if let Some(mut shard) = self.reconciled.table.shard(due.who)
                && let Some(account) = shard.entries.get_mut(&due.who)
            {
                account.unheard();
            }
        }
    }
}
