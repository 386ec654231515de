//! Requests leases for a request that needs one: one request per key at a time, and all waiting requests share its
//! grant.
//!
//! Must not know: how leases are accounted for, background maintenance.

use std::sync::Arc;

use tollgate_core::quota_lease::{LeaseGrant, LeaseRequest};
use tollgate_core::{Nanos, Outcome, Receipt, Timestamp};
use tollgate_store::{
    Lender, QuotaCheck, ReplyNote, StoreError, StoreErrorKind, StoreKey, StoreReply,
};

use super::leased_key::{InFlightRequest, LeasedKey, LocalReply, PlannedRequest, leasable_bucket};
use super::{LocalLeases, SpendOutcome, cost_and_peek};
use crate::sharded_table::KeyDigest;

/// How often a request waits for others' lease requests that grant too little, before the broker decides it directly.
const MAX_ROUNDS: usize = 3;

/// The next step of a request that found no lease.
enum BorrowStep<'a> {
    /// It is decided after all.
    Done(SpendOutcome),
    /// Wait for the request in flight.
    Wait(Arc<InFlightRequest>),
    /// Send this request.
    Send(Box<RequestGuard<'a>>),
    /// The table has no room for the key.
    TableFull,
}

/// Guards a request in flight. If it is dropped before completion, a lease that the broker may have granted is returned
/// later, and waiting requests send their own.
pub(super) struct RequestGuard<'a> {
    leases: &'a LocalLeases,
    who: KeyDigest,
    pub(super) planned: PlannedRequest,
    in_flight: Arc<InFlightRequest>,
    is_completed: bool,
}

impl LocalLeases {
    /// Requests a lease for a check, or waits for a request in flight, and decides. It waits for the broker's deadline,
    /// or several times that if other requests use up the grant. `now` reads the same clock as [`spend`](Self::spend).
    ///
    /// Dropping the future loses only the grant.
    ///
    /// # Errors
    /// The broker did not reply, and nothing was spent. A check that waited for another one's request gets
    /// [`ErrorKind::Busy`].
    pub async fn borrow(
        &self,
        lender: &dyn Lender,
        place: Option<StoreKey<'_>>,
        check: &QuotaCheck<'_>,
        now: impl Fn() -> Timestamp + Send + Sync,
    ) -> Result<SpendOutcome, StoreError> {
        let Some((cost, _)) = cost_and_peek(check.op) else {
            return Ok(SpendOutcome::AskStore);
        };
        for _ in 0..MAX_ROUNDS {
            match self.next_step(place.as_ref(), check, now()) {
                BorrowStep::Done(taken) => return Ok(taken),
                BorrowStep::Wait(flight) => {
                    flight.wait().await.map_err(|error| busy_error(&error))?
                }
                BorrowStep::Send(landing) => {
                    let errand = landing.request();
                    let granted = lender.lend(place, check.key, check.limit, errand).await;
                    let said = landing
                        .complete(granted, |entry| reply_after_grant(self, entry, check, &now))?;
                    if let Some(taken) = said {
                        return Ok(taken);
                    }
                }
                BorrowStep::TableFull => break,
            }
        }
        self.decide_at_broker(lender, place, check, cost).await
    }

    fn next_step(
        &self,
        place: Option<&StoreKey<'_>>,
        check: &QuotaCheck<'_>,
        now: Timestamp,
    ) -> BorrowStep<'_> {
        let taken = self.spend(check, now);
        if taken != SpendOutcome::Borrow {
            return BorrowStep::Done(taken);
        }
        let single = |key: &StoreKey<'_>| key.single().map(Box::<[u8]>::from);
        let (Some((cost, is_peek)), Some(bucket), Some(key)) = (
            cost_and_peek(check.op),
            leasable_bucket(&check.limit.limit),
            single(&check.key),
        ) else {
            return BorrowStep::TableFull;
        };
        let who = self.table.digest(&check.key, check.limit.id);
        let Some(mut shard) = self.table.shard(who) else {
            return BorrowStep::TableFull;
        };
        let shard = &mut *shard;
        let is_known = shard.entries.contains_key(&who);
        if self.is_closing() || !is_known && self.table.is_full(shard) {
            shard.totals.table_full = shard.totals.table_full.saturating_add(1);
            return BorrowStep::TableFull;
        }
        let entry = shard.entries.entry(who).or_insert_with(|| {
            let place = place.and_then(single);
            let mark = self.next_number();
            let entry = LeasedKey::new(*check.limit, *bucket, &key, place.as_deref(), mark, now);
            Box::new(entry)
        });
        if let Some(flight) = &entry.in_flight {
            let flight = Arc::clone(flight);
            if !is_peek {
                entry.add_waiting(cost);
            }
            return BorrowStep::Wait(flight);
        }
        let planned = match is_peek {
            true => entry.plan_report(now, || self.next_number()),
            false => {
                let wanted = (Some(cost), self.new_lease_id());
                entry.plan_borrow(&self.options, self.nodes(), now, wanted, || {
                    self.next_number()
                })
            }
        };
        let flight = entry.begin_request();
        shard.totals.requests = shard.totals.requests.saturating_add(1);
        BorrowStep::Send(Box::new(RequestGuard::new(self, who, planned, flight)))
    }

    /// Lets the broker decide, without a lease.
    async fn decide_at_broker(
        &self,
        lender: &dyn Lender,
        place: Option<StoreKey<'_>>,
        check: &QuotaCheck<'_>,
        cost: u64,
    ) -> Result<SpendOutcome, StoreError> {
        let is_peek = cost_and_peek(check.op).is_some_and(|(_, is_peek)| is_peek);
        let errand = LeaseRequest {
            direct_cost: if is_peek { 0 } else { cost },
            ..LeaseRequest::default()
        };
        let granted = lender.lend(place, check.key, check.limit, errand).await?;
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
                // An unknown mark, so that it cannot be refunded.
                ..Receipt::default()
            },
            note: ReplyNote::Plain,
        };
        Ok(match outcome.is_admitted() {
            true => SpendOutcome::Admitted(answer),
            false => SpendOutcome::Denied(answer),
        })
    }
}

