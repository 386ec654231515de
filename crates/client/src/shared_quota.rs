//! Quotas and the retry budget that processes share through a store. Without a reply of the store, a process paces alone.
//!
//! Every request asks the store after its own turn has come, and every response that says something about limits is
//! reported to it. Must not know: which store it is, HTTP requests.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tollgate_core::{Nanos, Timestamp};
use tollgate_http::{LimitInfo, LimitUnit, RateLimitInfo};
use tollgate_store::shared_quota::{
    LimitReport, MAX_SHARED_LIMITS, QuotaExchange, QuotaExchangeReply, RetryBudgetChange,
    SharedLimit, SharedQuotaStore,
};
use tollgate_store::{Clock, StoreKey};

use crate::error::PaceError;
use crate::request::PaceRequest;
use crate::retry::{RetryDecision, ServerRefusal};
use crate::shared_pacer::{PacePermit, SharedPacer};

/// After an error the store is not asked for this long, so that requests do not wait for its deadline one after another.
const STORE_PAUSE: Nanos = Nanos::from_secs(1);

/// The store, and when it may be asked again.
pub(crate) struct StoreLink {
    pub(crate) store: Arc<dyn SharedQuotaStore>,
    /// Nanoseconds of the pacer's clock.
    paused_until: AtomicU64,
}

impl StoreLink {
    pub(crate) fn new(store: Arc<dyn SharedQuotaStore>) -> Self {
        Self {
            store,
            paused_until: AtomicU64::new(0),
        }
    }

    /// One exchange. `None` if the store does not reply.
    async fn exchange(
        &self,
        partition: &str,
        exchange: &QuotaExchange,
        now: Timestamp,
    ) -> Option<QuotaExchangeReply> {
        if now.as_nanos() < self.paused_until.load(Ordering::Relaxed) {
            return None;
        }
        let key = StoreKey::new(partition.as_bytes()).ok()?;
        let reply = self.store.exchange(key, exchange).await;
        if reply.is_err() {
            let until = now.after(STORE_PAUSE).as_nanos();
            self.paused_until.store(until, Ordering::Relaxed);
        }
        reply.ok()
    }
}

/// What a request has taken from the store, to be reported with its response.
pub(crate) struct SharedTake {
    partition: String,
    /// The id of each limit, the request's cost, and the limit's count after the request.
    counts: Vec<(u64, u64, u64)>,
}

impl<C: Clock + 'static> SharedPacer<C> {
    /// Waits until the request may be sent, as [`SharedPacer::acquire`] does, and until the store allows it, if there is one.
    pub(crate) async fn acquire_shared(
        &self,
        request: &PaceRequest<'_>,
    ) -> Result<(PacePermit<C>, Option<SharedTake>), PaceError> {
        let mut request = *request;
        // Giving a turn back does not begin a new wait.
        request.waits_since = Some(self.now());
        let retries = if request.is_retry {
            RetryBudgetChange::None
        } else {
            RetryBudgetChange::Earn
        };
        loop {
            let permit = self.acquire(&request).await?;
            let Some(link) = self.store_link() else {
                return Ok((permit, None));
            };
            // In a box: a request that waits needs no room for it.
            let taken = Box::pin(self.take_shared(link, permit, retries)).await;
            if let Some(taken) = taken {
                return Ok(taken);
            }
            // It has waited its turn before.
            request = request.as_retry();
        }
    }

    /// Takes the cost of a request from the store. `None` if other processes have used up the quota; then the permit waits again.
    async fn take_shared(
        &self,
        link: &StoreLink,
        permit: PacePermit<C>,
        retries: RetryBudgetChange,
    ) -> Option<(PacePermit<C>, Option<SharedTake>)> {
        let Some((partition, limits)) = permit.shared_limits() else {
            return Some((permit, None));
        };
        let exchange = QuotaExchange {
            is_take: true,
            retries,
            limits,
            ..QuotaExchange::default()
        };
        let reply = link.exchange(&partition, &exchange, self.now()).await;
        let Some(reply) = reply else {
            return Some((permit, None));
        };
        if !reply.wait.is_zero() {
            permit.postpone(reply.wait);
            return None;
        }
        let limits = exchange.limits.iter().zip(reply.counts);
        let counts = limits.map(|(limit, count)| (limit.id, limit.cost, count));
        let counts = counts.collect();
        Some((permit, Some(SharedTake { partition, counts })))
    }

    /// Reports a response to the store, and asks it for the retry that was decided on.
    pub(crate) async fn report_shared(
        &self,
        take: Option<SharedTake>,
        info: &RateLimitInfo,
        refusal: Option<&ServerRefusal>,
        decision: RetryDecision,
    ) -> RetryDecision {
        let (Some(take), Some(link)) = (take, self.store_link()) else {
            return decision;
        };
        let limits: Vec<SharedLimit> = reported(info, &take).take(MAX_SHARED_LIMITS).collect();
        let block = refusal.and_then(|refusal| refusal.retry_after);
        if info.is_cached || (limits.is_empty() && refusal.is_none()) {
            return decision;
        }
        let exchange = QuotaExchange {
            is_take: false,
            block: block.unwrap_or(Nanos::ZERO).min(self.max_block()),
            retries: match decision {
                RetryDecision::Retry => RetryBudgetChange::Spend,
                RetryDecision::GiveUp => RetryBudgetChange::None,
            },
            limits,
        };
        let reply = link.exchange(&take.partition, &exchange, self.now()).await;
        match reply {
            Some(reply) if !reply.may_retry => RetryDecision::GiveUp,
            _ => decision,
        }
    }
}

/// The limits of a response that can be shared.
fn reported(info: &RateLimitInfo, take: &SharedTake) -> impl Iterator<Item = SharedLimit> {
    info.limits.iter().filter_map(|limit| {
        if limit.unit == LimitUnit::ConcurrentRequests {
            return None;
        }
        let id = limit_id(limit.name.as_deref(), limit.unit);
        let count = take.counts.iter().find(|(taken, ..)| *taken == id);
        Some(SharedLimit {
            id,
            cost: count.map_or(0, |(_, cost, _)| *cost),
            quota: limit.quota,
            window: limit.window.unwrap_or(Nanos::ZERO),
            report: Some(LimitReport {
                remaining: limit.remaining?,
                reset_after: reset_after(limit),
                count: count.map(|(_, _, count)| *count),
            }),
        })
    })
}

fn reset_after(limit: &LimitInfo) -> Nanos {
    let reset = limit.reset_after.or(limit.window);
    reset.unwrap_or(Nanos::from_secs(1))
}

/// The id of a limit, the same in every process: FNV-1a. A server that makes names collide harms only its own limits.
pub(crate) fn limit_id(name: Option<&str>, unit: LimitUnit) -> u64 {
    let unit = format!("{unit:?}");
    let bytes = unit.bytes().chain([0]).chain(name.unwrap_or("").bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

impl fmt::Debug for StoreLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreLink").finish_non_exhaustive()
    }
}
