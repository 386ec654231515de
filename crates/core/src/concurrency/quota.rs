//! Builds a concurrency limit: the number of places, and how long a lost holder keeps its place.

use crate::error::{InvalidQuota, InvalidReason};
use crate::time::{MAX_CAPACITY, Nanos};

/// The most places of one concurrency limit, and so the most leases in its state.
pub const MAX_LEASES: u64 = 65_536;

/// A compiled concurrency limit.
///
/// ```
/// use tollgate_core::{Concurrency, Nanos, Outcome, Timestamp};
/// use tollgate_core::concurrency::{LeaseId, LeaseSet};
///
/// let quota = Concurrency::new(1, Nanos::from_secs(30))?;
/// let mut leases = LeaseSet::default();
/// let now = Timestamp::from_secs(0);
/// let first = quota.acquire(&leases, now, LeaseId(1), 1);
/// assert_eq!(first.outcome, Outcome::Allow);
/// leases.apply(first.next.unwrap());
///
/// let second = quota.acquire(&leases, now, LeaseId(2), 1);
/// assert_eq!(second.outcome, Outcome::Deny { retry_after: Nanos::from_secs(30) });
///
/// leases.apply(quota.release(&leases, now, LeaseId(1)).next.unwrap());
/// assert_eq!(quota.acquire(&leases, now, LeaseId(2), 1).outcome, Outcome::Allow);
/// # Ok::<(), tollgate_core::InvalidQuota>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Concurrency {
    pub(super) limit: u64,
    pub(super) lease: u64,
}

impl Concurrency {
    /// A limit of `limit` places at once, with leases of this duration.
    ///
    /// # Errors
    /// More than [`MAX_LEASES`] places, or a lease of zero length or longer than 146 years.
    pub const fn new(limit: u64, lease: Nanos) -> Result<Self, InvalidQuota> {
        if limit > MAX_LEASES {
            return Err(InvalidQuota {
                field: "concurrency",
                value: limit,
                reason: InvalidReason::TooLarge,
                nearest: Some(MAX_LEASES),
            });
        }
        let (reason, nearest) = if lease.is_zero() {
            (InvalidReason::Zero, 1)
        } else if lease.as_nanos() > MAX_CAPACITY.as_nanos() {
            (InvalidReason::TooLarge, MAX_CAPACITY.as_nanos())
        } else {
            return Ok(Self {
                limit,
                lease: lease.as_nanos(),
            });
        };
        Err(InvalidQuota {
            field: "lease",
            value: lease.as_nanos(),
            reason,
            nearest: Some(nearest),
        })
    }

    /// The number of places.
    #[must_use]
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// How long a lease lasts unless it is renewed.
    #[must_use]
    pub const fn lease_duration(&self) -> Nanos {
        Nanos::from_nanos(self.lease)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_field_and_the_nearest_value() {
        let error = |limit, lease| {
            let error = Concurrency::new(limit, lease).unwrap_err();
            (error.field, error.nearest)
        };
        assert_eq!(error(65_537, Nanos::SECOND), ("concurrency", Some(65_536)));
        assert_eq!(error(1, Nanos::ZERO), ("lease", Some(1)));
        assert_eq!(error(1, Nanos::MAX), ("lease", Some(1 << 62)));
    }
}
