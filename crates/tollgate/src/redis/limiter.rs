//! The limiter over Redis: its limits, its connection, and `check`.
//!
//! The operations that return more are in `operations.rs`, `reservation.rs` and `wait.rs`. Must not know: how calls are made,
//! what keys mean.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use tollgate_core::Nanos;
use tollgate_core::limit::Limit;
use tollgate_store as store;
use tollgate_store::{IdentifiedLimit, Op, QuotaCheck, StoreError, StoreErrorKind};

use super::connection::{LimitIdClaim, Redis};
use super::limit_ids::LimitIdOverrides;
use super::release_queue;
use crate::active_limits::ActiveLimits;
use crate::admission::Admission;
use crate::decide::denial;
use crate::error::Error;
use crate::invalid::InvalidLimiter;
use crate::key::AsKey;
use crate::limit_name::LimitName;
use crate::limits::Limits;
use crate::operations::settlement_ops;
use crate::sleeper::JitteredSleeper;
use crate::until_ready::WaitQueues;

/// Limits the rate of each key, together with every other process that has the same limits on the same server. Cheap to
/// clone; clones share their limits.
///
/// Built with [`with_redis`](crate::LimiterBuilder::with_redis). The [module](super) says how it differs from a limiter in
/// memory.
#[derive(Clone)]
pub struct Limiter {
    pub(super) shared: Arc<RedisLimiterInner>,
}

/// The state that clones share.
pub(super) struct RedisLimiterInner {
    redis: Redis,
    claimed: RwLock<ClaimedLimits>,
    id_overrides: LimitIdOverrides,
    pub(super) hold: Nanos,
    pub(super) sleeper: JitteredSleeper,
    pub(super) wait_queues: WaitQueues,
}

/// The current limits and the claim on their ids.
struct ClaimedLimits {
    active_limits: Arc<ActiveLimits>,
    claim: LimitIdClaim,
}

impl Limiter {
    /// Spends one unit of every limit. If one limit denies, none is charged.
    ///
    /// `Ok` means that the caller may proceed now. If a queue would make the caller wait, `check` releases the slot with a
    /// second call and denies.
    ///
    /// Dropping the future in the middle of the call [may leave its charge](super#when-a-future-is-dropped).
    ///
    /// # Errors
    /// A limit denies, the key is too long, or the server did not decide.
    pub async fn check(&self, key: impl AsKey) -> Result<(), Error> {
        self.check_n(key, 1).await
    }

    /// Spends `cost` units of every limit. If one limit denies, none is charged.
    ///
    /// Dropping the future in the middle of the call [may leave its charge](super#when-a-future-is-dropped).
    ///
    /// # Errors
    /// A limit denies, the key is too long, or the server did not decide.
    pub async fn check_n(&self, key: impl AsKey, cost: u64) -> Result<(), Error> {
        let key = key.as_key()?;
        let admission = self.shared.decide(&key, cost, Op::Spend(cost)).await?;
        if admission.wait().is_zero() {
            return Ok(());
        }
        self.shared.settle(&key, &admission, 0).await?;
        Err(admission.to_denial(cost).into())
    }

    /// Replaces all limits of this limiter and its clones in this process. Other processes keep their limits until they do the
    /// same.
    ///
    /// A limit with the same name and algorithm as a current one keeps its state, and honours debt up to what the old limit
    /// allowed. Any other limit starts empty. Limits that are no longer named are removed, and their state expires. A sliding
    /// counter with another window length continues with its estimate at the next call for a key.
    ///
    /// Makes no call to Redis. Calls in progress finish with the old limits.
    ///
    /// # Errors
    /// A limit is not valid, or another limit over this connection has the same id. Then the current limits stay.
    pub fn replace(&self, limits: Limits) -> Result<(), InvalidLimiter> {
        let limits = limits.validate()?;
        let shared = &*self.shared;
        let numbered = shared.id_overrides.with_limit_ids(&limits)?;
        let in_force = shared.claimed.write();
        let mut in_force = in_force.unwrap_or_else(PoisonError::into_inner);
        let number = |name: &LimitName, _: &Limit| shared.id_overrides.limit_id(name);
        let limits = ActiveLimits::from_limits(in_force.active_limits.list(), limits, number)?;
        in_force.claim.replace(&numbered)?;
        in_force.active_limits = Arc::new(limits);
        Ok(())
    }
}

impl RedisLimiterInner {
    pub(super) fn new(
        redis: &Redis,
        limits: Vec<(LimitName, Limit)>,
        choice: LimitIdOverrides,
        hold: Nanos,
        pause: JitteredSleeper,
        lines: WaitQueues,
    ) -> Result<Self, InvalidLimiter> {
        let claim = redis.claim(&choice.with_limit_ids(&limits)?)?;
        let limits = ActiveLimits::from_limits(&[], limits, |name, _| choice.limit_id(name))?;
        let limits = Arc::new(limits);
        Ok(Self {
            redis: redis.clone(),
            claimed: RwLock::new(ClaimedLimits {
                active_limits: limits,
                claim,
            }),
            id_overrides: choice,
            hold,
            sleeper: pause,
            wait_queues: lines,
        })
    }

    pub(super) fn redis(&self) -> &Redis {
        &self.redis
    }

    /// The current limits. Returns a clone, because no lock may be held over an await.
    pub(super) fn active_limits(&self) -> Arc<ActiveLimits> {
        let in_force = self.claimed.read();
        let in_force = in_force.unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&in_force.active_limits)
    }

    /// Decides on every current limit.
    pub(super) async fn decide(
        &self,
        key: &store::StoreKey<'_>,
        cost: u64,
        op: Op,
    ) -> Result<Admission, Error> {
        self.decide_with(&self.active_limits(), key, cost, op).await
    }

    /// Decides on every limit, all or nothing, in one call.
    pub(super) async fn decide_with(
        &self,
        limits: &Arc<ActiveLimits>,
        key: &store::StoreKey<'_>,
        cost: u64,
        op: Op,
    ) -> Result<Admission, Error> {
        let mut admission = Admission::with_empty_replies(limits, cost, op);
        let list = limits.list();
        let checks = list.iter().map(|limit| check(key, &limit.identified, op));
        let checks: Vec<_> = checks.collect();
        let Some(replies) = admission.replies.get_mut(..list.len()) else {
            let detail = "more limits than reply slots";
            return Err(StoreError::new(StoreErrorKind::BadRequest, detail).into());
        };
        let verdict = self.redis.store().decide(&checks, replies).await?;
        if verdict.is_admitted() {
            return Ok(admission);
        }
        Err(denial(list, &admission.replies, &verdict, cost))
    }

    /// Corrects a charge to `actual` on every limit that was charged and is still active.
    pub(super) async fn settle(
        &self,
        key: &store::StoreKey<'_>,
        admission: &Admission,
        actual: u64,
    ) -> Result<(), Error> {
        let limits = self.active_limits();
        let checks: Vec<_> = settlement_ops(&limits, admission, actual)
            .map(|(limit, op)| check(key, limit, op))
            .collect();
        Ok(release_queue::decide_ignoring_replies(self.redis.store(), &checks).await?)
    }
}

fn check<'a>(key: &store::StoreKey<'a>, limit: &'a IdentifiedLimit, op: Op) -> QuotaCheck<'a> {
    QuotaCheck {
        key: *key,
        limit,
        op,
    }
}

impl fmt::Debug for Limiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limits = self.shared.active_limits();
        let names = limits.list().iter().map(|limit| &limit.name);
        f.debug_tuple("Limiter")
            .field(&names.collect::<Vec<_>>())
            .finish()
    }
}
