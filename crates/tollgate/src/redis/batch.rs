//! Several limiters over one server, each with its own key and cost, decided by one script call.
//!
//! Must not know: how calls are made, how to wait.

use tollgate_store as store;
use tollgate_store::contract::MAX_CHECKS;
use tollgate_store::{StoreError, StoreErrorKind, StoreReply};

use super::connection::Redis;
use super::limiter::Limiter;
use super::release_queue;
use crate::batch::{LimiterBatch, refund_empty_batch, reply_slots};
use crate::batch_admission::BatchAdmission;
use crate::error::Error;
use crate::key::{AsKey, KeyTooLong};

/// One limiter's part in [`check_all`].
#[derive(Clone, Copy, Debug)]
#[must_use = "it is only asked by `check_all`"]
pub struct CheckItem<'a> {
    limiter: &'a Limiter,
    key: Result<store::StoreKey<'a>, KeyTooLong>,
    cost: u64,
}

impl Limiter {
    /// This limiter's part in [`check_all`]: one unit on this key, unless [`cost`](Ask::cost) says otherwise.
    pub fn for_key<'a>(&'a self, key: &'a (impl AsKey + ?Sized)) -> CheckItem<'a> {
        CheckItem {
            limiter: self,
            key: key.as_key(),
            cost: 1,
        }
    }
}

impl CheckItem<'_> {
    /// Asks for so many units.
    pub const fn cost(mut self, units: u64) -> Self {
        self.cost = units;
        self
    }
}

/// Asks several limiters at one instant, in one call. If all admit, all are charged; if one denies, none is, and the
/// denial names it. The answer is that of [`check_all` in memory](crate::check_all): where every limit stands, what was
/// charged on it, and the proof that [`refund_all`] needs.
///
/// The limiters must be over one [`Redis`](super::Redis) or its clones. Together they may have 32 limits. A place in a
/// queue counts as admitted, and [`AllAllowed::wait`] says how long it has to be waited for.
///
/// ```no_run
/// use tollgate::Limiter;
/// use tollgate::redis::{Redis, check_all, refund_all};
///
/// # async fn example(redis: &Redis) -> Result<(), Box<dyn std::error::Error>> {
/// let requests = Limiter::per_minute(60).name("requests").over(redis).build()?;
/// let tokens = Limiter::per_minute(90_000).name("tokens").over(redis).build()?;
/// let asks = [requests.ask("team-7"), tokens.ask("team-7").cost(1_200)];
/// let allowed = check_all(&asks).await?;
/// for standing in allowed.limits() {
///     println!("{}: {} of {} left", standing.name, standing.remaining, standing.limit);
/// }
/// // The work was not done after all.
/// refund_all(&asks, allowed).await?;
/// # Ok(())
/// # }
/// ```
///
/// Dropping the future in the middle of the call [may leave its charge](super#when-a-future-is-dropped).
///
/// # Errors
/// A limit denies, a key is too long, the call makes no sense (limiters over different servers, the same key twice on one
/// limiter, more than 32 limits), or the server did not decide.
pub async fn check_all(asks: &[CheckItem<'_>]) -> Result<BatchAdmission, Error> {
    let Some((redis, batch)) = build_batch(asks)? else {
        return Ok(BatchAdmission::new(Vec::new()));
    };
    let checks = batch.checks()?;
    let mut answers = [StoreReply::EMPTY; MAX_CHECKS];
    let decided = redis
        .store()
        .decide(&checks, reply_slots(&mut answers, &checks));
    let verdict = decided.await?;
    batch.to_admission(&verdict, &answers)
}

/// Gives back what [`check_all`] charged, to all limiters in one call, once: the proof is used up. Hand in what was asked,
/// in the same order; costs are read from the proof. What time has already given back is not given back again.
///
/// # Errors
/// A key is too long, these are not as many limiters as were charged, or the server did not decide. If it
/// [may have](Error::may_have_charged), the refund may have been made.
pub async fn refund_all(asks: &[CheckItem<'_>], allowed: BatchAdmission) -> Result<(), Error> {
    let Some((redis, batch)) = build_batch(asks)? else {
        return refund_empty_batch(&allowed);
    };
    let allowed = allowed.into_parts();
    Ok(
        release_queue::decide_ignoring_replies(redis.store(), &batch.refund_checks(&allowed)?)
            .await?,
    )
}

/// The server that these limiters share, and their limits in force; nothing if there is no limiter.
fn build_batch<'a>(asks: &[CheckItem<'a>]) -> Result<Option<(&'a Redis, LimiterBatch<'a>)>, Error> {
    let Some(first) = asks.first() else {
        return Ok(None);
    };
    let redis = first.limiter.shared.redis();
    let mut parts = Vec::with_capacity(asks.len());
    for ask in asks {
        let shared = &ask.limiter.shared;
        if !shared.redis().is_same(redis) {
            let detail = "the limiters do not share a connection: build them over one";
            return Err(StoreError::new(StoreErrorKind::BadRequest, detail).into());
        }
        parts.push((ask.key?, ask.cost, shared.active_limits()));
    }
    Ok(Some((redis, LimiterBatch { items: parts })))
}
