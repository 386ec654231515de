//! Counts fleet messages that are not authentic, and logs when the first one appears.
//!
//! Must not know: registers, how signatures are checked.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// The alarm ends after this time without such messages.
const ALARM_DURATION: Duration = Duration::from_secs(60);

/// Why a message is ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rejection {
    /// Its signature is wrong.
    Forged,
    /// It is older than what this node knows, or its sender is gone.
    Replayed,
    /// It has no signature.
    Unsigned,
}

impl Rejection {
    /// All reasons.
    pub const ALL: [Self; 3] = [Self::Forged, Self::Replayed, Self::Unsigned];

    /// Its name in metrics and admin pages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Forged => "forged",
            Self::Replayed => "replayed",
            Self::Unsigned => "unsigned",
        }
    }
}

/// How many messages were ignored because they are not authentic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct RejectionCounts {
    /// By reason, in the order of [`Rejection::ALL`].
    pub totals: [u64; 3],
    /// Whether there was one within the last minute.
    pub is_alarming: bool,
}

/// The counts of one node.
#[derive(Debug, Default)]
pub(super) struct Rejections(Mutex<([u64; 3], Option<Instant>)>);

impl Rejections {
    /// Counts a message, and logs it if it is the first one within a minute.
    pub(super) fn record(&self, why: Rejection, what: &'static str, name: &str) {
        let now = Instant::now();
        let is_first = {
            let mut state = self.lock();
            let (totals, last) = &mut *state;
            for (total, reason) in totals.iter_mut().zip(Rejection::ALL) {
                *total = total.saturating_add(u64::from(reason == why));
            }
            let is_first = !is_recent(*last, now);
            *last = Some(now);
            is_first
        };
        if is_first {
            let hint = match why {
                Rejection::Unsigned => {
                    "; during an upgrade from a version without signatures set --fleet-accept-unsigned"
                }
                Rejection::Forged | Rejection::Replayed => "",
            };
            let reason = why.name();
            tracing::error!(
                reason,
                what,
                ?name,
                "fleet register contains a message that is not authentic, ignoring such messages{hint}"
            );
        }
    }

    pub(super) fn counts(&self) -> RejectionCounts {
        let (totals, last) = *self.lock();
        RejectionCounts {
            totals,
            is_alarming: is_recent(last, Instant::now()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, ([u64; 3], Option<Instant>)> {
        // Numbers are independent, so a poisoned state is still usable.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_recent(last: Option<Instant>, now: Instant) -> bool {
    last.is_some_and(|last| now.saturating_duration_since(last) < ALARM_DURATION)
}
