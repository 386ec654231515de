//! A cache of denials, so that repeated denials do not reach a slow store.
//!
//! For each key and limit the cache holds the last denial: its cost and its expiry. The expiry counts from when the
//! call was sent, which is never later than when the store decided. A new denial replaces the old one. An admission, a
//! reset or a policy change removes it. An admission that exhausts the limit is cached as a denial of one unit until
//! the next unit arrives. The table is bounded; a denial that does not fit is asked for again.
//!
//! Denials by concurrency limits and by limits with a penalty are never cached: a permit can be released at any time,
//! and a penalty has to reach the store. Where charges can be refunded (by a response, or by returning a lease), a
//! denial is cached for at most a second. Within that second it may be wrong; this is the only exception. An in-memory
//! store needs no cache. Must not know: rules, verdicts, transports.

mod denial_table;
#[cfg(test)]
mod tests;

use tollgate_core::limit::{AlgorithmKind, Limit};
use tollgate_core::{Nanos, Outcome, QuotaStatus, Timestamp};
use tollgate_engine::DenialCaching;
use tollgate_store::{LimitId, Op, QuotaCheck, ReplyNote, StoreKey, StoreReply};

pub(crate) use self::denial_table::DenialId;
use self::denial_table::{Denial, DenialTable};

/// A bounded cache of denials.
///
/// ```
/// use std::num::NonZeroU16;
/// use tollgate_core::{Nanos, Rate, TokenBucket};
/// use tollgate_engine::DenialCaching;
/// use tollgate_fleet::denial_cache::DenialCache;
/// use tollgate_store::{IdentifiedLimit, LimitId, MemoryStore, Op, QuotaCheck, Store, StoreKey, StoreReply};
///
/// let store = MemoryStore::for_keys(100)?;
/// let quota = TokenBucket::builder(Rate::per_hour(1)).build()?;
/// let limit = IdentifiedLimit { id: LimitId(NonZeroU16::MIN), limit: quota.into() };
/// let checks = [QuotaCheck { key: StoreKey::new(b"alice")?, limit: &limit, op: Op::Spend(1) }];
///
/// let cache = DenialCache::for_keys(1_000);
/// let mut replies = [StoreReply::EMPTY];
/// let sent = store.now();
/// store.decide(&checks, &mut replies)?;
/// cache.record(&checks, &replies, &[DenialCaching::UntilRetryAfter], sent, 1);
///
/// // The bucket is empty for an hour, so the next check needs no call.
/// let mut cached = [None];
/// assert!(cache.lookup(&checks, store.now(), 1, &mut cached).is_some());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct DenialCache {
    table: DenialTable,
}

/// A batch that a cached denial decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CachedDenial {
    /// The index of the check with the longest wait.
    pub binding: usize,
    /// The wait.
    pub retry_after: Nanos,
}

/// The cached denial of one check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CachedStatus {
    /// How long the check stays denied.
    pub retry_after: Nanos,
    /// The limit's status, as of the cached denial.
    pub status: QuotaStatus,
}

/// How long a denial is cached if charges can be refunded.
const SHORT_TTL: Nanos = Nanos::SECOND;

impl DenialCache {
    /// A cache for about this many denials.
    #[must_use]
    pub fn for_keys(keys: usize) -> Self {
        Self {
            table: DenialTable::with_capacity(keys),
        }
    }

