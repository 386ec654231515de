//! Requests leases for a request that needs one: one request per key at a time, and all waiting requests share its
//! grant.
//!
//! Must not know: how leases are accounted for, background maintenance.

use std::sync::Arc;

use tollgate_core::quota_lease::{LeaseGrant, LeaseRequest};
use tollgate_core::{Nanos, Outcome, Receipt, Timestamp};
use tollgate_store::{
    LeaseBroker, QuotaCheck, ReplyNote, StoreError, StoreErrorKind, StoreKey, StoreReply,
};

use super::leased_key::{InFlightRequest, LeasedKey, LocalReply, PlannedRequest};
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
    digest: KeyDigest,
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
    /// [`StoreErrorKind::Busy`].
    pub async fn borrow(
        &self,
        broker: &dyn LeaseBroker,
        slot_key: Option<StoreKey<'_>>,
        check: &QuotaCheck<'_>,
        now: impl Fn() -> Timestamp + Send + Sync,
    ) -> Result<SpendOutcome, StoreError> {
        let Some((cost, _)) = cost_and_peek(check.op) else {
            return Ok(SpendOutcome::AskStore);
        };
        for _ in 0..MAX_ROUNDS {
            match self.next_step(slot_key.as_ref(), check, now()) {
                BorrowStep::Done(outcome) => return Ok(outcome),
                BorrowStep::Wait(in_flight) => {
                    in_flight.wait().await.map_err(|error| busy_error(&error))?;
                }
                BorrowStep::Send(guard) => {
                    let request = guard.request();
                    let grant = broker
                        .grant_lease(slot_key, check.key, check.limit, request)
                        .await;
                    let reply = guard
                        .complete(grant, |entry| reply_after_grant(self, entry, check, &now))?;
                    if let Some(outcome) = reply {
                        return Ok(outcome);
                    }
                }
                BorrowStep::TableFull => break,
            }
        }
        self.decide_at_broker(broker, slot_key, check, cost).await
    }

    /// Lets the broker decide a check of a key that is not worth a lease. Such a charge cannot be refunded.
    ///
    /// # Errors
    /// The broker did not reply.
    pub async fn spend_at_broker(
        &self,
        broker: &dyn LeaseBroker,
        slot_key: Option<StoreKey<'_>>,
        check: &QuotaCheck<'_>,
    ) -> Result<SpendOutcome, StoreError> {
        let Some((cost, _)) = cost_and_peek(check.op) else {
            return Ok(SpendOutcome::AskStore);
        };
        let Some(reply) = broker.spend_unleased(slot_key, check).await? else {
            return self.decide_at_broker(broker, slot_key, check, cost).await;
        };
        let reply = StoreReply {
            // An unknown mark, so that it cannot be refunded.
            receipt: Receipt {
                cost: reply.receipt.cost,
                ..Receipt::default()
            },
            ..reply
        };
        Ok(match reply.outcome.is_admitted() {
            true => SpendOutcome::Admitted(reply),
            false => SpendOutcome::Denied(reply),
        })
    }

    fn next_step(
        &self,
        slot_key: Option<&StoreKey<'_>>,
        check: &QuotaCheck<'_>,
        now: Timestamp,
    ) -> BorrowStep<'_> {
        let outcome = self.spend(check, now);
        if outcome != SpendOutcome::Borrow {
            return BorrowStep::Done(outcome);
        }
        let Some((cost, is_peek)) = cost_and_peek(check.op) else {
            return BorrowStep::TableFull;
        };
        let digest = self.table.digest(&check.key, check.limit.id);
        let Some(mut shard) = self.table.shard(digest) else {
            return BorrowStep::TableFull;
        };
        let shard = &mut *shard;
        let is_known = shard.entries.contains_key(&digest);
        if self.is_closing() || !is_known && self.table.is_full(shard) {
            shard.totals.table_full = shard.totals.table_full.saturating_add(1);
            return BorrowStep::TableFull;
        }
        if !is_known {
            let new = self.new_entry(check, slot_key, now);
            shard.entries.extend(new.map(|new| (digest, new)));
        }
        let Some(entry) = shard.entries.get_mut(&digest) else {
            return BorrowStep::TableFull;
        };
        if let Some(in_flight) = &entry.in_flight {
            let in_flight = Arc::clone(in_flight);
            if !is_peek {
                entry.add_waiting(cost);
            }
            return BorrowStep::Wait(in_flight);
        }
        let planned = match is_peek {
            true => entry.plan_report(now, || self.next_number()),
            false => {
                let spec = (Some(cost), self.new_lease_id());
                entry.plan_borrow(&self.options, self.nodes(), now, spec, || {
                    self.next_number()
                })
            }
        };
        let in_flight = entry.begin_request();
        shard.totals.requests = shard.totals.requests.saturating_add(1);
        BorrowStep::Send(Box::new(RequestGuard::new(
            self, digest, planned, in_flight,
        )))
    }

    /// Lets the broker decide, without a lease.
    async fn decide_at_broker(
        &self,
        broker: &dyn LeaseBroker,
        slot_key: Option<StoreKey<'_>>,
        check: &QuotaCheck<'_>,
        cost: u64,
    ) -> Result<SpendOutcome, StoreError> {
        let is_peek = cost_and_peek(check.op).is_some_and(|(_, is_peek)| is_peek);
        let request = LeaseRequest {
            direct_cost: if is_peek { 0 } else { cost },
            ..LeaseRequest::default()
        };
        let grant = broker
            .grant_lease(slot_key, check.key, check.limit, request)
            .await?;
        let status = grant.status;
        let outcome = match grant.direct_outcome {
            Outcome::Allow if is_peek && status.remaining < cost => Outcome::Deny {
                retry_after: status.reset_after.max(Nanos::from_nanos(1)),
            },
            outcome => outcome,
        };
        let reply = StoreReply {
            outcome,
            status,
            receipt: Receipt {
                cost: if outcome.is_admitted() {
                    request.direct_cost
                } else {
                    0
                },
                // An unknown mark, so that it cannot be refunded.
                ..Receipt::default()
            },
            note: ReplyNote::Plain,
        };
        Ok(match outcome.is_admitted() {
            true => SpendOutcome::Admitted(reply),
            false => SpendOutcome::Denied(reply),
        })
    }
}

