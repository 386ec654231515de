//! What was admitted without the store, to be told when it is back: sums, one for each key of each limit.
//!
//! Bounded; what there is no room for is counted as lost. What may have been charged by a call whose answer was lost is not
//! noted: it would be charged twice. Must not know: who was asked instead.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tollgate_core::compose::Verdict;
use tollgate_store::{Answer, Check, Key, LimitId, Op, Ruled, StoreError};

use super::Fleet;

/// The most that is told in one round, so that a store that is just back is not overrun.
const AT_ONCE: usize = 4_096;

/// What was spent, by limit and key.
type Sums = HashMap<(LimitId, Box<[u8]>), Spent>;

/// Sums of what was spent.
#[derive(Debug)]
pub(super) struct Replay {
    spent: Mutex<Sums>,
    most: usize,
    lost: AtomicU64,
}

/// What was spent by one key of one limit.
#[derive(Clone, Debug)]
struct Spent {
    part: usize,
    place: Option<Box<[u8]>>,
    ruled: Ruled,
    cost: u64,
}

impl Replay {
    pub(super) fn for_keys(most: usize) -> Self {
        Self {
            spent: Mutex::default(),
            most,
            lost: AtomicU64::new(0),
        }
    }

    /// Notes that a key has spent something that its part of the store does not know of.
    pub(super) fn note(&self, part: usize, check: &Check<'_>, place: Option<&Key<'_>>, cost: u64) {
        let (Some(key), true) = (check.key.single(), cost > 0) else {
            return;
        };
        let mut spent = self.lock();
        let is_full = spent.len() >= self.most;
        // A lookup by a borrowed pair is not to be had, and a key is short.
        let who = (check.ruled.id, Box::from(key));
        match spent.get_mut(&who) {
            Some(known) => {
                known.cost = known.cost.saturating_add(cost);
                known.ruled = *check.ruled;
            }
            None if is_full => {
                self.lost.fetch_add(1, Ordering::Relaxed);
            }
            None => {
                let place = place.and_then(Key::single).map(Box::from);
                let ruled = *check.ruled;
                spent.insert(
                    who,
                    Spent {
                        part,
                        place,
                        ruled,
                        cost,
                    },
                );
            }
        }
    }

    pub(super) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Takes some of what one part has to be told.
    fn take(&self, part: usize) -> Vec<(Box<[u8]>, Spent)> {
        let mut spent = self.lock();
        if spent.is_empty() {
            return Vec::new();
        }
        let mut taken = 0;
        let is_due = |_: &(LimitId, Box<[u8]>), one: &mut Spent| {
            let is_due = one.part == part && taken < AT_ONCE;
            taken += usize::from(is_due);
            is_due
        };
        let due = spent.extract_if(is_due);
        due.map(|((_, key), one)| (key, one)).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Sums> {
        // Entries are written whole.
        self.spent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Fleet {
    /// Tells a part of the store what was admitted without it. On an error the rest is kept for the next time, except for
    /// what the store may have heard.
    pub(super) async fn tell_what_was_spent(&self, part: usize) -> Result<(), StoreError> {
        let mut due = self.replay.take(part).into_iter();
        while let Some((key, one)) = due.next() {
            let told = self.tell(&key, &one).await;
            let Err(error) = told else {
                self.counters.count_replayed();
                continue;
            };
            let heard = error.may_have_charged() || error.is_callers_fault();
            let unheard = (!heard).then_some((key, one));
            for (key, one) in unheard.into_iter().chain(due) {
                if let Ok(key) = Key::of(&key) {
                    let check = Check {
                        key,
                        ruled: &one.ruled,
                        op: Op::ChargeAlways(one.cost),
                    };
                    let place = one.place.as_deref().and_then(|place| Key::of(place).ok());
                    self.replay.note(part, &check, place.as_ref(), one.cost);
                }
            }
            return Err(error);
        }
        Ok(())
    }

    async fn tell(&self, key: &[u8], one: &Spent) -> Result<Verdict, StoreError> {
        let Ok(key) = Key::of(key) else {
            return Ok(Verdict::default());
        };
        let checks = [Check {
            key,
            ruled: &one.ruled,
            op: Op::ChargeAlways(one.cost),
        }];
        let places = [one.place.as_deref().and_then(|place| Key::of(place).ok())];
        let mut answers = [Answer::EMPTY];
        self.remote.decide(&places, &checks, &mut answers).await
    }
}
