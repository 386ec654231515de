//! The rate limit status of one response: the outcome, the status of every limit, and how long to wait.
//!
//! This module decides the values; `write` formats them. Must not know: dialects, header libraries.

use tollgate_core::{Nanos, Outcome, QuotaStatus, Timestamp};

use crate::rate_limit_item::RateLimitItem;
use crate::text::seconds;

/// The rate limit status of a response, to be written as header fields or problem details.
///
/// ```
/// use tollgate_core::{Nanos, Outcome, QuotaStatus, QuotaUnit};
/// use tollgate_http::{RateLimitStatus, Dialects, QuotaPolicy, RateLimitItem, HeaderFields};
///
/// let policy = QuotaPolicy::new("per-user", 100, Nanos::MINUTE, QuotaUnit::Requests)?;
/// let status = QuotaStatus { limit: 100, remaining: 0, reset_after: Nanos::MINUTE };
/// let denied = Outcome::Deny { retry_after: Nanos::from_millis(600) };
/// let items = [RateLimitItem::new(&policy, denied, &status)];
///
/// // Reuse the buffer: once it has grown, writing allocates nothing.
/// let mut fields = HeaderFields::new();
/// RateLimitStatus::new(denied, &items).write(Dialects::default(), &mut fields);
/// let expected: [(&str, &[u8]); 4] = [
///     ("ratelimit-policy", br#""per-user";q=100;w=60"#),
///     ("ratelimit", br#""per-user";r=0;t=1"#),
///     ("retry-after", b"1"),
///     ("cache-control", b"no-store"),
/// ];
/// assert!(fields.iter().eq(expected));
/// # Ok::<(), tollgate_http::InvalidPolicyName>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct RateLimitStatus<'a> {
    outcome: Outcome,
    items: &'a [RateLimitItem<'a>],
    binding: Option<usize>,
    now: Timestamp,
    status: u16,
    jitter: Jitter,
}

impl<'a> RateLimitStatus<'a> {
    /// A status of these limits. Leave out limits in shadow mode: they deny nothing, so clients need not know them.
    #[must_use]
    pub const fn new(outcome: Outcome, items: &'a [RateLimitItem<'a>]) -> Self {
        Self {
            outcome,
            items,
            binding: None,
            now: Timestamp::EPOCH,
            status: 0,
            jitter: Jitter::NONE,
        }
    }

    /// Sets the current time, for dialects that send the time of a reset instead of a wait.
    #[must_use]
    pub const fn with_now(mut self, now: Timestamp) -> Self {
        self.now = now;
        self
    }

    /// Sets the binding limit, for dialects that send only one. By default it is the limit that denies longest, or else the
    /// one with the smallest fraction remaining.
    #[must_use]
    pub const fn with_binding(mut self, index: usize) -> Self {
        self.binding = Some(index);
        self
    }

    /// Sets the status code of the response, if it is known. A redirection gets no rate limit fields: a client that sees
    /// little remaining might not follow it.
    #[must_use]
    pub const fn with_response_status(mut self, status: u16) -> Self {
        self.status = status;
        self
    }

    /// Adds a random delay to `Retry-After`, so that denied clients do not return at the same time.
    #[must_use]
    pub const fn with_jitter(mut self, jitter: Jitter) -> Self {
        self.jitter = jitter;
        self
    }

    /// The value of `Retry-After` in whole seconds: rounded up, never zero, and not before every limit that denies admits
    /// again. `None` if the request is admitted, or waiting does not help.
    #[must_use]
    pub fn retry_after(&self) -> Option<u64> {
        self.retry_wait().map(seconds)
    }

    /// The same wait in milliseconds, rounded up.
    #[must_use]
    pub fn retry_after_ms(&self) -> Option<u64> {
        self.retry_wait().map(Nanos::as_millis_ceil)
    }

    /// The same wait in nanoseconds.
    pub(crate) fn retry_wait(&self) -> Option<Nanos> {
        let Outcome::Deny { retry_after } = self.outcome else {
            return None;
        };
        let limits = self
            .items
            .iter()
            .filter_map(|item| self.denial_wait(item.outcome));
        limits
            .chain(self.denial_wait(Outcome::Deny { retry_after }))
            .max()
    }

    /// The reset that is sent for a limit. For a denial it is the wait; with nothing remaining, the time until the next unit;
    /// otherwise the time until the quota is full. `None` if that never happens.
    pub(crate) fn wait(&self, item: &RateLimitItem<'_>) -> Option<Nanos> {
        let spans = [item.next_unit_after, item.reset_after];
        match self.denial_wait(item.outcome) {
            Some(wait) => Some(wait),
            None if item.remaining() == 0 => spans.into_iter().find(|span| !span.is_zero()),
            None => Some(item.reset_after),
        }
    }

    fn denial_wait(&self, outcome: Outcome) -> Option<Nanos> {
        match outcome {
            Outcome::Deny { retry_after } => {
                // A denial with a wait of zero would contradict itself.
                let wait = retry_after.max(Nanos::from_nanos(1));
                Some(wait.saturating_add(self.jitter.extra))
            }
            Outcome::Allow | Outcome::Wait(_) | Outcome::Never => None,
        }
    }

    /// The binding limit.
    pub(crate) fn binding(&self) -> Option<&'a RateLimitItem<'a>> {
        self.binding_index().and_then(|index| self.items.get(index))
    }

    pub(crate) fn binding_index(&self) -> Option<usize> {
        if let Some(index) = self.binding.filter(|index| *index < self.items.len()) {
            return Some(index);
        }
        let mut limits = self.items.iter().enumerate();
        let mut tightest = limits.next()?;
        for candidate in limits {
            if is_tighter(candidate.1, tightest.1) {
                tightest = candidate;
            }
        }
        Some(tightest.0)
    }

    pub(crate) const fn items(&self) -> &'a [RateLimitItem<'a>] {
        self.items
    }

    pub(crate) const fn outcome(&self) -> Outcome {
        self.outcome
    }

    pub(crate) const fn is_refusal(&self) -> bool {
        !self.outcome.is_admitted()
    }

    pub(crate) const fn is_redirection(&self) -> bool {
        matches!(self.status, 300..=399)
    }

    /// The time at which a wait ends, since 1970.
    pub(crate) const fn end_of_wait(&self, wait: Nanos) -> Nanos {
        Nanos::from_nanos(self.now.after(wait).as_nanos())
    }
}

