//! Decisions of a fleet's node that ask nobody: from a slice of a leased limit, and on an account that is reconciled.
//!
//! The clock stands still, and the key is known. Must not know: how either is kept.

use std::future::Future as _;
use std::hint::black_box;
use std::num::NonZeroU16;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use tollgate_core::compose::BatchOutcome;
use tollgate_core::limit::Quota;
use tollgate_core::quota_lease::LeasedBucket;
use tollgate_core::{Nanos, Rate, TokenBucket};
use tollgate_engine::CheckOptions;
use tollgate_fleet::leases::{LeaseOptions, LocalLeases, SpendOutcome};
use tollgate_fleet::reconcile::Reconciler;
use tollgate_fleet::{Fleet, FleetEngine};
use tollgate_store::quota_lease::{LeaseBroker, LeaseGrant, LeaseRequest};
use tollgate_store::{
    IdentifiedLimit, LimitId, Op, QuotaCheck, RemoteStore, StoreError, StoreErrorKind, StoreFuture,
    StoreKey, StoreReply,
};

use super::engine::engine;
use super::matching::MatchRequest;
use super::{CaseRun, NOW};
use crate::measure::measured_section;

/// A lender in this process.
#[derive(Debug, Default)]
struct BenchBroker(Mutex<LeasedBucket>);

impl LeaseBroker for BenchBroker {
    fn grant_lease<'a>(
        &'a self,
        _place: Option<StoreKey<'a>>,
        _key: StoreKey<'a>,
        limit: &'a IdentifiedLimit,
        request: LeaseRequest<'a>,
    ) -> StoreFuture<'a, LeaseGrant> {
        let mut leased = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let granted = match limit.limit.quota() {
            Quota::TokenBucket(bucket) => Ok(leased.handle(bucket, NOW, &request)),
            _ => Err(StoreError::new(StoreErrorKind::BadRequest, "not a bucket")),
        };
        Box::pin(std::future::ready(granted))
    }
}

fn limit(units: u64) -> Result<IdentifiedLimit, Box<dyn std::error::Error>> {
    let bucket = TokenBucket::builder(Rate::new(units, Nanos::DAY)).burst(units);
    Ok(IdentifiedLimit {
        id: LimitId(NonZeroU16::MIN),
        limit: bucket.build()?.into(),
    })
}

fn check(limit: &IdentifiedLimit) -> Result<QuotaCheck<'_>, Box<dyn std::error::Error>> {
    Ok(QuotaCheck {
        key: StoreKey::new(b"user:42")?,
        limit,
        op: Op::Spend(1),
    })
}

/// Spends from a slice that is large enough, or, of a limit of one, is denied by what is remembered.
pub(super) fn leased(times: u64, units: u64) -> CaseRun {
    let (leases, lender) = (
        LocalLeases::new(LeaseOptions::default()),
        BenchBroker::default(),
    );
    let limit = limit(units)?;
    let check = check(&limit)?;
    // Until a slice is there that outlasts the measurement: each is twice as large as the last.
    for _ in 0..40_000 {
        if leases.spend(&check, NOW) == SpendOutcome::Borrow {
            let mut borrowing = pin!(leases.borrow(&lender, None, &check, || NOW));
            let polled = borrowing
                .as_mut()
                .poll(&mut Context::from_waker(Waker::noop()));
            let Poll::Ready(Ok(_)) = polled else {
                return Err("nothing was lent".into());
            };
        }
    }
    let is_admitted = matches!(leases.spend(&check, NOW), SpendOutcome::Admitted(_));
    if is_admitted != (units > 1) {
        return Err("the limit is not where it should be".into());
    }
    measured_section(times, || leases.spend(black_box(&check), NOW));
    Ok(())
}

/// A store that nobody can reach.
#[derive(Debug)]
struct UnavailableStore;

impl RemoteStore for UnavailableStore {
    fn partition_count(&self) -> usize {
        1
    }

    fn partition_of(&self, _key: &StoreKey<'_>, _place: Option<&StoreKey<'_>>) -> usize {
        0
    }

    fn decide<'a>(
        &'a self,
        _places: &'a [Option<StoreKey<'a>>],
        _checks: &'a [QuotaCheck<'a>],
        _answers: &'a mut [StoreReply],
    ) -> StoreFuture<'a, BatchOutcome> {
        Box::pin(std::future::ready(Err(away())))
    }

    fn probe(&self, _part: usize) -> StoreFuture<'_, ()> {
        Box::pin(std::future::ready(Err(away())))
    }

    fn erase<'a>(
        &'a self,
        _place: Option<StoreKey<'a>>,
        _key: StoreKey<'a>,
        _ruled: &'a IdentifiedLimit,
    ) -> StoreFuture<'a, bool> {
        Box::pin(std::future::ready(Err(away())))
    }

    fn is_connected(&self) -> bool {
        false
    }
}

fn away() -> StoreError {
    StoreError::new(StoreErrorKind::Unreachable, "it is away")
}

/// Decides on one request under one bucket whose store is away: the whole way, as `engine/allow_one` is over memory.
pub(super) fn without_store(times: u64) -> CaseRun {
    let engine = engine(1, 1_000_000_000)?;
    let fleet = Fleet::new(Arc::new(UnavailableStore), NOW);
    let request = MatchRequest::of(0);
    let decide = || {
        let node = FleetEngine::new(&engine, &fleet);
        let mut deciding = pin!(node.check(black_box(&request), CheckOptions::default()));
        match deciding
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()))
        {
            Poll::Ready(verdict) => Some(verdict),
            Poll::Pending => None,
        }
    };
    let first = decide().ok_or("it waited")?;
    if !first.is_admitted() || !first.degraded().store {
        return Err("the first request was not decided by this node".into());
    }
    measured_section(times, decide);
    Ok(())
}

/// Spends on an account that the store has not been asked about.
pub(super) fn reconciled(times: u64) -> CaseRun {
    let node = Reconciler::for_keys(1_000, 7);
    let limit = limit(1_000_000_000)?;
    let check = check(&limit)?;
    let spend = || node.spend(black_box(&check), None, Nanos::SECOND, NOW);
    if !matches!(spend(), SpendOutcome::Admitted(_)) {
        return Err("the first request was denied".into());
    }
    measured_section(times, spend);
    Ok(())
}
