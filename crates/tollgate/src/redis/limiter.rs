//! The limiter over Redis: its limits, its server, and the plain yes or no.
//!
//! The verbs that do more are in files of their own. Must not know: how calls are made, what keys mean.

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

/// Decides how much each key may do, together with every other process that has the same limits over the same server.
/// Cheap to clone; clones are the same limiter.
///
/// Made by [`over`](crate::Builder::over); the [module](super) says what is different from a limiter in memory.
#[derive(Clone)]
pub struct Limiter {
    pub(super) shared: Arc<RedisLimiterInner>,
}

/// What clones have in common.
pub(super) struct RedisLimiterInner {
    redis: Redis,
    claimed: RwLock<ClaimedLimits>,
    id_overrides: LimitIdOverrides,
    pub(super) hold: Nanos,
    pub(super) sleeper: JitteredSleeper,
    pub(super) wait_queues: WaitQueues,
}

/// The limits in force, and their numbers.
struct ClaimedLimits {
    active_limits: Arc<ActiveLimits>,
    claim: LimitIdClaim,
}

impl Limiter {
    /// Spends one unit of every limit, or nothing of any: yes or no.
    ///
    /// Yes means now. A place in a queue that would make the caller wait is given back, by a second call, and counts
    /// as no.
    ///
    /// Dropping the future in the middle of the call [may leave its charge](super#when-a-future-is-dropped).
    ///
    /// # Errors
    /// A limit denies, the key is too long, or the server did not decide.
    pub async fn check(&self, key: impl AsKey) -> Result<(), Error> {
        self.check_n(key, 1).await
    }

    /// Spends `cost` units of every limit, or nothing of any.
    ///
    /// Dropping the future in the middle of the call [may leave its charge](super#when-a-future-is-dropped).
    ///
    /// # Errors
    /// A limit denies, the key is too long, or the server did not decide.
    pub async fn check_n(&self, key: impl AsKey, cost: u64) -> Result<(), Error> {
        let key = key.as_key()?;
        let allowed = self.shared.decide(&key, cost, Op::Spend(cost)).await?;
        if allowed.wait().is_zero() {
            return Ok(());
        }
        self.shared.settle(&key, &allowed, 0).await?;
        Err(allowed.to_denial(cost).into())
    }

    /// Replaces all limits, at once and for everyone in this process who has this limiter. Other processes keep theirs until
    /// they do the same. A limit of the same name and algorithm goes on with its state, and reads debt as far as the limit
    /// before it has lent; others start afresh; those that are not named any more are gone, and time removes their state. A
    /// sliding counter whose window gets another length goes on with what it estimates when its key is next asked for.
    ///
    /// Asks the server nothing. Calls under way finish under the old limits.
    ///
    /// # Errors
    /// The limits cannot be honoured, or another limit over this connection has the number of one; then those in force
    /// stay.
    pub fn replace(&self, limits: Limits) -> Result<(), InvalidLimiter> {
        let limits = limits.validate()?;
        let shared = &*self.shared;
        let numbered = shared.id_overrides.with_limit_ids(&limits)?;
        let in_force = shared.claimed.write();
        let mut in_force = in_force.unwrap_or_else(PoisonError::into_inner);
        let number = |name: &LimitName| shared.id_overrides.limit_id(name);
        let rules = ActiveLimits::from_limits(in_force.active_limits.list(), limits, number)?;
        in_force.claim.replace(&numbered)?;
        in_force.active_limits = Arc::new(rules);
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
        let rules = ActiveLimits::from_limits(&[], limits, |name| choice.limit_id(name))?;
        let rules = Arc::new(rules);
        Ok(Self {
            redis: redis.clone(),
            claimed: RwLock::new(ClaimedLimits {
                active_limits: rules,
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

    /// The limits in force. A copy, because no lock may be held while a call is under way.
    pub(super) fn active_limits(&self) -> Arc<ActiveLimits> {
        let in_force = self.claimed.read();
        let in_force = in_force.unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&in_force.active_limits)
    }

    /// Asks every limit in force.
    pub(super) async fn decide(
        &self,
        key: &store::StoreKey<'_>,
        cost: u64,
        op: Op,
    ) -> Result<Admission, Error> {
        self.decide_with(&self.active_limits(), key, cost, op).await
    }

    /// Asks every limit, all or nothing, in one call.
    pub(super) async fn decide_with(
        &self,
        rules: &Arc<ActiveLimits>,
        key: &store::StoreKey<'_>,
        cost: u64,
        op: Op,
    ) -> Result<Admission, Error> {
        let mut allowed = Admission::with_empty_replies(rules, cost, op);
        let list = rules.list();
        let checks = list.iter().map(|rule| check(key, &rule.identified, op));
        let checks: Vec<_> = checks.collect();
        let Some(answers) = allowed.replies.get_mut(..list.len()) else {
            let detail = "there are more limits than there is room for answers";
            return Err(StoreError::new(StoreErrorKind::BadRequest, detail).into());
        };
        let verdict = self.redis.store().decide(&checks, answers).await?;
        if verdict.is_admitted() {
            return Ok(allowed);
        }
        Err(denial(list, &allowed.replies, &verdict, cost))
    }

    /// Corrects a charge to `actual` on every limit that it was made on and that is still in force.
    pub(super) async fn settle(
        &self,
        key: &store::StoreKey<'_>,
        allowed: &Admission,
        actual: u64,
    ) -> Result<(), Error> {
        let rules = self.active_limits();
        let checks: Vec<_> = settlement_ops(&rules, allowed, actual)
            .map(|(ruled, op)| check(key, ruled, op))
            .collect();
        Ok(release_queue::decide_ignoring_replies(self.redis.store(), &checks).await?)
    }
}

fn check<'a>(key: &store::StoreKey<'a>, ruled: &'a IdentifiedLimit, op: Op) -> QuotaCheck<'a> {
    QuotaCheck {
        key: *key,
        limit: ruled,
        op,
    }
}

impl fmt::Debug for Limiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rules = self.shared.active_limits();
        let names = rules.list().iter().map(|rule| &rule.name);
        f.debug_tuple("Limiter")
            .field(&names.collect::<Vec<_>>())
            .finish()
    }
}
