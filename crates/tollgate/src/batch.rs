//! Several limiters, each with its own key and cost, decided as one: all are charged or none is.
//!
//! Must not know: how state is kept, how to wait.

use std::sync::Arc;

use tollgate_core::compose::BatchOutcome;
use tollgate_store as store;
use tollgate_store::contract::MAX_CHECKS;
use tollgate_store::{
    Clock, Op, QuotaCheck, Store as _, StoreError, StoreErrorKind, StoreReply, SystemClock,
};

use crate::active_limits::{ActiveLimit, ActiveLimits};
use crate::admission::Admission;
use crate::batch_admission::BatchAdmission;
use crate::error::{Denial, Error};
use crate::key::{AsKey, KeyTooLong};
use crate::limit_name::LimitName;
use crate::limit_table::LimitTable;
use crate::limiter::Limiter;
use crate::limits::Limits;
use crate::operations::settlement_ops;

/// One limiter's part in [`check_all`].
#[derive(Clone, Copy, Debug)]
#[must_use = "it is only asked by `check_all`"]
pub struct CheckItem<'a, C = SystemClock> {
    limiter: &'a Limiter<C>,
    key: Result<store::StoreKey<'a>, KeyTooLong>,
    cost: u64,
}

impl<C: Clock> Limiter<C> {
    /// This limiter's part in [`check_all`]: one unit on this key, unless [`cost`](Ask::cost) says otherwise.
    pub fn for_key<'a>(&'a self, key: &'a (impl AsKey + ?Sized)) -> CheckItem<'a, C> {
        CheckItem {
            limiter: self,
            key: key.as_key(),
            cost: 1,
        }
    }
}

