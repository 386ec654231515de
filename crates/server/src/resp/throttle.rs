//! The throttle commands `CL.THROTTLE`, `THROTTLE` and `GCRA`: limits whose quota comes with every call.
//!
//! A call gives a key, a burst, a rate and a cost; nothing is configured. The quota is compiled from the call, and core decides
//! on the state of the key. Two choices follow:
//!
//! - **A rate is rounded, never rejected.** Clients of these commands expect a reply to any rate. One token takes `ceil(period
//!   / count)` nanoseconds, at least one, so the effective rate is never above the requested one, except that nothing is faster
//!   than 10^9 per second. A capacity above 2^62 ns is cut to that.
//! - **Debt is never cut to the capacity of a call.** Elsewhere a state further ahead than the largest capacity of its limit
//!   counts as a clock error and is clamped. Here a key may be used with a large burst and then with a small one, and the
//!   largest is not known in advance. Clamping would forgive the debt of a client that alternates between two bursts. So every
//!   quota shares the largest possible ceiling, like the original implementations, which never clamp.
//!
//! Each command family has its own limit, so a key used by two families has two states. Must not know: arguments, replies.

use std::num::NonZeroU16;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tollgate_core::{InvalidQuota, MAX_CAPACITY, Nanos, Outcome, Rate, TokenBucket};
use tollgate_fleet::Fleet;
use tollgate_store::{
    Clock, IdentifiedLimit, KeyTooLong, LimitId, MAX_KEY_LEN, MemoryStore, Op, QuotaCheck,
    StoreError, StoreKey, StoreReply,
};

/// The prefix of keys in a fleet's store. Keys of policies are empty or start with 0, 1 or 2, which says whether their first
/// part is present. Keys of envoyproxy/ratelimit rules start with the length of their domain, below 768, or with 255. The
/// fleet's own keys start with 255.
const FLEET_KEY_PREFIX: &[u8] = b"t";

/// The longest key of a call that a fleet decides, in bytes.
pub(super) const MAX_FLEET_KEY_LEN: usize = MAX_KEY_LEN - FLEET_KEY_PREFIX.len();

/// How many quotas are remembered as known to the store.
const KNOWN_QUOTAS: usize = 256;

/// A family of throttle commands. Each has its own limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ThrottleFamily {
    RedisCell,
    Throttlecrab,
    Gcra,
}

impl ThrottleFamily {
    fn id(self) -> LimitId {
        let number = match self {
            Self::RedisCell => 0,
            Self::Throttlecrab => 1,
            Self::Gcra => 2,
        };
        LimitId(NonZeroU16::MIN.saturating_add(number))
    }
}

/// The quota of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ThrottleQuota {
    /// The burst in tokens. Zero admits no cost.
    pub(crate) burst: u64,
    /// By how many tokens the burst is below zero. Then not even a peek passes.
    pub(crate) deficit: u64,
    /// Tokens per period, at least one.
    pub(crate) count: u64,
    /// The period in nanoseconds. It may exceed `Nanos`.
    pub(crate) period: u128,
}

/// The operation of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ThrottleOp {
    /// Take this many tokens. Zero is a peek.
    Take(u64),
    /// Return this many tokens.
    Return(u64),
}

impl ThrottleOp {
    const fn returned(self) -> u64 {
        match self {
            Self::Take(_) => 0,
            Self::Return(amount) => amount,
        }
    }
}

/// The outcome of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ThrottleReply {
    pub(crate) is_limited: bool,
    pub(crate) remaining: u64,
    /// When the same call would pass; `None` if it passed or never will.
    pub(crate) retry_after: Option<Nanos>,
    pub(crate) reset_after: Nanos,
}

/// The last quota of a connection, compiled. Most connections repeat one quota.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RecentQuota(Option<(ThrottleQuota, IdentifiedLimit, TokenBucket)>);

/// The state of all three families.
#[derive(Debug)]
pub(crate) struct Throttle<C> {
    store: MemoryStore<C>,
    /// The fleet that shares the state, if there is one.
    fleet: Option<Arc<Fleet>>,
    widest_bucket: TokenBucket,
    /// Fingerprints of quotas that were registered with the store, to avoid registering them again.
    known_quotas: [AtomicU64; KNOWN_QUOTAS],
}

