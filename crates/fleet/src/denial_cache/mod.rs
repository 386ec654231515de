//! Denials that can be answered without asking a slow store again, because they are still true.
//!
//! What is remembered of one key under one limit is the last denial: its cost and until when it holds, counted from
//! when the call was sent, which is never later than when the store decided. It is replaced, never merged, and dropped as
//! soon as the key is admitted anything, is reset, or the policy changes. An admission that leaves nothing is remembered as
//! a denial of one unit until the next unit is there. The table is bounded; what does not fit is asked again.
//!
//! Concurrency limits and limits with a penalty are never remembered: a place may be given back at any time, and a denial
//! that costs something has to reach the store. Where a charge may be given back (a response settles it, a lease of a
//! fleet's quota returns), a denial is answered for at most a second, and within that second may be false: the one stated
//! exception. The store in memory needs none of this. Must not know: rules, verdicts, transports.

mod denial_table;
#[cfg(test)]
mod tests;

use tollgate_core::limit::{AlgorithmKind, Limit};
use tollgate_core::{Nanos, Outcome, QuotaStatus, Timestamp};
use tollgate_engine::DenialCaching;
use tollgate_store::{LimitId, Op, QuotaCheck, ReplyNote, StoreKey, StoreReply};

pub(crate) use self::denial_table::DenialId;
use self::denial_table::{Denial, DenialTable};

/// A bounded memory of denials.
///
/// ```
/// use std::num::NonZeroU16;
/// use tollgate_core::{Nanos, Rate, TokenBucket};
/// use tollgate_engine::DenialCaching;
/// use tollgate_fleet::denial_cache::DenialCache;
/// use tollgate_store::{StoreReply, QuotaCheck, StoreKey, LimitId, MemoryStore, Op, IdentifiedLimit, TestStore};
///
/// let store = MemoryStore::for_keys(100)?;
/// let quota = TokenBucket::at(Rate::per_hour(1)).build()?;
/// let ruled = IdentifiedLimit { id: LimitId(NonZeroU16::MIN), limit: quota.into() };
/// let checks = [QuotaCheck { key: StoreKey::of(b"alice")?, ruled: &ruled, op: Op::Spend(1) }];
///
/// let cache = DenialCache::for_keys(1_000);
/// let mut answers = [StoreReply::EMPTY];
/// let sent = store.now();
/// store.decide(&checks, &mut answers)?;
/// cache.learn(&checks, &answers, &[DenialCaching::UntilOver], sent, 1);
///
/// // The bucket is empty for an hour; nobody needs to ask the store about that.
/// let mut known = [None];
/// assert!(cache.ask(&checks, store.now(), 1, &mut known).is_some());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct DenialCache {
    table: DenialTable,
}

/// A batch that is denied for certain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CachedDenial {
    /// Which check has to be waited for longest.
    pub binding: usize,
    /// How long.
    pub retry_after: Nanos,
}

/// What is remembered of one check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CachedStatus {
    /// How long it denies.
    pub retry_after: Nanos,
    /// Where the limit stands: at least so much remains as when the store was asked.
    pub status: QuotaStatus,
}

/// How long a denial is believed where something may be given back.
const SHORT_TTL: Nanos = Nanos::SECOND;

impl DenialCache {
    /// Room for about so many denials, at least a few.
    #[must_use]
    pub fn for_keys(keys: usize) -> Self {
        Self {
            table: DenialTable::with_capacity(keys),
        }
    }

    /// Whether some check of the batch is known to be denied at `now` under this generation of the policy. `known`
    /// receives, for each check that denies, what is known of it; it must be as long as `checks`.
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
            let who = self.table.id(&check.key, check.limit.id, generation);
            let Some(denial) = self.table.get(&who).filter(|one| now < one.expires_at) else {
                continue;
            };
            let Some(until) = denied_until(&denial, &check.limit.limit, cost) else {
                continue;
            };
            // The limit that bound then is asked about again and nothing is known of it any more: how long it
            // denies, and so what the answer would be, only the store can say.
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

    /// Whose denial one of this key under this limit would be: a digest, to be made once in a decision.
    pub(crate) fn id(&self, key: &StoreKey<'_>, limit: LimitId, generation: u64) -> DenialId {
        self.table.id(key, limit, generation)
    }

    /// Whether anything is remembered of any of these, true or not.
    pub(crate) fn contains_any(&self, ids: &[DenialId]) -> bool {
        ids.iter().any(|who| self.table.contains(who))
    }