    /// Looks up whether some check of the batch is denied at `now` under this version of the policy. Stores the cached
    /// status of each denied check in `known`, which must be as long as `checks`.
    #[must_use]
    pub fn lookup(
        &self,
        checks: &[QuotaCheck<'_>],
        now: Timestamp,
        generation: u64,
        known: &mut [Option<CachedStatus>],
    ) -> Option<CachedDenial> {
        let mut longest: Option<CachedDenial> = None;
        for (index, (check, known)) in checks.iter().zip(&mut *known).enumerate() {
            *known = None;
            let Some(cost) = cost_of(check.op) else {
                continue;
            };
            let id = self.table.id(&check.key, check.limit.id, generation);
            let Some(denial) = self.active_denial(&id, check, now) else {
                continue;
            };
            let Some(until) = denied_until(&denial, &check.limit.limit, cost) else {
                continue;
            };
            // The batch includes the limit that was binding then, and its own denial is no longer cached. Only the
            // store knows the binding limit now.
            let is_bound_by = |other: &QuotaCheck<'_>| Some(other.limit.id) == denial.bound_by;
            let bound_by = checks.iter().find(|other| is_bound_by(other));
            if bound_by.is_some_and(|other| !self.has_active_denial(other, now, generation)) {
                return None;
            }
            let retry_after = until.since(now);
            if retry_after.is_zero() {
                continue;
            }
            let passed = now.since(denial.sent_at).saturating_sub(denial.round_trip);
            let retry_after = retry_after.saturating_add(denial.round_trip);
            *known = Some(CachedStatus {
                retry_after,
                status: QuotaStatus {
                    reset_after: denial.status.reset_after.saturating_sub(passed),
                    ..denial.status
                },
            });
            if longest.is_none_or(|longest| retry_after > longest.retry_after) {
                longest = Some(CachedDenial {
                    binding: index,
                    retry_after,
                });
            }
        }
        longest
    }

    /// The id of a denial of this key under this limit: a digest, computed once in a decision.
    pub(crate) fn id(&self, key: &StoreKey<'_>, limit: LimitId, generation: u64) -> DenialId {
        self.table.id(key, limit, generation)
    }

    /// Whether the cache holds any of these denials, expired or not.
    pub(crate) fn contains_any(&self, ids: &[DenialId]) -> bool {
        ids.iter().any(|id| self.table.contains(id))
    }

    /// The key of the batch whose denial expired a moment ago, if there is one. All clients that it denied retry now,
    /// at once.
    #[must_use]
    pub fn recently_expired(
        &self,
        checks: &[QuotaCheck<'_>],
        now: Timestamp,
        generation: u64,
    ) -> Option<u128> {
        checks.iter().find_map(|check| {
            let _can_be_denied = cost_of(check.op)?;
            let id = self.table.id(&check.key, check.limit.id, generation);
            let denial = self.table.get(&id)?;
            let is_just_over = denial.expires_at <= now && now.since(denial.expires_at) < SHORT_TTL;
            is_just_over.then(|| id.digest())
        })
    }

    /// Records the store's replies to a batch that was sent at `sent`: adds new denials and removes outdated ones.
    /// `keep` tells how long each check's denial may be cached.
    pub fn record(
        &self,
        checks: &[QuotaCheck<'_>],
        replies: &[StoreReply],
        keep: &[DenialCaching],
        sent: Timestamp,
        generation: u64,
    ) {
        let id = |check: &QuotaCheck<'_>| self.id(&check.key, check.limit.id, generation);
        let ids: Vec<DenialId> = checks.iter().map(id).collect();
        self.record_by_id(&ids, checks, replies, keep, (sent, Nanos::ZERO));
    }

    /// The same for a caller that has the ids already and knows how long the call took. A denial expires counted from
    /// when the call was sent. Its `Retry-After` counts from when the reply arrived, so that no client is told to retry
    /// too early.
    pub(crate) fn record_by_id(
        &self,
        ids: &[DenialId],
        checks: &[QuotaCheck<'_>],
        replies: &[StoreReply],
        keep: &[DenialCaching],
        (sent, took): (Timestamp, Nanos),
    ) {
        let all_admit = replies.iter().all(|reply| reply.outcome.is_admitted());
        let denies = |reply: &StoreReply| match reply.outcome {
            Outcome::Deny { retry_after } => Some(retry_after),
            _ => None,
        };
        let longest = replies.iter().filter_map(denies).max();
        let binding = replies
            .iter()
            .position(|reply| longest.is_some() && denies(reply) == longest);
        let each = ids.iter().zip(checks).zip(replies).zip(keep);
        for (index, (((id, check), reply), keep)) in each.enumerate() {
            let denial_of_cost = match (cost_of(check.op), denies(reply)) {
                (Some(cost), Some(wait)) => Some((cost, wait)),
                // Another limit denied: nothing was charged here, so the cached denial is still valid.
                _ if !all_admit => continue,
                _ => time_to_next_unit(&check.limit.limit, reply).map(|wait| (1, wait)),
            };
            let binding = binding.filter(|binding| *binding != index);
            let bound_by = binding.and_then(|binding| checks.get(binding));
            let span = match keep {
                DenialCaching::Never => None,
                DenialCaching::OneSecond => Some(SHORT_TTL),
                DenialCaching::UntilRetryAfter => Some(Nanos::MAX),
            };
            match (denial_of_cost, span) {
                (Some((cost, wait)), Some(span)) if reply.note == ReplyNote::Plain => {
                    let denial = Denial {
                        limit: check.limit.limit,
                        cost,
                        denied_until: sent.after(wait),
                        round_trip: took,
                        status: reply.status,
                        sent_at: sent,
                        expires_at: sent.after(wait.min(span)),
                        bound_by: bound_by.map(|check| check.limit.id),
                    };
                    self.table.put(id, denial, sent);
                }
                _ => self.table.remove(id),
            }
        }
    }

    /// Removes the denial of one key under one limit: it was reset, or has another quota.
    pub fn remove(&self, key: &StoreKey<'_>, limit: LimitId, generation: u64) {
        self.table.remove(&self.table.id(key, limit, generation));
    }

    /// Removes all denials.
    pub fn clear(&self) {
        self.table.clear();
    }

    fn has_active_denial(&self, check: &QuotaCheck<'_>, now: Timestamp, generation: u64) -> bool {
        let id: DenialId = self.table.id(&check.key, check.limit.id, generation);
        let denial = self.active_denial(&id, check, now);
        let (Some(denial), Some(cost)) = (denial, cost_of(check.op)) else {
            return false;
        };
        denied_until(&denial, &check.limit.limit, cost).is_some()
    }

    /// The denial of this key by this quota. Tiers and limits with one `bucket` have different quotas on one state, and a denial by one of
    /// them says nothing about the others.
    fn active_denial(
        &self,
        id: &DenialId,
        check: &QuotaCheck<'_>,
        now: Timestamp,
    ) -> Option<Denial> {
        let denial = self.table.get(id)?;
        (now < denial.expires_at && denial.limit == check.limit.limit).then_some(denial)
    }
}

/// The cost of an operation that can be denied.
const fn cost_of(op: Op) -> Option<u64> {
    match op {
        Op::Spend(cost) | Op::Peek(cost) if cost > 0 => Some(cost),
        Op::Reserve { cost, .. } if cost > 0 => Some(cost),
        _ => None,
    }
}

/// Until when this cost is denied, if that follows from a cached denial of another cost. A smaller cost may be
/// admitted. A larger cost waits longer, and only for a bucket is the difference known without the state.
fn denied_until(denial: &Denial, limit: &Limit, cost: u64) -> Option<Timestamp> {
    if cost == denial.cost {
        return Some(denial.denied_until);
    }
    let bucket = limit
        .denying_bucket()
        .filter(|bucket| cost <= bucket.limit())?;
    let blocks = |cost: u64| cost.div_ceil(bucket.block());
    let more = blocks(cost).checked_sub(blocks(denial.cost))?;
    let span = more.saturating_mul(bucket.interval().as_nanos());
    Some(denial.denied_until.after(Nanos::from_nanos(span)))
}

/// The time to the next unit after an admission that exhausted the limit.
fn time_to_next_unit(limit: &Limit, reply: &StoreReply) -> Option<Nanos> {
    if reply.status.remaining > 0 || reply.receipt.cost == 0 {
        return None;
    }
    if let Some(bucket) = limit.denying_bucket() {
        let next = bucket.decide(reply.receipt.mark, reply.receipt.at, 1);
        return match next.outcome {
            Outcome::Deny { retry_after } => Some(retry_after),
            _ => None,
        };
    }
    let is_window = limit.algorithm_kind() == AlgorithmKind::FixedWindow;
    Some(reply.status.reset_after).filter(|span| is_window && !span.is_zero())
}
