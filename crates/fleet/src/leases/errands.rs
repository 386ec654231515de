//! Borrowing for a request: one errand per key at a time, and what it brings is for all who wait.
//!
//! Must not know: how slices are accounted for, what is done in the background.

use std::sync::Arc;

use tollgate_core::quota_lease::{LeaseGrant, LeaseRequest};
use tollgate_core::{Nanos, Outcome, Receipt, Timestamp};
use tollgate_store::{ErrorKind, Lender, Note, QuotaCheck, StoreError, StoreKey, StoreReply};

use super::entry::{Entry, Flight, Planned, Said, lendable};
use super::{LocalLeases, Taken, asked};
use crate::keyed::Who;

/// How often a request waits for errands of others that bring too little before it is decided on by itself.
const ROUNDS: usize = 3;

/// What a request has to do that found nothing here.
enum Turn<'a> {
    /// Something is here after all.
    Said(Taken),
    /// Somebody has gone.
    Wait(Arc<Flight>),
    /// Go.
    Go(Box<Landing<'a>>),
    /// There is no room to remember anything in.
    Crowded,
}

/// An errand under way. If it is dropped before it has landed, because nobody wants the answer any more, what it may have
/// borrowed is given back later, and those who wait go themselves.
pub(super) struct Landing<'a> {
    leases: &'a LocalLeases,
    who: Who,
    pub(super) planned: Planned,
    flight: Arc<Flight>,
    has_landed: bool,
}

impl LocalLeases {
    /// Borrows what a request needs, or waits for somebody who does, and answers. The wait is the lender's deadline, or a few
    /// of them if others take what was brought. `now` reads the clock that [`spend`](Self::spend) is told the time by.
    ///
    /// Dropping the future loses nothing but what it would have brought.
    ///
    /// # Errors
    /// The lender did not answer, and nothing was spent; to those who waited for the call of another that is
    /// [`ErrorKind::Busy`].
    pub async fn borrow(
        &self,
        lender: &dyn Lender,
        place: Option<StoreKey<'_>>,
        check: &QuotaCheck<'_>,
        now: impl Fn() -> Timestamp + Send + Sync,
    ) -> Result<Taken, StoreError> {
        let Some((cost, _)) = asked(check.op) else {
            return Ok(Taken::Elsewhere);
        };
        for _ in 0..ROUNDS {
            match self.turn(place.as_ref(), check, now()) {
                Turn::Said(taken) => return Ok(taken),
                Turn::Wait(flight) => flight.landed().await.map_err(|error| not_sent(&error))?,
                Turn::Go(landing) => {
                    let errand = landing.errand();
                    let granted = lender.lend(place, check.key, check.ruled, errand).await;
                    let said = landing.land(granted, |entry| say(self, entry, check, &now))?;
                    if let Some(taken) = said {
                        return Ok(taken);
                    }
                }
                Turn::Crowded => break,
            }
        }
        self.decide_there(lender, place, check, cost).await
    }

    fn turn(
        &self,
        place: Option<&StoreKey<'_>>,
        check: &QuotaCheck<'_>,
        now: Timestamp,
    ) -> Turn<'_> {
        let taken = self.spend(check, now);
        if taken != Taken::Borrow {
            return Turn::Said(taken);
        }
        let single = |key: &StoreKey<'_>| key.single().map(Box::<[u8]>::from);
        let (Some((cost, is_peek)), Some(bucket), Some(key)) = (
            asked(check.op),
            lendable(&check.ruled.limit),
            single(&check.key),
        ) else {
            return Turn::Crowded;
        };
        let who = self.table.who(&check.key, check.ruled.id);
        let Some(mut shard) = self.table.shard(who) else {
            return Turn::Crowded;
        };
        let shard = &mut *shard;
        let is_known = shard.entries.contains_key(&who);
        if self.is_closing() || !is_known && self.table.is_full(shard) {
            shard.counted.crowded = shard.counted.crowded.saturating_add(1);
            return Turn::Crowded;
        }
        let entry = shard.entries.entry(who).or_insert_with(|| {
            let place = place.and_then(single);
            let mark = self.number();
            let entry = Entry::new(*check.ruled, *bucket, &key, place.as_deref(), mark, now);
            Box::new(entry)
        });
        if let Some(flight) = &entry.flight {
            let flight = Arc::clone(flight);
            if !is_peek {
                entry.wait_for(cost);
            }
            return Turn::Wait(flight);
        }
        let planned = match is_peek {
            true => entry.tell(now, || self.number()),
            false => {
                let wanted = (Some(cost), self.loan());
                entry.plan(&self.terms, self.nodes(), now, wanted, || self.number())
            }
        };
        let flight = entry.take_off();
        shard.counted.errands = shard.counted.errands.saturating_add(1);
        Turn::Go(Box::new(Landing::new(self, who, planned, flight)))
    }

    /// A decision at the lender, of which nothing is kept here.
    async fn decide_there(
        &self,
        lender: &dyn Lender,
        place: Option<StoreKey<'_>>,
        check: &QuotaCheck<'_>,
        cost: u64,
    ) -> Result<Taken, StoreError> {
        let is_peek = asked(check.op).is_some_and(|(_, is_peek)| is_peek);
        let errand = LeaseRequest {
            direct_cost: if is_peek { 0 } else { cost },
            ..LeaseRequest::default()
        };
        let granted = lender.lend(place, check.key, check.ruled, errand).await?;
        let status = granted.status;
        let outcome = match granted.direct_outcome {
            Outcome::Allow if is_peek && status.remaining < cost => Outcome::Deny {
                retry_after: status.reset_after.max(Nanos::from_nanos(1)),
            },
            outcome => outcome,
        };
        let answer = StoreReply {
            outcome,
            status,
            receipt: Receipt {
                cost: if outcome.is_admitted() {
                    errand.direct_cost
                } else {
                    0
                },
                // Marked as nothing that could be taken back.
                ..Receipt::default()
            },
            note: Note::Plain,
        };
        Ok(match outcome.is_admitted() {
            true => Taken::Spent(answer),
            false => Taken::Denied(answer),
        })
    }
}

