//! The result of an admitted `check_all`: the status of every limit, and the receipts of what was charged.
//!
//! The same type in memory and over Redis. Must not know: stores, keys, how to wait.

use std::fmt;
use std::time::Duration;

use crate::admission::{Admission, LimitStatus, tightest};

/// The charges of one [`check_all`](crate::check_all), one [`Admission`] for each limiter, in the order of the items.
///
/// ```
/// use tollgate::{Limiter, check_all, refund_all};
///
/// let requests = Limiter::per_minute(60).name("requests").build()?;
/// let tokens = Limiter::per_minute(90_000).name("tokens").share_table_with(&requests).build()?;
/// let items = [requests.for_key("team-7"), tokens.for_key("team-7").cost(1_200)];
///
/// let admission = check_all(&items)?;
/// let limits: Vec<_> = admission.limits().map(|s| (s.name, s.remaining, s.limit, s.charged)).collect();
/// assert_eq!(limits, [("requests", 59, 60, 1), ("tokens", 88_800, 90_000, 1_200)]);
/// assert_eq!(admission.tightest().name, "requests");
///
/// // The work was not done: refund both limiters.
/// refund_all(&items, admission)?;
/// assert_eq!(requests.peek("team-7")?.tightest().remaining, 60);
/// assert_eq!(tokens.peek("team-7")?.tightest().remaining, 90_000);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct BatchAdmission {
    parts: Vec<Admission>,
}

impl BatchAdmission {
    pub(crate) const fn new(parts: Vec<Admission>) -> Self {
        Self { parts }
    }

    /// The status of every limit of every limiter, in the order of the items and their limits.
    pub fn limits(&self) -> impl Iterator<Item = LimitStatus<'_>> {
        self.parts.iter().flat_map(Admission::limits)
    }

    /// The limit with the smallest fraction of its quota left. Report this one to clients.
    #[must_use]
    pub fn tightest(&self) -> LimitStatus<'_> {
        tightest(self.limits())
    }

    /// Time that the caller must wait before it proceeds. Only a queue ([`LeakyBucket::queue`](crate::LeakyBucket::queue))
    /// returns a time above zero.
    #[must_use]
    pub fn wait(&self) -> Duration {
        let waits = self.parts.iter().map(Admission::wait);
        waits.max().unwrap_or(Duration::ZERO)
    }

    /// The admission of each limiter.
    #[must_use]
    pub fn parts(&self) -> &[Admission] {
        &self.parts
    }

    /// The admission of each limiter, to refund only some of them. Pass each to [`refund`](crate::Limiter::refund) of the
    /// limiter and with the key that it was charged on. To refund all of them use [`refund_all`](crate::refund_all).
    #[must_use]
    pub fn into_parts(self) -> Vec<Admission> {
        self.parts
    }
}

impl fmt::Debug for BatchAdmission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AllAllowed").field(&self.parts).finish()
    }
}
