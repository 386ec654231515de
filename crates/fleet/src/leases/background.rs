//! What is done for slices while no request waits: more of them before they are used up, and back with what nobody uses.
//!
//! Must not know: when it is called, how slices are accounted for.

use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, PoisonError};

use tollgate_core::{Nanos, Timestamp};
use tollgate_store::{Lender, Ruled, StoreError, StoreKey};

use super::LocalLeases;
use super::entry::{Entry, Planned};
use super::errands::Landing;
use crate::join_all::join_all;
use crate::keyed::Who;

/// The most keys that wait for another slice at once. Those beyond are served when a request finds nothing.
const QUEUED: usize = 4_096;
/// The most errands of one round, and how many of them are under way together.
const ERRANDS: usize = 512;
const TOGETHER: usize = 32;
/// The whole table is looked through in this time, a part in each round, however often rounds are.
const SWEEP: Nanos = Nanos::from_millis(400);
/// How often the end looks for slices that arrived meanwhile.
const LAST_ROUNDS: usize = 3;

/// What a round did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Tended {
    /// Errands that were run.
    pub errands: usize,
    /// Errands of them that were not answered.
    pub failed: usize,
}

/// An errand that no request waits for.
struct Chore<'a> {
    landing: Landing<'a>,
    ruled: Ruled,
    key: Arc<[u8]>,
    place: Option<Arc<[u8]>>,
}

impl LocalLeases {
    /// Waits until some key needs another slice soon.
    pub async fn wanted(&self) {
        self.wanted.notified().await;
    }

    /// One round: slices for the keys that need them soon, and reports and returns where they are due. To be called whenever
    /// something is [`wanted`](Self::wanted), and every 50 ms or so besides.
    pub async fn tend(
        &self,
        lender: &dyn Lender,
        now: impl Fn() -> Timestamp + Send + Sync,
    ) -> Tended {
        let mut chores = self.refills(now());
        for index in self.due_parts(now()) {
            self.sweep(index, now(), false, &mut chores);
        }
        run(chores, lender).await
    }

    /// Gives everything back, and lends itself nothing more: from now on requests are decided on by the lender, one by one. For
    /// the end of a process, after the last request if it can be.
    pub async fn give_all_back(
        &self,
        lender: &dyn Lender,
        now: impl Fn() -> Timestamp + Send + Sync,
    ) -> Tended {
        self.is_closing.store(true, Ordering::Relaxed);
        let mut all = Tended::default();
        for _ in 0..LAST_ROUNDS {
            for index in 0..self.table.parts() {
                let mut chores = Vec::new();
                self.sweep(index, now(), true, &mut chores);
                let tended = run(chores, lender).await;
                all.errands = all.errands.saturating_add(tended.errands);
                all.failed = all.failed.saturating_add(tended.failed);
            }
        }
        all
    }

    /// The parts of the table that are to be looked through, as many as the time since the last round says.
    fn due_parts(&self, now: Timestamp) -> impl Iterator<Item = usize> + use<> {
        let parts = self.table.parts().max(1);
        let each = SWEEP.as_nanos() / u64::try_from(parts).unwrap_or(u64::MAX).max(1);
        let last = self.swept_at.load(Ordering::Relaxed);
        let due = now.as_nanos().saturating_sub(last) / each.max(1);
        let due = usize::try_from(due).unwrap_or(parts).min(parts);
        if due > 0 {
            self.swept_at.store(now.as_nanos(), Ordering::Relaxed);
        }
        let from = self.swept.fetch_add(due, Ordering::Relaxed);
        (0..due).map(move |index| from.wrapping_add(index) % parts)
    }

    /// Takes note that a key needs another slice. Whether it will be looked at.
    pub(super) fn queue(&self, who: Who) -> bool {
        let mut queue = self.queued();
        if queue.len() >= QUEUED {
            return false;
        }
        queue.push(who);
        self.wanted.notify_one();
        true
    }

    fn queued(&self) -> MutexGuard<'_, Vec<Who>> {
        // It is a list of numbers, and whole at any time.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn refills(&self, now: Timestamp) -> Vec<Chore<'_>> {
        let queued: Vec<Who> = {
            let mut queue = self.queued();
            let rest = queue.len().saturating_sub(ERRANDS);
            queue.drain(rest..).collect()
        };
        let mut chores = Vec::new();
        for who in queued {
            let Some(mut shard) = self.table.shard(who) else {
                continue;
            };
            let Some(entry) = shard.entries.get_mut(&who) else {
                continue;
            };
            entry.is_queued = false;
            let is_used = entry.is_used(&self.terms, now);
            if entry.wants_more(now) && is_used && !self.is_closing() {
                let wanted = (None, self.loan());
                let (terms, nodes) = (&self.terms, self.nodes());
                let planned = entry.plan(terms, nodes, now, wanted, || self.number());
                chores.push(self.chore(who, entry, planned));
                shard.counted.errands = shard.counted.errands.saturating_add(1);
            }
        }
        chores
    }

    /// Looks through a part of the table.
    fn sweep<'a>(
        &'a self,
        index: usize,
        now: Timestamp,
        is_end: bool,
        chores: &mut Vec<Chore<'a>>,
    ) {
        let Some(mut shard) = self.table.at(index) else {
            return;
        };
        let shard = &mut *shard;
        let mut errands = 0_u64;
        for (who, entry) in &mut shard.entries {
            if entry.flight.is_some() {
                continue;
            }
            if is_end {
                entry.finish_all();
            } else {
                entry.tidy(&self.terms, now);
            }
            let is_due = match is_end {
                true => entry.has_slices(),
                false => chores.len() < ERRANDS && entry.has_news(&self.terms, now),
            };
            if is_due {
                let planned = entry.tell(now, || self.number());
                chores.push(self.chore(*who, entry, planned));
                errands = errands.saturating_add(1);
            }
        }
        let terms = &self.terms;
        shard.entries.retain(|_, entry| !entry.is_idle(terms, now));
        shard.counted.errands = shard.counted.errands.saturating_add(errands);
    }

    fn chore<'a>(&'a self, who: Who, entry: &mut Entry, planned: Planned) -> Chore<'a> {
        let flight = entry.take_off();
        Chore {
            landing: Landing::new(self, who, planned, flight),
            ruled: entry.ruled,
            key: Arc::clone(&entry.key),
            place: entry.place.clone(),
        }
    }
}

impl Chore<'_> {
    async fn run(self, lender: &dyn Lender) -> Result<(), StoreError> {
        let key = StoreKey::of(&self.key);
        let place = self.place.as_deref().map(StoreKey::of).transpose();
        // They were checked when they were first asked about.
        let (Ok(key), Ok(place)) = (key, place) else {
            return Ok(());
        };
        let errand = self.landing.errand();
        let granted = lender.lend(place, key, &self.ruled, errand).await;
        self.landing.land(granted, |_| ())
    }
}

/// Runs chores, some at a time.
async fn run(chores: Vec<Chore<'_>>, lender: &dyn Lender) -> Tended {
    let mut tended = Tended::default();
    let mut chores = chores.into_iter();
    loop {
        let some = chores.by_ref().take(TOGETHER);
        let some: Vec<_> = some.map(|chore| Box::pin(chore.run(lender))).collect();
        if some.is_empty() {
            return tended;
        }
        tended.errands = tended.errands.saturating_add(some.len());
        let failed = join_all(some)
            .await
            .into_iter()
            .filter(Result::is_err)
            .count();
        tended.failed = tended.failed.saturating_add(failed);
    }
}