/// The waiting request sent nothing itself. One call without a reply is one failure, however many requests waited for
/// it.
fn busy_error(error: &StoreError) -> StoreError {
    let detail = format!("the lease request of another check failed: {error}");
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
    let reply = match is_peek {
        true => entry.estimate(now, cost),
        false => entry.spend(now, cost, || leases.next_number()),
    };
    match reply {
        LocalReply::Admitted(reply) => Some(SpendOutcome::Admitted(reply)),
        LocalReply::Denied(reply) => Some(SpendOutcome::Denied(reply)),
        LocalReply::Unknown => None,
    }
}

impl InFlightRequest {
    /// Waits for completion.
    async fn wait(&self) -> Result<(), StoreError> {
        loop {
            // Registered before the check, so that a completion in between is not missed.
            let completed = self.completed.notified();
            if let Some(outcome) = self.outcome.get() {
                return outcome.clone();
            }
            completed.await;
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
        digest: KeyDigest,
        planned: PlannedRequest,
        in_flight: Arc<InFlightRequest>,
    ) -> Self {
        Self {
            leases,
            digest,
            planned,
            in_flight,
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
        grant: Result<LeaseGrant, StoreError>,
        first: impl FnOnce(&mut LeasedKey) -> T,
    ) -> Result<T, StoreError> {
        let missing = || StoreError::new(StoreErrorKind::BadRequest, "the leased key was dropped");
        let Some(mut shard) = self.leases.table.shard(self.digest) else {
            return Err(missing());
        };
        let shard = &mut *shard;
        let Some(entry) = shard.entries.get_mut(&self.digest) else {
            return Err(missing());
        };
        entry.in_flight = None;
        self.is_completed = true;
        let leases = self.leases;
        let result = match grant {
            Ok(grant) => {
                shard.totals.borrowed = shard.totals.borrowed.saturating_add(grant.units);
                let (options, next_number) = (&leases.options, || leases.next_number());
                entry.on_grant(options, &self.planned, &grant, next_number);
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
            .complete(result.as_ref().map(|_| ()).map_err(Clone::clone));
        result
    }
}

impl Drop for RequestGuard<'_> {
    fn drop(&mut self) {
        if self.is_completed {
            return;
        }
        if let Some(mut shard) = self.leases.table.shard(self.digest)
            && let Some(entry) = shard.entries.get_mut(&self.digest)
        {
            entry.in_flight = None;
            entry.on_failure(&self.planned, true);
        }
        self.in_flight.complete(Ok(()));
    }
}
