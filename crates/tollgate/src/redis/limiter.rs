//! The limiter over Redis: its limits, its server, and the plain yes or no.
//!
//! The verbs that do more are in files of their own. Must not know: how calls are made, what keys mean.

use std::fmt;
use std::sync::Arc;

use tollgate_core::Nanos;
use tollgate_store as store;
use tollgate_store::{Check, ErrorKind, Op, Ruled, StoreError};

use super::errands;
use super::server::{Claim, Redis};
use crate::allowed::Allowed;
use crate::ask::denial;
use crate::denied::Error;
use crate::key::AsKey;
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
    pub(super) rules: Arc<Rules>,
    pub(super) claim: Claim,
    pub(super) hold: Nanos,
    pub(super) pause: Pause,
    pub(super) lines: Lines,
}

impl Limiter {
    /// Spends one unit of every limit, or nothing of any: yes or no.
    ///
    /// Yes means now. A place in a queue that would make the caller wait is given back, by a second call, and counts
    /// as no.
    ///
    /// # Errors
    /// A limit denies, the key is too long, or the server did not decide.
    pub async fn check(&self, key: impl AsKey) -> Result<(), Error> {
        self.check_n(key, 1).await
    }

    /// Spends `cost` units of every limit, or nothing of any.
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
}

impl Shared {
    pub(super) fn redis(&self) -> &Redis {
        &self.claim.redis
    }

    /// Asks every limit, all or nothing, in one call.
    pub(super) async fn decide(
        &self,
        key: &store::Key<'_>,
        cost: u64,
        op: Op,
    ) -> Result<Allowed, Error> {
        let mut allowed = Allowed::unanswered(&self.rules, cost, op);
        let list = self.rules.list();
        let checks: Vec<_> = self.checks(key, op).collect();
        let Some(answers) = allowed.answers.get_mut(..list.len()) else {
            let detail = "there are more limits than there is room for answers";
            return Err(StoreError::new(ErrorKind::BadRequest, detail).into());
        };
        let verdict = self.redis().store().decide(&checks, answers).await?;
        if verdict.is_admitted() {
            return Ok(allowed);
        }
        Err(denial(list, &allowed.answers, &verdict, cost))
    }

    /// Corrects a charge to `actual` on every limit that it was made on.
    pub(super) async fn settle(
        &self,
        key: &store::Key<'_>,
        allowed: &Allowed,
        actual: u64,
    ) -> Result<(), Error> {
        let checks: Vec<_> = settlements(&self.rules, allowed, actual)
            .map(|(ruled, op)| check(key, ruled, op))
            .collect();
        Ok(errands::decide(self.redis().store(), &checks).await?)
    }

    fn checks<'a>(
        &'a self,
        key: &store::Key<'a>,
        op: Op,
    ) -> impl Iterator<Item = Check<'a>> + use<'a> {
        let key = *key;
        let list = self.rules.list().iter();
        list.map(move |rule| check(&key, &rule.ruled, op))
    }
}

fn check<'a>(key: &store::Key<'a>, ruled: &'a Ruled, op: Op) -> Check<'a> {
    Check {
        key: *key,
        ruled,
        op,
    }
}

impl fmt::Debug for Limiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.shared.rules.list().iter().map(|rule| &rule.name);
        f.debug_tuple("Limiter")
            .field(&names.collect::<Vec<_>>())
            .finish()
    }
}