/// The waiting request sent nothing itself. One call without a reply is one failure, however many requests waited for
/// it.
fn busy_error(error: &StoreError) -> StoreError {
    let detail = format!("whoever asked was not answered: {error}");
    StoreError::new(StoreErrorKind::Busy, detail)
}

/// The reply to a request after the grant. `None` if other requests have used it up.
fn reply_after_grant(
    leases: &LocalLeases,
    entry: &mut LeasedKey,
    check: &QuotaCheck<'_>,
    now: impl Fn() -> Timestamp,
) -> Option<SpendOutcome> {
    let (cost, is_peek) = cost_and_peek(check.op)?;
    let now = now();
    let said = match is_peek {
        true => entry.estimate(now, cost),
        false => entry.spend(now, cost, || leases.next_number()),
    };
    match said {
        LocalReply::Admitted(answer) => Some(SpendOutcome::Admitted(answer)),
        LocalReply::Denied(answer) => Some(SpendOutcome::Denied(answer)),
        LocalReply::Unknown => None,
    }
}

impl InFlightRequest {
    /// Waits for completion.
    async fn wait(&self) -> Result<(), StoreError> {
        loop {
            // Registered before the check, so that a completion in between is not missed.
            let landed = self.completed.notified();
            if let Some(outcome) = self.outcome.get() {
                return outcome.clone();
            }
            landed.await;
        }
    }

    fn complete(&self, outcome: Result<(), StoreError>) {
        // A request completes once.
        let _is_first = self.outcome.set(outcome);
        self.completed.notify_waiters();
    }
}

impl<'a> RequestGuard<'a> {
    pub(super) const fn new(
        leases: &'a LocalLeases,
        who: KeyDigest,
        planned: PlannedRequest,
        flight: Arc<InFlightRequest>,
    ) -> Self {
        Self {
            leases,
            who,
            planned,
            in_flight: flight,
            is_completed: false,
        }
    }

    pub(super) fn request(&self) -> LeaseRequest<'_> {
        LeaseRequest {
            reports: &self.planned.reports,
            direct_cost: 0,
            lease: self.planned.want,
        }
    }

    /// Completes the request; `first` is served before the waiting requests.
    pub(super) fn complete<T>(
        mut self,
        granted: Result<LeaseGrant, StoreError>,
        first: impl FnOnce(&mut LeasedKey) -> T,
    ) -> Result<T, StoreError> {
        let gone = || StoreError::new(StoreErrorKind::BadRequest, "nobody knows of this key");
        let Some(mut shard) = self.leases.table.shard(self.who) else {
            return Err(gone());
        };
        let shard = &mut *shard;
        let Some(entry) = shard.entries.get_mut(&self.who) else {
            return Err(gone());
        };
        entry.in_flight = None;
        self.is_completed = true;
        let leases = self.leases;
        let landed = match granted {
            Ok(granted) => {
                shard.totals.borrowed = shard.totals.borrowed.saturating_add(granted.units);
                let (terms, number) = (&leases.options, || leases.next_number());
                entry.on_grant(terms, &self.planned, &granted, number);
                Ok(first(entry))
            }
            Err(error) => {
                shard.totals.failed = shard.totals.failed.saturating_add(1);
                entry.on_failure(&self.planned, error.may_have_charged());
                Err(error)
            }
        };
        if leases.is_closing() {
            entry.end_all();
        }
        self.in_flight
            .complete(landed.as_ref().map(|_| ()).map_err(Clone::clone));
        landed
    }
}

impl Drop for RequestGuard<'_> {
    fn drop(&mut self) {
        if self.is_completed {
            return;
        }
        if let Some(mut shard) = self.leases.table.shard(self.who)
            && let Some(entry) = shard.entries.get_mut(&self.who)
        {
            entry.in_flight = None;
            entry.on_failure(&self.planned, true);
        }
        self.in_flight.complete(Ok(()));
    }
}
