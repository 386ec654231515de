//! Sample limits and statuses for several tests, and header fields as text.
//!
//! Must not know: what a test expects.

use tollgate_core::{Nanos, Outcome, QuotaStatus, QuotaUnit, Timestamp};

use crate::{
    Dialects, HeaderFields, PartitionKey, QuotaPolicy, RateLimitItem, RateLimitStatus, Scope,
};

/// 1,700,000,000.25 s after 1970.
pub(super) const NOW: Timestamp = Timestamp::from_nanos(1_700_000_000_250_000_000);

pub(super) fn status(remaining: u64, reset_after: Nanos) -> QuotaStatus {
    QuotaStatus {
        limit: 0,
        remaining,
        reset_after,
    }
}

pub(super) const fn denied(millis: u64) -> Outcome {
    Outcome::Deny {
        retry_after: Nanos::from_millis(millis),
    }
}

/// The header fields of a status, a line each.
pub(super) fn lines(rate_limit: &RateLimitStatus<'_>, dialects: &str) -> Vec<String> {
    let dialects: Dialects = dialects.parse().unwrap();
    let mut fields = HeaderFields::new();
    rate_limit.write(dialects, &mut fields);
    let line = |(name, value): (&str, &[u8])| format!("{name}: {}", str::from_utf8(value).unwrap());
    fields.iter().map(line).collect()
}

/// The limits of `docs/headers.md`: by the minute and by the day, one in flight, one that counts bytes.
pub(super) struct Sample {
    pub(super) minute: QuotaPolicy,
    pub(super) day: QuotaPolicy,
    pub(super) in_flight: QuotaPolicy,
    pub(super) upload: QuotaPolicy,
}

impl Sample {
    pub(super) fn new() -> Self {
        let minute =
            QuotaPolicy::new("per-minute", 100, Nanos::MINUTE, QuotaUnit::Requests).unwrap();
        let minute = minute.partitioned_by(&["user_id", "method"]).unwrap();
        let day = QuotaPolicy::new("per day", 1_000, Nanos::DAY, QuotaUnit::Requests).unwrap();
        let upload =
            QuotaPolicy::new("upload", 65_536, Nanos::from_secs(10), QuotaUnit::Bytes).unwrap();
        Self {
            minute,
            day: day.with_scope(Scope::Global),
            in_flight: QuotaPolicy::concurrent("in-flight", 20).unwrap(),
            upload,
        }
    }

    /// An admitted request with little remaining of the minute.
    pub(super) fn admitted(&self) -> [RateLimitItem<'_>; 2] {
        let minute = status(5, Nanos::from_millis(57_001));
        let day = status(700, Nanos::HOUR);
        [
            RateLimitItem::new(&self.minute, Outcome::Allow, &minute).with_cost(1),
            RateLimitItem::new(&self.day, Outcome::Allow, &day).with_cost(1),
        ]
    }

    /// A request denied by the day, with some of the minute remaining.
    pub(super) fn refused(&self) -> [RateLimitItem<'_>; 2] {
        let minute = status(40, Nanos::from_millis(36_000));
        let day = status(0, Nanos::DAY);
        [
            RateLimitItem::new(&self.minute, Outcome::Allow, &minute).with_cost(1),
            RateLimitItem::new(&self.day, denied(86_399_100), &day).with_cost(1),
        ]
    }

    pub(super) fn upload(&self) -> RateLimitItem<'_> {
        let status = status(1_024, Nanos::from_secs(3));
        let key = PartitionKey::digest(b"sixteen bytes !!", b"alice");
        RateLimitItem::new(&self.upload, Outcome::Allow, &status).with_partition(key)
    }
}
