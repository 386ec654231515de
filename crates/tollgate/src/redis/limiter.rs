//! The limiter over Redis: its limits, its server, and the plain yes or no.
//!
//! The verbs that do more are in files of their own. Must not know: how calls are made, what keys mean.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use tollgate_core::Nanos;
use tollgate_core::limit::Limit;
use tollgate_store as store;
use tollgate_store::{ErrorKind, Op, QuotaCheck, Ruled, StoreError};

use super::errands;
use super::number::Choice;
use super::server::{Claim, Redis};
use crate::allowed::Allowed;
use crate::ask::denial;
use crate::denied::Error;
use crate::invalid::InvalidLimiter;
use crate::key::AsKey;
use crate::limits::Limits;
use crate::name::Name;
use crate::pause::Pause;
use crate::ready::Lines;
use crate::rules::Rules;
use crate::verbs::settlements;

/// Decides how much each key may do, together with every other process that has the same limits over the same server.
/// Cheap to clone; clones are the same limiter.
///
/// Made by [`over`](crate::Builder::over); the [module](super) says what is different from a limiter in memory.
#[derive(Clone)]
pub struct Limiter {
    pub(super) shared: Arc<Shared>,
}

/// What clones have in common.
pub(super) struct Shared {
    redis: Redis,
    in_force: RwLock<InForce>,
    choice: Choice,
    pub(super) hold: Nanos,
    pub(super) pause: Pause,
    pub(super) lines: Lines,
}

/// The limits in force, and their numbers.
struct InForce {
    rules: Arc<Rules>,
    claim: Claim,
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
        Err(allowed.as_denial(cost).into())
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
        let limits = limits.checked()?;
        let shared = &*self.shared;
        let numbered = shared.choice.numbered(&limits)?;
        let in_force = shared.in_force.write();
        let mut in_force = in_force.unwrap_or_else(PoisonError::into_inner);
        let number = |name: &Name| shared.choice.number(name);
        let rules = Rules::following(in_force.rules.list(), limits, number)?;
        in_force.claim.change(&numbered)?;
        in_force.rules = Arc::new(rules);
        Ok(())
    }
}

impl Shared {
    pub(super) fn new(
        redis: &Redis,
        limits: Vec<(Name, Limit)>,
        choice: Choice,
        hold: Nanos,
        pause: Pause,
        lines: Lines,
    ) -> Result<Self, InvalidLimiter> {
        let claim = redis.claim(&choice.numbered(&limits)?)?;
        let rules = Rules::following(&[], limits, |name| choice.number(name))?;
        let rules = Arc::new(rules);
        Ok(Self {
            redis: redis.clone(),
            in_force: RwLock::new(InForce { rules, claim }),
            choice,
            hold,
            pause,
            lines,
        })
    }

    pub(super) fn redis(&self) -> &Redis {
        &self.redis
    }

    /// The limits in force. A copy, because no lock may be held while a call is under way.
    pub(super) fn rules(&self) -> Arc<Rules> {
        let in_force = self.in_force.read();
        let in_force = in_force.unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&in_force.rules)
    }

    /// Asks every limit in force.
    pub(super) async fn decide(
        &self,
        key: &store::StoreKey<'_>,
        cost: u64,
        op: Op,
    ) -> Result<Allowed, Error> {
        self.decide_under(&self.rules(), key, cost, op).await
    }

    /// Asks every limit, all or nothing, in one call.
    pub(super) async fn decide_under(
        &self,
        rules: &Arc<Rules>,
        key: &store::StoreKey<'_>,
        cost: u64,
        op: Op,
    ) -> Result<Allowed, Error> {
        let mut allowed = Allowed::unanswered(rules, cost, op);
        let list = rules.list();
        let checks = list.iter().map(|rule| check(key, &rule.ruled, op));
        let checks: Vec<_> = checks.collect();
        let Some(answers) = allowed.answers.get_mut(..list.len()) else {
            let detail = "there are more limits than there is room for answers";
            return Err(StoreError::new(ErrorKind::BadRequest, detail).into());
        };
        let verdict = self.redis.store().decide(&checks, answers).await?;
        if verdict.is_admitted() {
            return Ok(allowed);
        }
        Err(denial(list, &allowed.answers, &verdict, cost))
    }

    /// Corrects a charge to `actual` on every limit that it was made on and that is still in force.
    pub(super) async fn settle(
        &self,
        key: &store::StoreKey<'_>,
        allowed: &Allowed,
        actual: u64,
    ) -> Result<(), Error> {
        let rules = self.rules();
        let checks: Vec<_> = settlements(&rules, allowed, actual)
            .map(|(ruled, op)| check(key, ruled, op))
            .collect();
        Ok(errands::decide(self.redis.store(), &checks).await?)
    }
}

fn check<'a>(key: &store::StoreKey<'a>, ruled: &'a Ruled, op: Op) -> QuotaCheck<'a> {
    QuotaCheck {
        key: *key,
        ruled,
        op,
    }
}

impl fmt::Debug for Limiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rules = self.shared.rules();
        let names = rules.list().iter().map(|rule| &rule.name);
        f.debug_tuple("Limiter")
            .field(&names.collect::<Vec<_>>())
            .finish()
    }
}
