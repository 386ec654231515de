//! A lease broker with core's accounting, over a network that the test controls.

use std::collections::HashMap;
use std::future::poll_fn;
use std::num::NonZeroU16;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Poll;

use tollgate_core::quota_lease::{LeaseGrant, LeaseReport, LeaseRequest, LeaseSpec, LeasedBucket};
use tollgate_core::{Nanos, Rate, Timestamp, TokenBucket};
use tollgate_store::{
    Clock as _, IdentifiedLimit, Lender, LimitId, ManualClock, Op, QuotaCheck, StoreError,
    StoreErrorKind, StoreFuture, StoreKey,
};

use super::super::leased_key::leasable_bucket;

pub(super) const START: Timestamp = Timestamp::from_secs(1_700_000_000);

/// What happens to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// Replied at once.
    AtOnce,
    /// In flight until the test delivers it.
    UnderWay,
    /// Never sent.
    Unreachable,
}

#[derive(Debug)]
pub(super) struct Call {
    key: Vec<u8>,
    ruled: IdentifiedLimit,
    pub(super) reports: Vec<LeaseReport>,
    spend: u64,
    pub(super) want: Option<LeaseSpec>,
    /// The broker's reply, once the call was delivered.
    pub(super) granted: Option<LeaseGrant>,
    pub(super) outcome: Option<Result<LeaseGrant, StoreErrorKind>>,
}

#[derive(Debug)]
pub(super) struct FakeBroker {
    pub(super) clock: Arc<ManualClock>,
    pub(super) books: Mutex<HashMap<Vec<u8>, LeasedBucket>>,
    pub(super) calls: Mutex<Vec<Call>>,
    pub(super) fate: Mutex<Fate>,
    /// What the broker admitted directly, and when.
    pub(super) spent: Mutex<Vec<(Timestamp, u64)>>,
}

impl FakeBroker {
    pub(super) fn new(clock: Arc<ManualClock>) -> Self {
        Self {
            clock,
            books: Mutex::default(),
            calls: Mutex::default(),
            fate: Mutex::new(Fate::AtOnce),
            spent: Mutex::default(),
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
        let errand = LeaseRequest {
            reports: &call.reports,
            direct_cost: call.spend,
            lease: call.want,
        };
        let mut books = self.books.lock().unwrap();
        let book = books.entry(call.key.clone()).or_default();
        let bucket = leasable_bucket(&call.ruled.limit).unwrap();
        let now = self.clock.now();
        let granted = book.handle(bucket, now, &errand);
        if granted.direct_outcome.is_admitted() && errand.direct_cost > 0 {
            self.spent.lock().unwrap().push((now, errand.direct_cost));
        }
        call.granted = Some(granted);
    }

    /// Delivers the reply, or reports it lost.
    pub(super) fn answer(&self, index: usize, is_lost: bool) {
        let mut calls = self.calls();
        let call = &mut calls[index];
        call.outcome = Some(match call.granted {
            Some(granted) if !is_lost => Ok(granted),
            _ => Err(StoreErrorKind::TimedOut),
        });
    }

    /// The units that the broker has left.
    pub(super) fn remaining(&self, key: &[u8], ruled: &IdentifiedLimit) -> u64 {
        let books = self.books.lock().unwrap();
        let bucket = leasable_bucket(&ruled.limit).unwrap();
        let book = books.get(key).cloned().unwrap_or_default();
        book.status(bucket, self.clock.now()).remaining
    }

    pub(super) fn lease_count(&self, key: &[u8]) -> usize {
        let books = self.books.lock().unwrap();
        books.get(key).map_or(0, |book| book.leases().len())
    }
}

impl Lender for FakeBroker {
    fn lend<'a>(
        &'a self,
        _place: Option<StoreKey<'a>>,
        key: StoreKey<'a>,
        ruled: &'a IdentifiedLimit,
        errand: LeaseRequest<'a>,
    ) -> StoreFuture<'a, LeaseGrant> {
        let index = {
            let mut calls = self.calls();
            calls.push(Call {
                key: key.single().unwrap().to_vec(),
                ruled: *ruled,
                reports: errand.reports.to_vec(),
                spend: errand.direct_cost,
                want: errand.lease,
                granted: None,
                outcome: None,
            });
            calls.len() - 1
        };
        match *self.fate.lock().unwrap() {
            Fate::AtOnce => {
                self.deliver(index);
                self.answer(index, false);
            }
            Fate::UnderWay => {}
            Fate::Unreachable => {
                self.calls()[index].outcome = Some(Err(StoreErrorKind::Unreachable));
            }
        }
        let outcome = poll_fn(move |_| match self.calls()[index].outcome {
            None => Poll::Pending,
            Some(Ok(granted)) => Poll::Ready(Ok(granted)),
            Some(Err(kind)) => Poll::Ready(Err(StoreError::new(kind, "as told"))),
        });
        Box::pin(outcome)
    }
}

pub(super) fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::at(START))
}

pub(super) fn ruled(per_second: u64, burst: u64) -> IdentifiedLimit {
    let bucket = TokenBucket::builder(Rate::new(per_second, Nanos::SECOND)).burst(burst);
    IdentifiedLimit {
        id: LimitId(NonZeroU16::MIN),
        limit: bucket.build().unwrap().into(),
    }
}

pub(super) fn check(ruled: &IdentifiedLimit, cost: u64) -> QuotaCheck<'_> {
    QuotaCheck {
        key: StoreKey::new(b"everyone").unwrap(),
        limit: ruled,
        op: Op::Spend(cost),
    }
}