impl<C> CheckItem<'_, C> {
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
pub fn check_all<C: Clock>(asks: &[CheckItem<'_, C>]) -> Result<BatchAdmission, Error> {
    let Some((table, batch)) = build_batch(asks)? else {
        return Ok(BatchAdmission::new(Vec::new()));
    };
    let checks = batch.checks()?;
    let mut answers = [StoreReply::EMPTY; MAX_CHECKS];
    let verdict = table
        .memory
        .decide(&checks, reply_slots(&mut answers, &checks))?;
    batch.to_admission(&verdict, &answers)
}

/// Gives back what [`check_all`] charged, to all limiters at one instant, once: the proof is used up. Hand in what was
/// asked, in the same order; costs are read from the proof. What time has already given back is not given back
/// again, and limits that were [replaced](Limiter::replace) by others since have nothing to get.
///
/// # Errors
/// A key is too long, or these are not as many limiters as were charged.
pub fn refund_all<C: Clock>(
    asks: &[CheckItem<'_, C>],
    allowed: BatchAdmission,
) -> Result<(), Error> {
    let Some((table, batch)) = build_batch(asks)? else {
        return refund_empty_batch(&allowed);
    };
    let allowed = allowed.into_parts();
    let checks = batch.refund_checks(&allowed)?;
    let mut answers = [StoreReply::EMPTY; MAX_CHECKS];
    let _verdict = table
        .memory
        .decide(&checks, reply_slots(&mut answers, &checks))?;
    Ok(())
}

/// The table that these limiters share, and their limits in force; nothing if there is no limiter.
fn build_batch<'a, C: Clock>(
    asks: &[CheckItem<'a, C>],
) -> Result<Option<(&'a LimitTable<C>, LimiterBatch<'a>)>, Error> {
    let Some(first) = asks.first() else {
        return Ok(None);
    };
    let table = &first.limiter.shared.table;
    let mut parts = Vec::with_capacity(asks.len());
    for ask in asks {
        if !Arc::ptr_eq(&ask.limiter.shared.table, table) {
            let detail = "the limiters do not share a table: build one beside the other";
            return Err(StoreError::new(StoreErrorKind::BadRequest, detail).into());
        }
        // Not the lock: one thread that takes it twice, with a writer in between, waits for itself.
        parts.push((
            ask.key?,
            ask.cost,
            Arc::clone(&ask.limiter.shared.active_limits()),
        ));
    }
    Ok(Some((table, LimiterBatch { items: parts })))
}

/// As many answers as there are checks; fewer only if there are more checks than a store takes, which it says itself.
pub(crate) fn reply_slots<'a>(
    answers: &'a mut [StoreReply; MAX_CHECKS],
    checks: &[QuotaCheck<'_>],
) -> &'a mut [StoreReply] {
    let count = checks.len().min(answers.len());
    answers.get_mut(..count).unwrap_or_default()
}

/// Giving nothing back to nobody is fine; giving something back to nobody is a mistake.
pub(crate) fn refund_empty_batch(allowed: &BatchAdmission) -> Result<(), Error> {
    match allowed.parts() {
        [] => Ok(()),
        _ => Err(refund_mismatch()),
    }
}

fn refund_mismatch() -> Error {
    let detail = "a refund must name the limiters that were asked, in the same order";
    StoreError::new(StoreErrorKind::BadRequest, detail).into()
}

/// Several limiters' limits in one list, whatever store is asked.
pub(crate) struct LimiterBatch<'a> {
    /// Key, cost and limits of each.
    pub(crate) items: Vec<(store::StoreKey<'a>, u64, Arc<ActiveLimits>)>,
}

impl<'a> LimiterBatch<'a> {
    /// One check for each limit.
    pub(crate) fn checks(&self) -> Result<Vec<QuotaCheck<'_>>, Error> {
        let checks: Vec<_> = self
            .limits()
            .map(|(key, cost, rule)| QuotaCheck {
                key: *key,
                limit: &rule.identified,
                op: Op::Spend(cost),
            })
            .collect();
        if checks.len() > MAX_CHECKS {
            let detail = format!("{} limits at once, and the most is 32", checks.len());
            return Err(StoreError::new(StoreErrorKind::BadRequest, detail).into());
        }
        Ok(checks)
    }

    /// One correction for each limit that was charged and is still in force.
    pub(crate) fn refund_checks<'b>(
        &'b self,
        allowed: &'b [Admission],
    ) -> Result<Vec<QuotaCheck<'b>>, Error> {
        if allowed.len() != self.items.len() {
            return Err(refund_mismatch());
        }
        let pairs = self.items.iter().zip(allowed);
        let checks = pairs.flat_map(|((key, _, rules), allowed)| {
            settlement_ops(rules, allowed, 0).map(|(ruled, op)| QuotaCheck {
                key: *key,
                limit: ruled,
                op,
            })
        });
        Ok(checks.collect())
    }

    /// What each limiter answers, or the denial by the limit that has to be waited for longest.
    pub(crate) fn to_admission(
        &self,
        verdict: &BatchOutcome,
        answers: &[StoreReply],
    ) -> Result<BatchAdmission, Error> {
        if !verdict.is_admitted() {
            let binding = verdict.binding().unwrap_or(0);
            let (name, cost, answer) = self.limits().zip(answers).nth(binding).map_or(
                (LimitName::literal(Limits::UNNAMED), 0, &StoreReply::EMPTY),
                |((_, cost, rule), answer)| (rule.name.clone(), cost, answer),
            );
            return Err(Denial::new(name, cost, answer.outcome, answer.status).into());
        }
        let mut rest = answers.iter();
        let parts = self.items.iter().map(|(_, cost, rules)| {
            let mut allowed = Admission::with_empty_replies(rules, *cost, Op::Spend(*cost));
            for (slot, _rule) in allowed.replies.iter_mut().zip(rules.list()) {
                *slot = rest.next().copied().unwrap_or(StoreReply::EMPTY);
            }
            allowed
        });
        Ok(BatchAdmission::new(parts.collect()))
    }

    fn limits(&self) -> impl Iterator<Item = (&store::StoreKey<'a>, u64, &ActiveLimit)> {
        self.items
            .iter()
            .flat_map(|(key, cost, rules)| rules.list().iter().map(move |rule| (key, *cost, rule)))
    }
}
