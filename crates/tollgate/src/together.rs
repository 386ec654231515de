//! Several limiters, each with its own key and cost, decided as one: all are charged or none is.
//!
//! Must not know: how state is kept, how to wait.

use std::sync::Arc;

use tollgate_core::compose::BatchOutcome;
use tollgate_store as store;
use tollgate_store::contract::MAX_CHECKS;
use tollgate_store::{
    Clock, ErrorKind, Op, QuotaCheck, Store as _, StoreError, StoreReply, SystemClock,
};

use crate::all_allowed::AllAllowed;
use crate::allowed::Allowed;
use crate::denied::{Denied, Error};
use crate::key::{AsKey, KeyTooLong};
use crate::limiter::Limiter;
use crate::limits::Limits;
use crate::name::Name;
use crate::rules::{Rule, Rules};
use crate::table::Table;
use crate::verbs::settlements;

/// One limiter's part in [`check_all`].
#[derive(Clone, Copy, Debug)]
#[must_use = "it is only asked by `check_all`"]
pub struct Ask<'a, C = SystemClock> {
    limiter: &'a Limiter<C>,
    key: Result<store::StoreKey<'a>, KeyTooLong>,
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
/// The answer says where every limit stands and what was charged on it, and is the proof that [`refund_all`] needs.
///
/// The limiters must share a table: build all but the first [beside](crate::Builder::beside) it. Together they may have
/// 32 limits. A place in a queue counts as admitted, and [`AllAllowed::wait`] says how long it has to be waited for.
///
/// ```
/// use tollgate::{Error, Limiter, check_all};
///
/// let per_user = Limiter::per_day(60).name("per-user").build()?;
/// let everyone = Limiter::per_second(1_000).name("everyone").beside(&per_user).build()?;
/// let tokens = Limiter::per_minute(50_000).name("tokens").beside(&per_user).build()?;
/// let request = |cost| {
///     check_all(&[per_user.ask("alice"), everyone.ask(""), tokens.ask("alice").cost(cost)])
/// };
///
/// let allowed = request(1_200)?;
/// for standing in allowed.limits() {
///     println!(
///         "{}: {} of {} left, {} charged, full again after {:?}",
///         standing.name, standing.remaining, standing.limit, standing.charged, standing.reset_after
///     );
/// }
/// let Err(Error::Denied(denied)) = request(60_000) else { panic!("never so many") };
/// assert_eq!(denied.limit(), "tokens");
/// assert_eq!(per_user.peek("alice")?.tightest().remaining, 59, "charged once and not twice");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// A limit denies, a key is too long, or the call makes no sense: limiters that share no table, the same key twice on one
/// limiter, more than 32 limits.
pub fn check_all<C: Clock>(asks: &[Ask<'_, C>]) -> Result<AllAllowed, Error> {
    let Some((table, batch)) = gather(asks)? else {
        return Ok(AllAllowed::of(Vec::new()));
    };
    let checks = batch.checks()?;
    let mut answers = [StoreReply::EMPTY; MAX_CHECKS];
    let verdict = table.memory.decide(&checks, room(&mut answers, &checks))?;
    batch.conclude(&verdict, &answers)
}

/// Gives back what [`check_all`] charged, to all limiters at one instant, once: the proof is used up. Hand in what was
/// asked, in the same order; costs are read from the proof. What time has already given back is not given back
/// again, and limits that were [replaced](Limiter::replace) by others since have nothing to get.
///
/// # Errors
/// A key is too long, or these are not as many limiters as were charged.
pub fn refund_all<C: Clock>(asks: &[Ask<'_, C>], allowed: AllAllowed) -> Result<(), Error> {
    let Some((table, batch)) = gather(asks)? else {
        return batch_of_none(&allowed);
    };
    let allowed = allowed.into_parts();
    let checks = batch.refunds(&allowed)?;
    let mut answers = [StoreReply::EMPTY; MAX_CHECKS];
    let _verdict = table.memory.decide(&checks, room(&mut answers, &checks))?;
    Ok(())
}

/// The table that these limiters share, and their limits in force; nothing if there is no limiter.
fn gather<'a, C: Clock>(asks: &[Ask<'a, C>]) -> Result<Option<(&'a Table<C>, Batch<'a>)>, Error> {
    let Some(first) = asks.first() else {
        return Ok(None);
    };
    let table = &first.limiter.shared.table;
    let mut parts = Vec::with_capacity(asks.len());
    for ask in asks {
        if !Arc::ptr_eq(&ask.limiter.shared.table, table) {
            let detail = "the limiters do not share a table: build one beside the other";
            return Err(StoreError::new(ErrorKind::BadRequest, detail).into());
        }
        // Not the lock: one thread that takes it twice, with a writer in between, waits for itself.
        parts.push((ask.key?, ask.cost, Arc::clone(&ask.limiter.shared.rules())));
    }
    Ok(Some((table, Batch { parts })))
}

