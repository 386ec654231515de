//! Encodes a lease request as a call of the lease script, and decodes its reply.
//!
//! Must not know: connections, where a key is.

use tollgate_core::limit::Limit;
use tollgate_core::quota_lease::{self, LeaseGrant, LeaseReport, LeaseRequest, MAX_QUOTA_LEASES};
use tollgate_core::{Nanos, Outcome, Timestamp, TokenBucket};
use tollgate_store::{IdentifiedLimit, StoreError, StoreErrorKind, StoreKey};

use super::bytes::Blob;
use super::observed_state::ReplyReader;
use super::script_call::ScriptCall;
use crate::key_name::{KeyHashSecret, KeyName, leased_bucket_name};
use crate::script::Which;

/// The bucket that leases of this limit are taken from. Other limits cannot be leased.
#[must_use]
pub fn leasable_bucket(limit: &Limit) -> Option<&TokenBucket> {
    limit.denying_bucket()
}

impl ScriptCall {
    /// The call for a lease request on a key. `now` is for tests that move the time; `None` uses the server's clock.
    ///
    /// # Errors
    ///
    /// The limit's algorithm cannot be leased from.
    pub fn for_lease(
        secret: KeyHashSecret,
        key: &StoreKey<'_>,
        ruled: &IdentifiedLimit,
        errand: &LeaseRequest<'_>,
        now: Option<Timestamp>,
    ) -> Result<Self, StoreError> {
        Self::for_named_lease(KeyName::new(secret, key, None), ruled, errand, now)
    }

    /// The same for a key with a known name.
    pub(crate) fn for_named_lease(
        named: KeyName,
        ruled: &IdentifiedLimit,
        errand: &LeaseRequest<'_>,
        now: Option<Timestamp>,
    ) -> Result<Self, StoreError> {
        let bucket = leasable_bucket(&ruled.limit).ok_or_else(unlendable)?;
        let mut request = Self::empty(1, now);
        request.which = Which::Lend;
        request.set_first_tag(named.tag());
        request
            .keys
            .push(&leased_bucket_name(&named.name(ruled.id)));
        request.args.push(blob(bucket, errand).as_bytes());
        for report in errand.reports {
            request.args.push(report_blob(bucket, report).as_bytes());
        }
        Ok(request)
    }
}

fn burst(bucket: &TokenBucket) -> u64 {
    bucket.limit() / bucket.block().max(1)
}

fn blob(bucket: &TokenBucket, errand: &LeaseRequest<'_>) -> Blob {
    let block = bucket.block().max(1);
    let spend = errand.direct_cost.div_ceil(block);
    let operation = match spend {
        0 => 0,
        blocks if blocks > burst(bucket) => 2,
        _ => 1,
    };
    let most_loans = u32::try_from(MAX_QUOTA_LEASES).unwrap_or(u32::MAX);
    let blob = Blob::default()
        .pair(bucket.interval().as_nanos())
        .pair(burst(bucket))
        .pair(bucket.ceiling().as_nanos())
        .small(most_loans)
        .byte(operation)
        .pair(spend);
    let (least, most, life, id) = errand.lease.map_or((0, 0, Nanos::ZERO, 0), |want| {
        let least = want.min_units.div_ceil(block).max(1);
        (least, want.max_units / block, want.duration, want.id.0)
    });
    blob.byte(errand.lease.is_some().into())
        .id(id)
        .pair(least)
        .pair(most)
        .pair(life.as_nanos())
}

fn report_blob(bucket: &TokenBucket, report: &LeaseReport) -> Blob {
    let block = bucket.block().max(1);
    // A partly spent block may still be spent on, so only a final report rounds up.
    let blocks = match report.is_last {
        true => report.spent.div_ceil(block),
        false => report.spent / block,
    };
    Blob::default()
        .id(report.id.0)
        .pair(blocks)
        .pair(report.last_spend_age.as_nanos())
        .byte(report.is_last.into())
}

/// Decodes the reply to a lease request: the grant, and the number of corrupt states.
///
/// # Errors
///
/// The reply is not one that the script sends.
pub fn decode_lease_grant(
    limit: &Limit,
    errand: &LeaseRequest<'_>,
    reply: &[i64],
) -> Result<(LeaseGrant, u64), StoreError> {
    let bucket = leasable_bucket(limit).ok_or_else(unlendable)?;
    let mut reader = ReplyReader(reply.iter());
    let read = read(bucket, errand, &mut reader).filter(|_| reader.int().is_none());
    let garbled = || {
        StoreError::new(
            StoreErrorKind::InvalidReply,
            "the reply does not match the lease request",
        )
    };
    read.ok_or_else(garbled)
}

fn read(
    bucket: &TokenBucket,
    errand: &LeaseRequest<'_>,
    reader: &mut ReplyReader<'_>,
) -> Option<(LeaseGrant, u64)> {
    let now = Timestamp::from_nanos(reader.pair()?);
    let corrupt = reader.count()?;
    let decided = reader.int()?;
    let wait = Nanos::from_nanos(reader.pair()?);
    let spend = match decided {
        0 => Outcome::Allow,
        1 if errand.direct_cost > 0 && !wait.is_zero() => Outcome::Deny { retry_after: wait },
        2 if errand.direct_cost > 0 => Outcome::Never,
        _ => return None,
    };
    let most = errand
        .lease
        .map_or(0, |want| want.max_units / bucket.block().max(1));
    let lent = reader.pair().filter(|blocks| *blocks <= most)?;
    let retry_after = Nanos::from_nanos(reader.pair()?);
    let (tat, out, fresh_at) = (reader.pair()?, reader.pair()?, reader.pair()?);
    let wanted = errand.lease.filter(|_| spend.is_admitted());
    if lent > 0 && wanted.is_none() {
        return None;
    }
    let granted = LeaseGrant {
        direct_outcome: spend,
        units: lent.saturating_mul(bucket.block()),
        duration: wanted.map_or(Nanos::ZERO, |want| want.duration),
        retry_after,
        status: quota_lease::status_from_parts(bucket, tat, out, fresh_at, now),
    };
    Some((granted, corrupt))
}

fn unlendable() -> StoreError {
    StoreError::new(
        StoreErrorKind::BadRequest,
        "the limit's algorithm does not support leases",
    )
}