impl<C: Clock> Throttle<C> {
    pub(crate) fn new(store: MemoryStore<C>) -> Result<Self, InvalidQuota> {
        let widest_bucket = TokenBucket::builder(Rate::new(1, MAX_CAPACITY)).burst(1);
        Ok(Self {
            store,
            fleet: None,
            widest_bucket: widest_bucket.build()?,
            known_quotas: [const { AtomicU64::new(0) }; KNOWN_QUOTAS],
        })
    }

    /// Shares the state with a fleet.
    pub(crate) fn join_fleet(&mut self, fleet: Arc<Fleet>) {
        self.fleet = Some(fleet);
    }

    /// The fleet that decides, if there is one.
    pub(crate) const fn fleet(&self) -> Option<&Arc<Fleet>> {
        self.fleet.as_ref()
    }

    pub(crate) const fn store(&self) -> &MemoryStore<C> {
        &self.store
    }

    /// Begins to load the state of a key. Returns false if a fleet decides.
    #[inline]
    pub(crate) fn prefetch(&self, family: ThrottleFamily, key: &[u8]) -> bool {
        if let (None, Ok(key)) = (&self.fleet, StoreKey::new(key)) {
            self.store.prefetch_bucket(&key, family.id());
        }
        self.fleet.is_none()
    }

    /// Decides one call with the local store.
    pub(crate) fn decide(
        &self,
        family: ThrottleFamily,
        key: StoreKey<'_>,
        quota: &ThrottleQuota,
        op: ThrottleOp,
        recent: &mut RecentQuota,
    ) -> Result<ThrottleReply, StoreError> {
        let (limit, bucket) = self.compiled_quota(family, quota, recent);
        let check = QuotaCheck {
            key,
            limit,
            op: store_op(quota, op),
        };
        let (_, [answer]) = self.store.decide_array([check])?;
        Ok(throttle_reply(&answer, quota, op, bucket.refill_time()))
    }

    /// Decides one call with the fleet.
    ///
    /// All keys of a fleet share one store, and these limits have the same ids as limits of the policy. So every key gets
    /// [`FLEET_KEY_PREFIX`], which no other key starts with: throttle commands never spend what a policy counts. Different keys
    /// stay different, because all get the same prefix.
    pub(crate) fn decide_with_fleet<'a>(
        &'a self,
        fleet: &'a Fleet,
        (family, key): (ThrottleFamily, &[u8]),
        quota: &ThrottleQuota,
        op: ThrottleOp,
        recent: &mut RecentQuota,
    ) -> impl Future<Output = Result<Result<ThrottleReply, StoreError>, KeyTooLong>> + Send + use<'a, C>
    {
        let (limit, bucket) = self.compiled_quota(family, quota, recent);
        let (limit, capacity, quota) = (*limit, bucket.refill_time(), *quota);
        let key = [FLEET_KEY_PREFIX, key].concat();
        async move {
            let check = QuotaCheck {
                key: StoreKey::new(&key)?,
                limit: &limit,
                op: store_op(&quota, op),
            };
            let answered = fleet.decide_one(&self.store, check).await;
            Ok(answered.map(|answer| throttle_reply(&answer, &quota, op, capacity)))
        }
    }

    /// The compiled quota of a call, reused if the connection's last call had the same.
    #[inline]
    fn compiled_quota<'a>(
        &self,
        family: ThrottleFamily,
        quota: &ThrottleQuota,
        recent: &'a mut RecentQuota,
    ) -> (&'a IdentifiedLimit, &'a TokenBucket) {
        let is_same = |(known_quotas, limit, _): &(ThrottleQuota, IdentifiedLimit, TokenBucket)| {
            known_quotas == quota && limit.id == family.id()
        };
        if !recent.0.as_ref().is_some_and(is_same) {
            recent.0 = None;
        }
        let (_, limit, bucket) = recent
            .0
            .get_or_insert_with(|| self.compile_quota(family, quota));
        (limit, bucket)
    }

    /// Compiles the quota of a call and registers it with the store, which uses it to rank states for eviction.
    #[inline(never)]
    fn compile_quota(
        &self,
        family: ThrottleFamily,
        quota: &ThrottleQuota,
    ) -> (ThrottleQuota, IdentifiedLimit, TokenBucket) {
        let bucket = token_bucket(quota, &self.widest_bucket);
        let limit = IdentifiedLimit {
            id: family.id(),
            limit: bucket.into(),
        };
        self.register_quota(&limit, &bucket);
        (*quota, limit, bucket)
    }

    fn register_quota(&self, limit: &IdentifiedLimit, bucket: &TokenBucket) {
        let parts = [
            u64::from(limit.id.0.get()),
            bucket.interval().as_nanos(),
            bucket.refill_time().as_nanos(),
        ];
        // Any hash will do: a collision only registers a quota again.
        let mix = |sum: u64, part: &u64| {
            (sum ^ part)
                .wrapping_mul(0x9e37_79b9_7f4a_7c15)
                .rotate_left(29)
        };
        let fingerprint = parts.iter().fold(0, mix) | 1;
        let slot = usize::try_from(fingerprint >> 56).unwrap_or(0);
        let Some(slot) = self.known_quotas.get(slot) else {
            return;
        };
        if slot.load(Ordering::Relaxed) != fingerprint {
            self.store.add_limit(limit);
            slot.store(fingerprint, Ordering::Relaxed);
        }
    }
}