    /// Which key of the batch was denied until a moment ago, if one was: those who were told so come back now, all at once.
    #[must_use]
    pub fn recently_expired(
        &self,
        checks: &[QuotaCheck<'_>],
        now: Timestamp,
        generation: u64,
    ) -> Option<u128> {
        checks.iter().find_map(|check| {
            let _can_be_denied = cost_of(check.op)?;
            let who = self.table.id(&check.key, check.limit.id, generation);
            let denial = self.table.get(&who)?;
            let is_just_over = denial.expires_at <= now && now.since(denial.expires_at) < SHORT_TTL;
            is_just_over.then(|| who.digest())
        })
    }

    /// Learns from what the store answered to a batch that was sent at `sent`: what it denies, what it left empty, and
    /// what is no longer true. `keep` says for each check how long its denial may be believed.
    pub fn record(
        &self,
        checks: &[QuotaCheck<'_>],
        answers: &[StoreReply],
        keep: &[DenialCaching],
        sent: Timestamp,
        generation: u64,
    ) {
        let id = |check: &QuotaCheck<'_>| self.id(&check.key, check.limit.id, generation);
        let ids: Vec<DenialId> = checks.iter().map(id).collect();
        self.record_by_id(&ids, checks, answers, keep, (sent, Nanos::ZERO));
    }

    /// The same, for whoever has the digests of the checks already and knows how long the answer took. A denial is believed
    /// as if it had been decided when it was asked for, and told as if when it was answered: nobody comes back too early.
    pub(crate) fn record_by_id(
        &self,
        ids: &[DenialId],
        checks: &[QuotaCheck<'_>],
        answers: &[StoreReply],
        keep: &[DenialCaching],
        (sent, took): (Timestamp, Nanos),
    ) {
        let all_admit = answers.iter().all(|answer| answer.outcome.is_admitted());
        let denies = |answer: &StoreReply| match answer.outcome {
            Outcome::Deny { retry_after } => Some(retry_after),
            _ => None,
        };
        let longest = answers.iter().filter_map(denies).max();
        let binding = answers
            .iter()
            .position(|answer| longest.is_some() && denies(answer) == longest);
        let each = ids.iter().zip(checks).zip(answers).zip(keep);
        for (index, (((who, check), answer), keep)) in each.enumerate() {
            let found = match (cost_of(check.op), denies(answer)) {
                (Some(cost), Some(wait)) => Some((cost, wait)),
                // Another limit refused: nothing was charged here, so what is remembered is as true as before.
                _ if !all_admit => continue,
                _ => time_to_next_unit(&check.limit.limit, answer).map(|wait| (1, wait)),
            };
            let binding = binding.filter(|binding| *binding != index);
            let bound_by = binding.and_then(|binding| checks.get(binding));
            let span = match keep {
                DenialCaching::Never => None,
                DenialCaching::OneSecond => Some(SHORT_TTL),
                DenialCaching::UntilRetryAfter => Some(Nanos::MAX),
            };
            match (found, span) {
                (Some((cost, wait)), Some(span)) if answer.note == ReplyNote::Plain => {
                    let denial = Denial {
                        cost,
                        denied_until: sent.after(wait),
                        round_trip: took,
                        status: answer.status,
                        sent_at: sent,
                        expires_at: sent.after(wait.min(span)),
                        bound_by: bound_by.map(|check| check.limit.id),
                    };
                    self.table.put(who, denial, sent);
                }
                _ => self.table.remove(who),
            }
        }
    }

    /// Forgets what is known of one key under one limit: it was reset, or given another quota.
    pub fn remove(&self, key: &StoreKey<'_>, limit: LimitId, generation: u64) {
        self.table.remove(&self.table.id(key, limit, generation));
    }

    /// Forgets everything.
    pub fn clear(&self) {
        self.table.clear();
    }

    fn has_active_denial(&self, check: &QuotaCheck<'_>, now: Timestamp, generation: u64) -> bool {
        let who: DenialId = self.table.id(&check.key, check.limit.id, generation);
        let denial = self.table.get(&who).filter(|one| now < one.expires_at);
        let (Some(denial), Some(cost)) = (denial, cost_of(check.op)) else {
            return false;
        };
        denied_until(&denial, &check.limit.limit, cost).is_some()
    }
}

/// What an operation asks for, if it can be denied for want of it.
const fn cost_of(op: Op) -> Option<u64> {
    match op {
        Op::Spend(cost) | Op::Peek(cost) if cost > 0 => Some(cost),
        Op::Reserve { cost, .. } if cost > 0 => Some(cost),
        _ => None,
    }
}

/// Until when this cost is denied, if that follows from the denial of another. A smaller cost may be admitted; a larger
/// one waits longer, and by how much only a bucket tells without its state.
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

/// How long after an admission that left nothing there will be something again.
fn time_to_next_unit(limit: &Limit, answer: &StoreReply) -> Option<Nanos> {
    if answer.status.remaining > 0 || answer.receipt.cost == 0 {
        return None;
    }
    if let Some(bucket) = limit.denying_bucket() {
        let next = bucket.decide(answer.receipt.mark, answer.receipt.at, 1);
        return match next.outcome {
            Outcome::Deny { retry_after } => Some(retry_after),
            _ => None,
        };
    }
    let is_window = limit.algorithm_kind() == AlgorithmKind::FixedWindow;
    Some(answer.status.reset_after).filter(|span| is_window && !span.is_zero())
}
