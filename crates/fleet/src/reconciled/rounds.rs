//! Telling the store what was spent and learning where the fleet stands, many keys in one call.
//!
//! Must not know: how accounts decide, when a round is due.

use std::sync::atomic::Ordering;

use tollgate_core::limit::Limit;
use tollgate_core::{Nanos, Timestamp};
use tollgate_store::contract::MAX_CHECKS;
use tollgate_store::{Op, QuotaCheck, RemoteStore, Ruled, StoreError, StoreKey, StoreReply};

use super::Reconciled;
use super::account::merged;
use crate::join_all::join_all;
use crate::keyed::Who;

/// Rounds that come sooner than this after another look at nothing.
const LOOK: Nanos = Nanos::from_millis(5);
/// How many calls are under way together.
const TOGETHER: usize = 16;
/// A store of more parts than this is a cluster: keys of one part are rarely of one slot, and a batch over several slots is
/// asked one after the other.
const MANY: usize = 16;

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
    /// Which part of the store has it.
    part: usize,
}

impl Due {
    fn part_of(&self, remote: &dyn RemoteStore) -> usize {
        let place = self
            .place
            .as_deref()
            .and_then(|place| StoreKey::of(place).ok());
        let key = StoreKey::of(&self.key);
        key.map_or(0, |key| remote.part_of(&key, place.as_ref()))
    }
}

impl Reconciled {
    /// One round: every key that is due is told and asked about, [`MAX_CHECKS`] of them in a call where they lie together. To be called at least
    /// ten times in the shortest interval that a limit has; what is not due costs a look. `now` reads the clock that
    /// [`spend`](Self::spend) is told the time by.
    pub async fn reconcile(
        &self,
        remote: &dyn RemoteStore,
        now: impl Fn() -> Timestamp + Send + Sync,
    ) -> Round {
        let since = now().since(Timestamp::from_nanos(
            self.looked_at.load(Ordering::Relaxed),
        ));
        if since < LOOK {
            return Round::default();
        }
        self.looked_at.store(now().as_nanos(), Ordering::Relaxed);
        self.round(remote, now, false).await
    }

    /// Tells whatever has not been told, at the end of a process.
    pub async fn tell_all(
        &self,
        remote: &dyn RemoteStore,
        now: impl Fn() -> Timestamp + Send + Sync,
    ) -> Round {
        self.round(remote, now, true).await
    }

    async fn round(
        &self,
        remote: &dyn RemoteStore,
        now: impl Fn() -> Timestamp + Send + Sync,
        is_last: bool,
    ) -> Round {
        let mut due: Vec<Due> = Vec::new();
        for part in 0..self.table.parts() {
            due.extend(self.due(part, now(), is_last));
        }
        let parts = remote.parts();
        for one in due.iter_mut().filter(|_| parts > 1) {
            one.part = one.part_of(remote);
        }
        due.sort_by_key(|one| one.part);
        let at_once = if parts > MANY { 1 } else { MAX_CHECKS };
        let of_one_part = due.chunk_by(|one, other| one.part == other.part);
        let mut calls = of_one_part.flat_map(|some| some.chunks(at_once));
        let mut round = Round {
            keys: due.len(),
            ..Round::default()
        };
        loop {
            let some = calls.by_ref().take(TOGETHER);
            let some: Vec<_> = some
                .map(|some| Box::pin(self.tell(remote, some, &now)))
                .collect();
            if some.is_empty() {
                return round;
            }
            round.calls = round.calls.saturating_add(some.len());
            for error in join_all(some).await.into_iter().filter_map(Result::err) {
                round.failed = round.failed.saturating_add(1);
                round.error = Some(error);
            }
        }
    }

    /// Takes what is to be told of one part of the table, and forgets what nobody uses.
    fn due(&self, part: usize, now: Timestamp, is_last: bool) -> Vec<Due> {
        let mut due = Vec::new();
        let Some(mut shard) = self.table.at(part) else {
            return due;
        };
        shard.entries.retain(|_, account| !account.is_idle(now));
        for (who, account) in &mut shard.entries {
            let is_due = match is_last {
                true => account.has_news(),
                false => account.is_due(now),
            };
            if !is_due {
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
                part: 0,
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
            let Ok(key) = StoreKey::of(&due.key) else {
                continue;
            };
            places.push(
                due.place
                    .as_deref()
                    .and_then(|place| StoreKey::of(place).ok()),
            );
            checks.push(QuotaCheck {
                key,
                ruled: &due.ruled,
                op: Op::ChargeAlways(due.units),
            });
        }
        let mut answers = vec![StoreReply::EMPTY; checks.len()];
        let _never_denied = remote.decide(&places, &checks, &mut answers).await?;
        unheard.heard();
        let now = now();
        for (due, answer) in some.iter().zip(&answers) {
            self.heard(due.who, now, answer, &due.ruled.limit);
        }
        Ok(())
    }

    fn heard(&self, who: Who, now: Timestamp, answer: &StoreReply, merged: &Limit) {
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
