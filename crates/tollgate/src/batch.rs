//! `check_all` and `refund_all`: several limiters, each with its own key and cost, all charged or none.
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
use crate::admission::{Admission, denial_by};
use crate::batch_admission::BatchAdmission;
use crate::error::Error;
use crate::key::{AsKey, KeyTooLong};
use crate::limit_table::LimitTable;
use crate::limiter::Limiter;
use crate::operations::settlement_ops;

/// One limiter with its key and cost, for [`check_all`]. Created by [`Limiter::for_key`].
#[derive(Clone, Copy, Debug)]
#[must_use = "it does nothing until `check_all` is called"]
pub struct CheckItem<'a, C = SystemClock> {
    limiter: &'a Limiter<C>,
    key: Result<store::StoreKey<'a>, KeyTooLong>,
    cost: u64,
}

impl<C: Clock> Limiter<C> {
    /// An item for [`check_all`]: this key with a cost of one unit. Set another cost with [`cost`](CheckItem::cost).
    pub fn for_key<'a>(&'a self, key: &'a (impl AsKey + ?Sized)) -> CheckItem<'a, C> {
        CheckItem {
            limiter: self,
            key: key.as_key(),
            cost: 1,
        }
    }
}

impl<C> CheckItem<'_, C> {
    /// Sets the cost in units.
    pub const fn cost(mut self, units: u64) -> Self {
        self.cost = units;
        self
    }
}

