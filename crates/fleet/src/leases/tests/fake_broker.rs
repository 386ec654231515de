//! A lease broker with core's accounting, over a network that the test controls.

use std::collections::HashMap;
use std::future::poll_fn;
use std::num::NonZeroU16;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Poll;

use tollgate_core::quota_lease::{LeaseGrant, LeaseReport, LeaseRequest, LeaseSpec, LeasedBucket};
use tollgate_core::{Nanos, Rate, Timestamp, TokenBucket};
use tollgate_store::{
    Clock as _, IdentifiedLimit, LeaseBroker, LimitId, ManualClock, Op, QuotaCheck, StoreError,
    StoreErrorKind, StoreFuture, StoreKey,
};

use super::super::leased_key::leasable_bucket;

pub(super) const START: Timestamp = Timestamp::from_secs(1_700_000_000);

/// What happens to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// Replied at once.
    Immediate,
    /// In flight until the test delivers it.
    InFlight,
    /// Never sent.
    Unreachable,
}

#[derive(Debug)]
pub(super) struct Call {
    key: Vec<u8>,
    limit: IdentifiedLimit,
    pub(super) reports: Vec<LeaseReport>,
    direct_cost: u64,
    pub(super) lease: Option<LeaseSpec>,
    /// The broker's reply, once the call was delivered.
    pub(super) grant: Option<LeaseGrant>,
    pub(super) outcome: Option<Result<LeaseGrant, StoreErrorKind>>,
}

#[derive(Debug)]
pub(super) struct FakeBroker {
    pub(super) clock: Arc<ManualClock>,
    pub(super) ledger: Mutex<HashMap<Vec<u8>, LeasedBucket>>,
    pub(super) calls: Mutex<Vec<Call>>,
    pub(super) fate: Mutex<Fate>,
    /// What the broker admitted directly, and when.
    pub(super) direct_spends: Mutex<Vec<(Timestamp, u64)>>,
}

impl FakeBroker {
    pub(super) fn new(clock: Arc<ManualClock>) -> Self {
        Self {
            clock,
            ledger: Mutex::default(),
            calls: Mutex::default(),
            fate: Mutex::new(Fate::Immediate),
            direct_spends: Mutex::default(),
        }
    }

    pub(super) fn calls(&self) -> MutexGuard<'_, Vec<Call>> {
        self.calls.lock().unwrap()
    }

    pub(super) fn set_fate(&self, fate: Fate) {
        *self.fate.lock().unwrap() = fate;
    }

    /// Delivers the call to the broker.
    pub(super) fn deliver(&self, index: usize) {
        let mut calls = self.calls();
        let call = &mut calls[index];
        let request = LeaseRequest {
            reports: &call.reports,
            direct_cost: call.direct_cost,
            lease: call.lease,
        };
        let mut ledger = self.ledger.lock().unwrap();
        let bucket_ledger = ledger.entry(call.key.clone()).or_default();
        let bucket = leasable_bucket(&call.limit.limit).unwrap();
        let now = self.clock.now();
        let grant = bucket_ledger.handle(bucket, now, &request);
        if grant.direct_outcome.is_admitted() && request.direct_cost > 0 {
            self.direct_spends
                .lock()
                .unwrap()
                .push((now, request.direct_cost));
        }
        call.grant = Some(grant);
    }

    /// Delivers the reply, or reports it lost.
    pub(super) fn deliver_reply(&self, index: usize, is_lost: bool) {
        let mut calls = self.calls();
        let call = &mut calls[index];
        call.outcome = Some(match call.grant {
            Some(grant) if !is_lost => Ok(grant),
            _ => Err(StoreErrorKind::TimedOut),
        });
    }

    /// The units that the broker has left.
    pub(super) fn remaining(&self, key: &[u8], limit: &IdentifiedLimit) -> u64 {
        let ledger = self.ledger.lock().unwrap();
        let bucket = leasable_bucket(&limit.limit).unwrap();
        let bucket_ledger = ledger.get(key).cloned().unwrap_or_default();
        bucket_ledger.status(bucket, self.clock.now()).remaining
    }

    pub(super) fn lease_count(&self, key: &[u8]) -> usize {
        let ledger = self.ledger.lock().unwrap();
        ledger
            .get(key)
            .map_or(0, |bucket_ledger| bucket_ledger.leases().len())
    }
}

impl LeaseBroker for FakeBroker {
    fn grant_lease<'a>(
        &'a self,
        _place: Option<StoreKey<'a>>,
        key: StoreKey<'a>,
        limit: &'a IdentifiedLimit,
        request: LeaseRequest<'a>,
    ) -> StoreFuture<'a, LeaseGrant> {
        let index = {
            let mut calls = self.calls();
            calls.push(Call {
                key: key.single().unwrap().to_vec(),
                limit: *limit,
                reports: request.reports.to_vec(),
                direct_cost: request.direct_cost,
                lease: request.lease,
                grant: None,
                outcome: None,
            });
            calls.len() - 1
        };
        match *self.fate.lock().unwrap() {
            Fate::Immediate => {
                self.deliver(index);
                self.deliver_reply(index, false);
            }
            Fate::InFlight => {}
            Fate::Unreachable => {
                self.calls()[index].outcome = Some(Err(StoreErrorKind::Unreachable));
            }
        }
        let outcome = poll_fn(move |_| match self.calls()[index].outcome {
            None => Poll::Pending,
            Some(Ok(grant)) => Poll::Ready(Ok(grant)),
            Some(Err(kind)) => Poll::Ready(Err(StoreError::new(kind, "injected error"))),
        });
        Box::pin(outcome)
    }
}

pub(super) fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::at(START))
}

pub(super) fn bucket_limit(per_second: u64, burst: u64) -> IdentifiedLimit {
    let bucket = TokenBucket::builder(Rate::new(per_second, Nanos::SECOND)).burst(burst);
    IdentifiedLimit {
        id: LimitId(NonZeroU16::MIN),
        limit: bucket.build().unwrap().into(),
    }
}

pub(super) fn check(limit: &IdentifiedLimit, cost: u64) -> QuotaCheck<'_> {
    QuotaCheck {
        key: StoreKey::new(b"everyone").unwrap(),
        limit,
        op: Op::Spend(cost),
    }
}