const fn store_op(quota: &ThrottleQuota, op: ThrottleOp) -> Op {
    match op {
        // Nothing fits into an empty bucket, and a limited call changes nothing.
        _ if quota.burst == 0 => Op::Peek(0),
        ThrottleOp::Take(cost) => Op::Spend(cost),
        ThrottleOp::Return(amount) => Op::Credit(amount),
    }
}

/// The token bucket of a quota.
fn token_bucket(quota: &ThrottleQuota, widest_bucket: &TokenBucket) -> TokenBucket {
    let longest = MAX_CAPACITY.as_nanos();
    let interval = quota.period.div_ceil(u128::from(quota.count.max(1)));
    let interval = u64::try_from(interval).map_or(longest, |interval| interval.clamp(1, longest));
    let burst = quota.burst.clamp(1, longest / interval.max(1));
    // One token per interval is exact, so no rate is rejected, and all values are within the limits of a bucket.
    let bucket = TokenBucket::builder(Rate::new(1, Nanos::from_nanos(interval))).burst(burst);
    bucket
        .build()
        .unwrap_or(*widest_bucket)
        .sharing_state_with(widest_bucket)
}

fn throttle_reply(
    answer: &StoreReply,
    quota: &ThrottleQuota,
    op: ThrottleOp,
    capacity: Nanos,
) -> ThrottleReply {
    let owed = answer.status.reset_after;
    let (is_limited, retry_after) = match (answer.outcome, op) {
        // redis-cell allows this if the debt after the call is at most the burst. Without a burst that is a call that takes
        // nothing, makes up for a burst below zero and finds no debt. Waiting helps only against debt.
        (_, ThrottleOp::Take(1..)) if quota.burst == 0 => (true, None),
        (_, op) if quota.burst == 0 => {
            let retry_after = (op.returned() >= quota.deficit).then_some(owed);
            let is_limited = retry_after != Some(Nanos::ZERO);
            (is_limited, retry_after.filter(|_| is_limited))
        }
        (Outcome::Deny { retry_after }, _) => (true, Some(retry_after)),
        (Outcome::Never, _) => (true, None),
        // A peek passes, unless a call with a larger burst has taken more than this burst allows.
        (_, ThrottleOp::Take(0)) if owed > capacity => (true, Some(owed.saturating_sub(capacity))),
        _ => (false, None),
    };
    ThrottleReply {
        is_limited,
        remaining: if quota.burst == 0 {
            0
        } else {
            answer.status.remaining
        },
        retry_after,
        reset_after: owed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use tollgate_core::Timestamp;
    use tollgate_store::ManualClock;

    const NOW: Timestamp = Timestamp::from_secs(1_700_000_000);

    fn throttle() -> (Throttle<Arc<ManualClock>>, Arc<ManualClock>) {
        let clock = Arc::new(ManualClock::at(NOW));
        let store = MemoryStore::with_clock(1_000, Arc::clone(&clock)).unwrap();
        (Throttle::new(store).unwrap(), clock)
    }

    fn quota(burst: u64, count: u64, seconds: u64) -> ThrottleQuota {
        ThrottleQuota {
            burst,
            deficit: 0,
            count,
            period: u128::from(seconds) * 1_000_000_000,
        }
    }

    fn take(
        throttle: &Throttle<Arc<ManualClock>>,
        quota: &ThrottleQuota,
        cost: u64,
    ) -> ThrottleReply {
        let key = StoreKey::new(b"k").unwrap();
        let mut recent = RecentQuota::default();
        throttle
            .decide(
                ThrottleFamily::RedisCell,
                key,
                quota,
                ThrottleOp::Take(cost),
                &mut recent,
            )
            .unwrap()
    }

    #[test]
    fn alternating_between_a_large_burst_and_a_small_one_forgives_nothing() {
        let (throttle, _clock) = throttle();
        let (large, small) = (quota(1_000, 1, 1), quota(1, 1, 1));
        assert!(!take(&throttle, &large, 1_000).is_limited);
        for _ in 0..3 {
            let denied = take(&throttle, &small, 1);
            assert_eq!(denied.retry_after, Some(Nanos::from_secs(1_000)));
            let look = take(&throttle, &small, 0);
            assert_eq!(look.retry_after, Some(Nanos::from_secs(999)));
            assert!(take(&throttle, &large, 1).is_limited, "nothing was minted");
        }
    }

    #[test]
    fn any_rate_is_rounded_and_none_is_refused() {
        let (throttle, _clock) = throttle();
        let interval = |quota| {
            token_bucket(&quota, &throttle.widest_bucket)
                .interval()
                .as_nanos()
        };
        assert_eq!(interval(quota(1, 3, 1)), 333_333_334);
        assert_eq!(interval(quota(1, 700_000_000, 1)), 2);
        assert_eq!(interval(quota(1, u64::MAX, 1)), 1);
        assert_eq!(interval(quota(1, 1, u64::MAX)), 1 << 62);
        for count in [1, 7, 1 << 40, u64::MAX] {
            for seconds in [1, 60, 1 << 40, u64::MAX] {
                for burst in [0, 1, 1 << 40, u64::MAX] {
                    let bucket =
                        token_bucket(&quota(burst, count, seconds), &throttle.widest_bucket);
                    assert!(bucket.limit() <= burst.max(1));
                    assert_eq!(bucket.ceiling(), MAX_CAPACITY);
                }
            }
        }
    }

    #[test]
    fn a_burst_of_zero_admits_nothing() {
        let (throttle, _clock) = throttle();
        let none = quota(0, 1, 1);
        let denied = take(&throttle, &none, 1);
        assert_eq!(
            (denied.is_limited, denied.remaining, denied.retry_after),
            (true, 0, None)
        );
        assert!(!take(&throttle, &none, 0).is_limited);
        assert_eq!(
            take(&throttle, &quota(1, 1, 1), 0).remaining,
            1,
            "nothing was charged"
        );
    }

    #[test]
    fn returned_tokens_never_exceed_a_full_bucket() {
        let (throttle, _clock) = throttle();
        let five = quota(5, 1, 1);
        assert_eq!(take(&throttle, &five, 3).remaining, 2);
        let key = StoreKey::new(b"k").unwrap();
        let give = |amount| {
            let op = ThrottleOp::Return(amount);
            throttle
                .decide(
                    ThrottleFamily::RedisCell,
                    key,
                    &five,
                    op,
                    &mut RecentQuota::default(),
                )
                .unwrap()
        };
        assert_eq!(give(1).remaining, 3);
        assert_eq!(give(1 << 40).remaining, 5);
    }

    #[test]
    fn families_do_not_share_keys() {
        let (throttle, _clock) = throttle();
        let key = StoreKey::new(b"k").unwrap();
        for family in [
            ThrottleFamily::RedisCell,
            ThrottleFamily::Throttlecrab,
            ThrottleFamily::Gcra,
        ] {
            // One cache for all families: a quota compiled for one family is not used for another.
            let mut recent = RecentQuota::default();
            let ask = |op, recent: &mut RecentQuota| {
                throttle.decide(family, key, &quota(1, 1, 60), op, recent)
            };
            assert!(!ask(ThrottleOp::Take(1), &mut recent).unwrap().is_limited);
            assert!(ask(ThrottleOp::Take(1), &mut recent).unwrap().is_limited);
        }
    }
}