/// Checks several limiters at one instant. If all admit, all are charged. If one denies, none is charged and the denial
/// names it. The admission has the status and the charge of every limit, and is the receipt that [`refund_all`] needs.
///
/// The limiters must [share a table](crate::LimiterBuilder::share_table_with). Together they may have 128 limits. A slot in
/// a queue counts as admitted; [`BatchAdmission::wait`] says how long the caller must wait.
///
/// ```
/// use tollgate::{Error, Limiter, check_all};
///
/// let per_user = Limiter::per_day(60).name("per-user").build()?;
/// let everyone = Limiter::per_second(1_000).name("everyone").share_table_with(&per_user).build()?;
/// let tokens = Limiter::per_minute(50_000).name("tokens").share_table_with(&per_user).build()?;
/// let request = |cost| {
///     check_all(&[per_user.for_key("alice"), everyone.for_key(""), tokens.for_key("alice").cost(cost)])
/// };
///
/// let admission = request(1_200)?;
/// for status in admission.limits() {
///     println!(
///         "{}: {} of {} left, {} charged, full again after {:?}",
///         status.name, status.remaining, status.limit, status.charged, status.reset_after
///     );
/// }
/// let Err(Error::Denied(denial)) = request(60_000) else { panic!("60,000 is above the burst") };
/// assert_eq!(denial.limit(), "tokens");
/// assert_eq!(per_user.peek("alice")?.tightest().remaining, 59, "the denied call charged nothing");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// A limit denies, a key is too long, or the call is invalid: the limiters do not share a table, a limiter has the same key
/// twice, or there are more than 128 limits.
pub fn check_all<C: Clock>(items: &[CheckItem<'_, C>]) -> Result<BatchAdmission, Error> {
    let Some((table, batch)) = build_batch(items)? else {
        return Ok(BatchAdmission::new(Vec::new()));
    };
    let checks = batch.checks()?;
    let mut replies = vec![StoreReply::EMPTY; checks.len()];
    let verdict = table.memory.decide(&checks, &mut replies)?;
    batch.to_admission(&verdict, &replies)
}

/// Refunds what [`check_all`] charged, on all limiters at one instant. Pass the same items in the same order; the costs
/// come from the admission, which is consumed. Units that were refilled since are not refunded. Limits that were
/// [replaced](Limiter::replace) by others get no refund.
///
/// # Errors
/// A key is too long, or the number of items is not the number of limiters that were charged.
pub fn refund_all<C: Clock>(
    items: &[CheckItem<'_, C>],
    admission: BatchAdmission,
) -> Result<(), Error> {
    let Some((table, batch)) = build_batch(items)? else {
        return refund_empty_batch(&admission);
    };
    let admission = admission.into_parts();
    let checks = batch.refund_checks(&admission)?;
    let mut replies = vec![StoreReply::EMPTY; checks.len()];
    let _verdict = table.memory.decide(&checks, &mut replies)?;
    Ok(())
}

/// The shared table and the current limits of these limiters. `None` if there are no items.
fn build_batch<'a, C: Clock>(
    items: &[CheckItem<'a, C>],
) -> Result<Option<(&'a LimitTable<C>, LimiterBatch<'a>)>, Error> {
    let Some(first) = items.first() else {
        return Ok(None);
    };
    let table = &first.limiter.shared.table;
    let mut parts = Vec::with_capacity(items.len());
    for item in items {
        if !Arc::ptr_eq(&item.limiter.shared.table, table) {
            let detail = "the limiters do not share a table: build them with `share_table_with`";
            return Err(StoreError::new(StoreErrorKind::BadRequest, detail).into());
        }
        // Clones the limits instead of holding the lock: one thread that takes a read lock twice can deadlock with a writer.
        parts.push((
            item.key?,
            item.cost,
            Arc::clone(&item.limiter.shared.active_limits()),
        ));
    }
    Ok(Some((table, LimiterBatch { items: parts })))
}

/// A refund without items is valid only if nothing was charged.
pub(crate) fn refund_empty_batch(admission: &BatchAdmission) -> Result<(), Error> {
    match admission.parts() {
        [] => Ok(()),
        _ => Err(refund_mismatch()),
    }
}

fn refund_mismatch() -> Error {
    let detail = "a refund needs the items of the check, in the same order";
    StoreError::new(StoreErrorKind::BadRequest, detail).into()
}

/// The limits of several limiters in one list, for any store.
pub(crate) struct LimiterBatch<'a> {
    /// Key, cost and limits of each limiter.
    pub(crate) items: Vec<(store::StoreKey<'a>, u64, Arc<ActiveLimits>)>,
}

impl<'a> LimiterBatch<'a> {
    /// One check for each limit.
    pub(crate) fn checks(&self) -> Result<Vec<QuotaCheck<'_>>, Error> {
        let checks: Vec<_> = self
            .limits()
            .map(|(key, cost, limit)| QuotaCheck {
                key: *key,
                limit: &limit.identified,
                op: Op::Spend(cost),
            })
            .collect();
        if checks.len() > MAX_CHECKS {
            let detail = format!(
                "{} limits in one batch: at most {MAX_CHECKS} are allowed",
                checks.len()
            );
            return Err(StoreError::new(StoreErrorKind::BadRequest, detail).into());
        }
        Ok(checks)
    }

    /// One settlement for each limit that was charged and is still active.
    pub(crate) fn refund_checks<'b>(
        &'b self,
        admission: &'b [Admission],
    ) -> Result<Vec<QuotaCheck<'b>>, Error> {
        if admission.len() != self.items.len() {
            return Err(refund_mismatch());
        }
        let pairs = self.items.iter().zip(admission);
        let checks = pairs.flat_map(|((key, _, limits), admission)| {
            settlement_ops(limits, admission, 0).map(|(limit, op)| QuotaCheck {
                key: *key,
                limit,
                op,
            })
        });
        Ok(checks.collect())
    }

    /// The admission of each limiter, or the denial by the limit with the longest wait.
    pub(crate) fn to_admission(
        &self,
        verdict: &BatchOutcome,
        replies: &[StoreReply],
    ) -> Result<BatchAdmission, Error> {
        if !verdict.is_admitted() {
            let binding = verdict.binding().unwrap_or(0);
            let binding = self.limits().zip(replies).nth(binding);
            let cost = binding.as_ref().map_or(0, |((_, cost, _), _)| *cost);
            let binding = binding.map(|((_, _, limit), reply)| (limit, reply));
            return Err(denial_by(binding, cost).into());
        }
        let mut rest = replies.iter();
        let parts = self.items.iter().map(|(_, cost, limits)| {
            let mut admission = Admission::with_empty_replies(limits, *cost, Op::Spend(*cost));
            for (slot, _rule) in admission.replies.iter_mut().zip(limits.list()) {
                *slot = rest.next().copied().unwrap_or(StoreReply::EMPTY);
            }
            admission
        });
        Ok(BatchAdmission::new(parts.collect()))
    }

    fn limits(&self) -> impl Iterator<Item = (&store::StoreKey<'a>, u64, &ActiveLimit)> {
        self.items.iter().flat_map(|(key, cost, limits)| {
            limits.list().iter().map(move |limit| (key, *cost, limit))
        })
    }
}
