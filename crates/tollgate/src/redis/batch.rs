//! `check_all` and `refund_all` over Redis: several limiters, each with its own key and cost, in one script call.
//!
//! Must not know: how calls are made, how to wait.

use tollgate_store as store;
use tollgate_store::{StoreError, StoreErrorKind, StoreReply};

use super::connection::Redis;
use super::limiter::Limiter;
use super::release_queue;
use crate::batch::{LimiterBatch, refund_empty_batch};
use crate::batch_admission::BatchAdmission;
use crate::error::Error;
use crate::key::{AsKey, KeyTooLong};

/// One limiter with its key and cost, for [`check_all`]. Created by [`Limiter::for_key`].
#[derive(Clone, Copy, Debug)]
#[must_use = "it does nothing until `check_all` is called"]
pub struct CheckItem<'a> {
    limiter: &'a Limiter,
    key: Result<store::StoreKey<'a>, KeyTooLong>,
    cost: u64,
}

impl Limiter {
    /// An item for [`check_all`]: this key with a cost of one unit. Set another cost with [`cost`](CheckItem::cost).
    pub fn for_key<'a>(&'a self, key: &'a (impl AsKey + ?Sized)) -> CheckItem<'a> {
        CheckItem {
            limiter: self,
            key: key.as_key(),
            cost: 1,
        }
    }
}

impl CheckItem<'_> {
    /// Sets the cost in units.
    pub const fn cost(mut self, units: u64) -> Self {
        self.cost = units;
        self
    }
}

/// Checks several limiters at one instant, in one call. If all admit, all are charged. If one denies, none is charged and the
/// denial names it. The admission is that of [`check_all` in memory](crate::check_all), and is the receipt that
/// [`refund_all`] needs.
///
/// The limiters must use one [`Redis`](super::Redis) or its clones. Together they may have 128 limits. A slot in a queue
/// counts as admitted; [`BatchAdmission::wait`] says how long the caller must wait.
///
/// ```no_run
/// use tollgate::Limiter;
/// use tollgate::redis::{Redis, check_all, refund_all};
///
/// # async fn example(redis: &Redis) -> Result<(), Box<dyn std::error::Error>> {
/// let requests = Limiter::per_minute(60).name("requests").with_redis(redis).build()?;
/// let tokens = Limiter::per_minute(90_000).name("tokens").with_redis(redis).build()?;
/// let items = [requests.for_key("team-7"), tokens.for_key("team-7").cost(1_200)];
/// let admission = check_all(&items).await?;
/// for status in admission.limits() {
///     println!("{}: {} of {} left", status.name, status.remaining, status.limit);
/// }
/// // The work was not done: refund both limiters.
/// refund_all(&items, admission).await?;
/// # Ok(())
/// # }
/// ```
///
/// Dropping the future in the middle of the call [may leave its charge](super#when-a-future-is-dropped).
///
/// # Errors
/// A limit denies, a key is too long, the server did not decide, or the call is invalid: the limiters use different
/// connections, a limiter has the same key twice, or there are more than 128 limits.
pub async fn check_all(items: &[CheckItem<'_>]) -> Result<BatchAdmission, Error> {
    let Some((redis, batch)) = build_batch(items)? else {
        return Ok(BatchAdmission::new(Vec::new()));
    };
    let checks = batch.checks()?;
    let mut replies = vec![StoreReply::EMPTY; checks.len()];
    let verdict = redis.store().decide(&checks, &mut replies).await?;
    batch.to_admission(&verdict, &replies)
}

/// Refunds what [`check_all`] charged, on all limiters in one call. Pass the same items in the same order; the costs come
/// from the admission, which is consumed. Units that were refilled since are not refunded.
///
/// # Errors
/// A key is too long, the number of items is not the number of limiters that were charged, or the server did not decide. If
/// [`may_have_charged`](Error::may_have_charged) is true, the refund may have been made.
pub async fn refund_all(items: &[CheckItem<'_>], admission: BatchAdmission) -> Result<(), Error> {
    let Some((redis, batch)) = build_batch(items)? else {
        return refund_empty_batch(&admission);
    };
    let admission = admission.into_parts();
    Ok(
        release_queue::decide_ignoring_replies(redis.store(), &batch.refund_checks(&admission)?)
            .await?,
    )
}

/// The shared connection and the current limits of these limiters. `None` if there are no items.
fn build_batch<'a>(
    items: &[CheckItem<'a>],
) -> Result<Option<(&'a Redis, LimiterBatch<'a>)>, Error> {
    let Some(first) = items.first() else {
        return Ok(None);
    };
    let redis = first.limiter.shared.redis();
    let mut parts = Vec::with_capacity(items.len());
    for item in items {
        let shared = &item.limiter.shared;
        if !shared.redis().is_same(redis) {
            let detail = "the limiters do not share a connection: build them with one `Redis`";
            return Err(StoreError::new(StoreErrorKind::BadRequest, detail).into());
        }
        parts.push((item.key?, item.cost, shared.active_limits()));
    }
    Ok(Some((redis, LimiterBatch { items: parts })))
}