/// As many answers as there are checks; fewer only if there are more checks than a store takes, which it says itself.
pub(crate) fn room<'a>(
    answers: &'a mut [StoreReply; MAX_CHECKS],
    checks: &[QuotaCheck<'_>],
) -> &'a mut [StoreReply] {
    let count = checks.len().min(answers.len());
    answers.get_mut(..count).unwrap_or_default()
}

/// Giving nothing back to nobody is fine; giving something back to nobody is a mistake.
pub(crate) fn batch_of_none(allowed: &AllAllowed) -> Result<(), Error> {
    match allowed.parts() {
        [] => Ok(()),
        _ => Err(mismatch()),
    }
}

fn mismatch() -> Error {
    let detail = "a refund must name the limiters that were asked, in the same order";
    StoreError::new(ErrorKind::BadRequest, detail).into()
}

/// Several limiters' limits in one list, whatever store is asked.
pub(crate) struct Batch<'a> {
    /// Key, cost and limits of each.
    pub(crate) parts: Vec<(store::StoreKey<'a>, u64, Arc<Rules>)>,
}

impl<'a> Batch<'a> {
    /// One check for each limit.
    pub(crate) fn checks(&self) -> Result<Vec<QuotaCheck<'_>>, Error> {
        let checks: Vec<_> = self
            .limits()
            .map(|(key, cost, rule)| QuotaCheck {
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

    /// One correction for each limit that was charged and is still in force.
    pub(crate) fn refunds<'b>(
        &'b self,
        allowed: &'b [Allowed],
    ) -> Result<Vec<QuotaCheck<'b>>, Error> {
        if allowed.len() != self.parts.len() {
            return Err(mismatch());
        }
        let pairs = self.parts.iter().zip(allowed);
        let checks = pairs.flat_map(|((key, _, rules), allowed)| {
            settlements(rules, allowed, 0).map(|(ruled, op)| QuotaCheck {
                key: *key,
                ruled,
                op,
            })
        });
        Ok(checks.collect())
    }

    /// What each limiter answers, or the denial by the limit that has to be waited for longest.
    pub(crate) fn conclude(
        &self,
        verdict: &BatchOutcome,
        answers: &[StoreReply],
    ) -> Result<AllAllowed, Error> {
        if !verdict.is_admitted() {
            let binding = verdict.binding().unwrap_or(0);
            let (name, cost, answer) = self.limits().zip(answers).nth(binding).map_or(
                (Name::literal(Limits::UNNAMED), 0, &StoreReply::EMPTY),
                |((_, cost, rule), answer)| (rule.name.clone(), cost, answer),
            );
            return Err(Denied::new(name, cost, answer.outcome, answer.status).into());
        }
        let mut rest = answers.iter();
        let parts = self.parts.iter().map(|(_, cost, rules)| {
            let mut allowed = Allowed::unanswered(rules, *cost, Op::Spend(*cost));
            for (slot, _rule) in allowed.answers.iter_mut().zip(rules.list()) {
                *slot = rest.next().copied().unwrap_or(StoreReply::EMPTY);
            }
            allowed
        });
        Ok(AllAllowed::of(parts.collect()))
    }

    fn limits(&self) -> impl Iterator<Item = (&store::StoreKey<'a>, u64, &Rule)> {
        self.parts
            .iter()
            .flat_map(|(key, cost, rules)| rules.list().iter().map(move |rule| (key, *cost, rule)))
    }
}