/// Whether the first limit is tighter than the second: it denies for ever, denies longer, or has a smaller fraction left.
fn is_tighter(one: &RateLimitItem<'_>, other: &RateLimitItem<'_>) -> bool {
    let refusal = |item: &RateLimitItem<'_>| match item.outcome {
        Outcome::Never => Nanos::MAX,
        Outcome::Deny { retry_after } => retry_after.max(Nanos::from_nanos(1)),
        Outcome::Allow | Outcome::Wait(_) => Nanos::ZERO,
    };
    let status = |item: &RateLimitItem<'_>| QuotaStatus {
        limit: item.quota,
        remaining: item.remaining(),
        reset_after: item.reset_after,
    };
    let (this, that) = (refusal(one), refusal(other));
    this > that || (this == that && status(one).is_closer_to_limit_than(&status(other)))
}

/// The value of `Retry-After` in whole seconds for one outcome; see [`RateLimitStatus::retry_after`].
///
/// ```
/// use tollgate_core::{Nanos, Outcome};
/// use tollgate_http::retry_after;
///
/// let denied = |millis| Outcome::Deny { retry_after: Nanos::from_millis(millis) };
/// assert_eq!(retry_after(denied(100)), Some(1));
/// assert_eq!(retry_after(denied(1_001)), Some(2));
/// assert_eq!(retry_after(Outcome::Allow), None);
/// assert_eq!(retry_after(Outcome::Never), None);
/// ```
#[must_use]
pub fn retry_after(outcome: Outcome) -> Option<u64> {
    RateLimitStatus::new(outcome, &[]).retry_after()
}

/// A random delay that is added to `Retry-After`, so that clients denied at the same time do not return at the same time.
///
/// ```
/// use tollgate_core::Nanos;
/// use tollgate_http::Jitter;
///
/// let jitter = Jitter::new(Nanos::from_secs(5), 42);
/// assert!(jitter.extra() <= Nanos::from_secs(5));
/// assert_eq!(jitter, Jitter::new(Nanos::from_secs(5), 42), "the same seed, the same wait");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Jitter {
    extra: Nanos,
}

impl Jitter {
    /// No delay.
    pub const NONE: Self = Self { extra: Nanos::ZERO };

    /// A delay of at most `max`, uniformly distributed and determined by the seed. Use a seed that differs between requests:
    /// a counter, or the digest of a key.
    #[must_use]
    pub fn new(max: Nanos, seed: u64) -> Self {
        // The finaliser of SplitMix64, so that seeds which differ in one bit differ in all.
        let mut mixed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        // The high half of the product: a number from zero to `max`, without the bias of a remainder.
        let (_, high) = mixed.carrying_mul(max.as_nanos(), max.as_nanos());
        Self {
            extra: Nanos::from_nanos(high),
        }
    }

    /// The delay.
    #[must_use]
    pub const fn extra(self) -> Nanos {
        self.extra
    }
}
