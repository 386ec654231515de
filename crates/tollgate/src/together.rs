//! Several limiters, each with its own key and cost, decided as one: all are charged or none is.
//!
//! Must not know: how state is kept, how to wait.

use std::sync::Arc;

use tollgate_core::compose::Verdict;
use tollgate_store as store;
use tollgate_store::contract::MAX_CHECKS;
use tollgate_store::{Answer, Check, Clock, ErrorKind, Op, Store as _, StoreError, SystemClock};

use crate::denied::{Denied, Error};
use crate::key::{AsKey, KeyTooLong};
use crate::limiter::Limiter;
use crate::rules::{Rule, Rules};

/// One limiter's part in [`check_all`].
#[derive(Clone, Copy, Debug)]
#[must_use = "it is only asked by `check_all`"]
pub struct Ask<'a, C = SystemClock> {
    limiter: &'a Limiter<C>,
    key: Result<store::Key<'a>, KeyTooLong>,
    cost: u64,
}

impl<C: Clock> Limiter<C> {
    /// This limiter's part in [`check_all`]: one unit on this key, unless [`cost`](Ask::cost) says otherwise.
    pub fn ask<'a>(&'a self, key: &'a (impl AsKey + ?Sized)) -> Ask<'a, C> {
        Ask {
            limiter: self,
            key: key.as_key(),
            cost: 1,
        }
    }
}

impl<C> Ask<'_, C> {
    /// Asks for so many units.
    pub const fn cost(mut self, units: u64) -> Self {
        self.cost = units;
        self
    }
}

/// Asks several limiters at one instant. If all admit, all are charged; if one denies, none is, and the denial names it.
///
/// The limiters must share a table: build all but the first [beside](crate::Builder::beside) it. Together they may have
/// 32 limits. A place in a queue that would have to be waited for counts as admitted; use plain buckets here.
///
/// ```
/// use tollgate::{check_all, Limiter};
///
/// let per_user = Limiter::per_minute(60).name("per-user").build()?;
/// let everyone = Limiter::per_second(1_000).name("everyone").beside(&per_user).build()?;
/// let tokens = Limiter::per_minute(50_000).name("tokens").beside(&per_user).build()?;
///
/// check_all(&[
///     per_user.ask("alice"),
///     everyone.ask(""),
///     tokens.ask("alice").cost(1_200),
/// ])?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// A limit denies, a key is too long, or the call makes no sense: limiters that share no table, the same key twice on one
/// limiter, more than 32 limits.
pub fn check_all<C: Clock>(asks: &[Ask<'_, C>]) -> Result<(), Error> {
    let Some(first) = asks.first() else {
        return Ok(());
    };
    let table = &first.limiter.shared.table;
    let mut in_force = Vec::with_capacity(asks.len());
    for ask in asks {
        if !Arc::ptr_eq(&ask.limiter.shared.table, table) {
            let detail = "the limiters do not share a table: build one beside the other";
            return Err(StoreError::new(ErrorKind::BadRequest, detail).into());
        }
        // Not the lock: one thread that takes it twice, with a writer in between, waits for itself.
        in_force.push((ask.key?, ask.cost, Arc::clone(&ask.limiter.shared.rules())));
    }
    let batch = Batch { parts: in_force };
    let checks = batch.checks()?;
    let mut answers = [Answer::EMPTY; MAX_CHECKS];
    let Some(room) = answers.get_mut(..checks.len()) else {
        return Ok(());
    };
    let verdict = table.memory.decide(&checks, room)?;
    batch.conclude(&verdict, &answers)
}

/// Several limiters' limits in one list, whatever store is asked.
pub(crate) struct Batch<'a> {
    /// Key, cost and limits of each.
    pub(crate) parts: Vec<(store::Key<'a>, u64, Arc<Rules>)>,
}

impl<'a> Batch<'a> {
    /// One check for each limit.
    pub(crate) fn checks(&self) -> Result<Vec<Check<'_>>, Error> {
        let checks: Vec<_> = self
            .limits()
            .map(|(key, cost, rule)| Check {
                key: *key,
                ruled: &rule.ruled,
                op: Op::Spend(cost),
            })
            .collect();
        if checks.len() > MAX_CHECKS {
            let detail = format!("{} limits at once, and the most is 32", checks.len());
            return Err(StoreError::new(ErrorKind::BadRequest, detail).into());
        }
        Ok(checks)
    }

    /// Yes, or the denial by the limit that has to be waited for longest.
    pub(crate) fn conclude(&self, verdict: &Verdict, answers: &[Answer]) -> Result<(), Error> {
        if verdict.is_admitted() {
            return Ok(());
        }
        let binding = self
            .limits()
            .zip(answers)
            .nth(verdict.binding().unwrap_or(0))
            .map(|((_, cost, rule), answer)| {
                Denied::new(rule.name.clone(), cost, answer.outcome, answer.status)
            });
        binding.map_or(Ok(()), |denied| Err(denied.into()))
    }

    fn limits(&self) -> impl Iterator<Item = (&store::Key<'a>, u64, &Rule)> {
        self.parts
            .iter()
            .flat_map(|(key, cost, rules)| rules.list().iter().map(move |rule| (key, *cost, rule)))
    }
}
