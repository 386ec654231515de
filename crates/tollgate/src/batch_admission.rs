//! What several limiters say when all of them say yes: where every limit stands, and proof of what was charged.
//!
//! The same type in memory and over a server. Must not know: stores, keys, how to wait.

use std::fmt;
use std::time::Duration;

use crate::admission::{Admission, LimitStatus, tightest};

/// Charges that [`check_all`](crate::check_all) made together, one for each limiter, in the order they were asked.
///
/// ```
/// use tollgate::{Limiter, check_all, refund_all};
///
/// let requests = Limiter::per_minute(60).name("requests").build()?;
/// let tokens = Limiter::per_minute(90_000).name("tokens").beside(&requests).build()?;
/// let asks = [requests.ask("team-7"), tokens.ask("team-7").cost(1_200)];
///
/// let allowed = check_all(&asks)?;
/// let told: Vec<_> = allowed.limits().map(|s| (s.name, s.remaining, s.limit, s.charged)).collect();
/// assert_eq!(told, [("requests", 59, 60, 1), ("tokens", 88_800, 90_000, 1_200)]);
/// assert_eq!(allowed.tightest().name, "requests");
///
/// // The work was not done after all: both get back what they were charged.
/// refund_all(&asks, allowed)?;
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

    /// Every limit of every limiter, in the order they were asked and written down.
    pub fn limits(&self) -> impl Iterator<Item = LimitStatus<'_>> {
        self.parts.iter().flat_map(Admission::limits)
    }

    /// The limit with the smallest part of its quota left: the one worth telling a client about.
    #[must_use]
    pub fn tightest(&self) -> LimitStatus<'_> {
        tightest(self.limits())
    }

    /// Time to wait before going ahead. Only a queue ([`LeakyBucket::queue`](crate::LeakyBucket::queue)) asks for any.
    #[must_use]
    pub fn wait(&self) -> Duration {
        let waits = self.parts.iter().map(Admission::wait);
        waits.max().unwrap_or(Duration::ZERO)
    }

    /// What each limiter answered.
    #[must_use]
    pub fn parts(&self) -> &[Admission] {
        &self.parts
    }

    /// What each limiter answered, to give some of it back and not the rest: each part to the limiter and the key that it
    /// was charged on, by [`refund`](crate::Limiter::refund). To give all of it back use
    /// [`refund_all`](crate::refund_all).
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
