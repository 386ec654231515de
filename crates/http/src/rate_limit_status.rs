//! One answer to one request: its outcome, where every limit stands, and how long to wait.
//!
//! Here is decided what is promised; `write` only spells it. Must not know: dialects, header libraries.

use tollgate_core::{Nanos, Outcome, QuotaStatus, Timestamp};

use crate::rate_limit_item::RateLimitItem;
use crate::text::seconds;

/// What a transport knows when it answers.
///
/// ```
/// use tollgate_core::{Nanos, Outcome, QuotaStatus, QuotaUnit};
/// use tollgate_http::{RateLimitStatus, Dialects, QuotaPolicy, RateLimitItem, HeaderFields};
///
/// let policy = QuotaPolicy::new("per-user", 100, Nanos::MINUTE, QuotaUnit::Requests)?;
/// let status = QuotaStatus { limit: 100, remaining: 0, reset_after: Nanos::MINUTE };
/// let denied = Outcome::Deny { retry_after: Nanos::from_millis(600) };
/// let standings = [RateLimitItem::new(&policy, denied, &status)];
///
/// // Kept by the connection or the thread: nothing is allocated once it has grown.
/// let mut words = HeaderFields::new();
/// RateLimitStatus::new(denied, &standings).write(Dialects::default(), &mut words);
/// let expected: [(&str, &[u8]); 4] = [
///     ("ratelimit-policy", br#""per-user";q=100;w=60"#),
///     ("ratelimit", br#""per-user";r=0;t=1"#),
///     ("retry-after", b"1"),
///     ("cache-control", b"no-store"),
/// ];
/// assert!(words.iter().eq(expected));
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
    /// An answer about these limits. Leave out limits in shadow: clients cannot exhaust them.
    #[must_use]
    pub const fn new(outcome: Outcome, standings: &'a [RateLimitItem<'a>]) -> Self {
        Self {
            outcome,
            items: standings,
            binding: None,
            now: Timestamp::EPOCH,
            status: 0,
            jitter: Jitter::NONE,
        }
    }

    /// The time now, for dialects that tell the time of a reset instead of a wait.
    #[must_use]
    pub const fn with_now(mut self, now: Timestamp) -> Self {
        self.now = now;
        self
    }

    /// Which limit binds, for dialects that tell only one. Without it, the one that refuses longest, else the one with the
    /// smallest part left.
    #[must_use]
    pub const fn with_binding(mut self, index: usize) -> Self {
        self.binding = Some(index);
        self
    }

    /// The status code of the response, where it is known. On a redirection nothing is told of limits: a client that sees
    /// little left might not follow it.
    #[must_use]
    pub const fn with_response_status(mut self, status: u16) -> Self {
        self.status = status;
        self
    }

    /// Lets those who are denied come back at different times.
    #[must_use]
    pub const fn with_jitter(mut self, jitter: Jitter) -> Self {
        self.jitter = jitter;
        self
    }

    /// The value of `Retry-After` in whole seconds: rounded up, never zero, and not before any limit that refuses has
    /// room. `None` where there is nothing to wait for, or waiting does not help.
    #[must_use]
    pub fn retry_after(&self) -> Option<u64> {
        self.retry_wait().map(seconds)
    }

    /// The same wait in milliseconds, rounded up, for those who can wait more exactly.
    #[must_use]
    pub fn retry_after_ms(&self) -> Option<u64> {
        self.retry_wait().map(Nanos::as_millis_ceil)
    }

    /// The same wait to the nanosecond.
    pub(crate) fn retry_wait(&self) -> Option<Nanos> {
        let Outcome::Deny { retry_after } = self.outcome else {
            return None;
        };
        let limits = self
            .items
            .iter()
            .filter_map(|standing| self.denial_wait(standing.outcome));
        limits
            .chain(self.denial_wait(Outcome::Deny { retry_after }))
            .max()
    }

    /// How long a limit asks to wait, by what it says: a denial until it has room, else until it has more if nothing is
    /// left, else until all of it is back. `None` if that never happens.
    pub(crate) fn wait(&self, standing: &RateLimitItem<'_>) -> Option<Nanos> {
        let spans = [standing.next_unit_after, standing.reset_after];
        match self.denial_wait(standing.outcome) {
            Some(wait) => Some(wait),
            None if standing.remaining() == 0 => spans.into_iter().find(|span| !span.is_zero()),
            None => Some(standing.reset_after),
        }
    }

    fn denial_wait(&self, outcome: Outcome) -> Option<Nanos> {
        match outcome {
            Outcome::Deny { retry_after } => {
                // A wait of nothing would be a denial that lies about one of the two.
                let wait = retry_after.max(Nanos::from_nanos(1));
                Some(wait.saturating_add(self.jitter.extra))
            }
            Outcome::Allow | Outcome::Wait(_) | Outcome::Never => None,
        }
    }

    /// The limit that binds.
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

    /// The instant at which a wait ends.
    pub(crate) const fn end_of_wait(&self, wait: Nanos) -> Nanos {
        Nanos::from_nanos(self.now.after(wait).as_nanos())
    }
}

/// Whether the first limit leaves less room than the second: refusing for ever, refusing longer, a smaller part left.
fn is_tighter(one: &RateLimitItem<'_>, other: &RateLimitItem<'_>) -> bool {
    let refusal = |standing: &RateLimitItem<'_>| match standing.outcome {
        Outcome::Never => Nanos::MAX,
        Outcome::Deny { retry_after } => retry_after.max(Nanos::from_nanos(1)),
        Outcome::Allow | Outcome::Wait(_) => Nanos::ZERO,
    };
    let status = |standing: &RateLimitItem<'_>| QuotaStatus {
        limit: standing.quota,
        remaining: standing.remaining(),
        reset_after: standing.reset_after,
    };
    let (this, that) = (refusal(one), refusal(other));
    this > that || (this == that && status(one).is_closer_to_limit_than(&status(other)))
}

/// The value of `Retry-After` in whole seconds for one limit's outcome, as [`Answer::retry_after`] says it.
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

/// A little longer than needed, differently for each: so that those who were denied together do not return together.
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
    /// No longer than needed.
    pub const NONE: Self = Self { extra: Nanos::ZERO };

    /// Up to `most` longer, evenly, as the seed decides. The seed may be anything that differs between callers: a
    /// request's number, the digest of a key.
    #[must_use]
    pub fn new(most: Nanos, seed: u64) -> Self {
        // The finaliser of SplitMix64, so that seeds which differ in one bit differ in all.
        let mut mixed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        // The high half of the product: a number from zero to `most`, without the bias of a remainder.
        let (_, high) = mixed.carrying_mul(most.as_nanos(), most.as_nanos());
        Self {
            extra: Nanos::from_nanos(high),
        }
    }

    /// How much longer.
    #[must_use]
    pub const fn extra(self) -> Nanos {
        self.extra
    }
}