/// Whoever waited has sent nothing, and one call that was not answered is one failure, however many waited for it.
fn not_sent(error: &StoreError) -> StoreError {
    let detail = format!("whoever asked was not answered: {error}");
    StoreError::new(ErrorKind::Busy, detail)
}

/// What an entry says to a request once its errand has landed. Nothing, if others have taken what it brought.
fn say(
    leases: &LocalLeases,
    entry: &mut Entry,
    check: &QuotaCheck<'_>,
    now: impl Fn() -> Timestamp,
) -> Option<Taken> {
    let (cost, is_peek) = asked(check.op)?;
    let now = now();
    let said = match is_peek {
        true => entry.guess(now, cost),
        false => entry.spend(now, cost, || leases.number()),
    };
    match said {
        Said::Spent(answer) => Some(Taken::Spent(answer)),
        Said::Denied(answer) => Some(Taken::Denied(answer)),
        Said::Unknown => None,
    }
}

impl Flight {
    /// Waits until it has landed.
    async fn landed(&self) -> Result<(), StoreError> {
        loop {
            // Made before looking, so that a landing in between is not missed.
            let landed = self.landed.notified();
            if let Some(outcome) = self.outcome.get() {
                return outcome.clone();
            }
            landed.await;
        }
    }

    fn land(&self, outcome: Result<(), StoreError>) {
        // It lands once: whoever takes off has taken the last one's place.
        let _is_first = self.outcome.set(outcome);
        self.landed.notify_waiters();
    }
}

impl<'a> Landing<'a> {
    pub(super) const fn new(
        leases: &'a LocalLeases,
        who: Who,
        planned: Planned,
        flight: Arc<Flight>,
    ) -> Self {
        Self {
            leases,
            who,
            planned,
            flight,
            has_landed: false,
        }
    }

    pub(super) fn errand(&self) -> LeaseRequest<'_> {
        LeaseRequest {
            reports: &self.planned.reports,
            direct_cost: 0,
            lease: self.planned.want,
        }
    }

    /// Takes note of how it went; then `first` is served before all who wait.
    pub(super) fn land<T>(
        mut self,
        granted: Result<LeaseGrant, StoreError>,
        first: impl FnOnce(&mut Entry) -> T,
    ) -> Result<T, StoreError> {
        let gone = || StoreError::new(ErrorKind::BadRequest, "nobody knows of this key");
        let Some(mut shard) = self.leases.table.shard(self.who) else {
            return Err(gone());
        };
        let shard = &mut *shard;
        let Some(entry) = shard.entries.get_mut(&self.who) else {
            return Err(gone());
        };
        entry.flight = None;
        self.has_landed = true;
        let leases = self.leases;
        let landed = match granted {
            Ok(granted) => {
                shard.counted.borrowed = shard.counted.borrowed.saturating_add(granted.units);
                let (terms, number) = (&leases.terms, || leases.number());
                entry.granted(terms, &self.planned, &granted, number);
                Ok(first(entry))
            }
            Err(error) => {
                shard.counted.failed = shard.counted.failed.saturating_add(1);
                entry.failed(&self.planned, error.may_have_charged());
                Err(error)
            }
        };
        if leases.is_closing() {
            entry.finish_all();
        }
        self.flight
            .land(landed.as_ref().map(|_| ()).map_err(Clone::clone));
        landed
    }
}

impl Drop for Landing<'_> {
    fn drop(&mut self) {
        if self.has_landed {
            return;
        }
        if let Some(mut shard) = self.leases.table.shard(self.who)
            && let Some(entry) = shard.entries.get_mut(&self.who)
        {
            entry.flight = None;
            entry.failed(&self.planned, true);
        }
        self.flight.land(Ok(()));
    }
}
