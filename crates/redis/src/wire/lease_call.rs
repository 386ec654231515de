//! Encodes a lease request as a call of the lease script, and decodes its reply.
//!
//! Must not know: connections, where a key is.

use tollgate_core::limit::Limit;
use tollgate_core::quota_lease::{self, LeaseGrant, LeaseReport, LeaseRequest, MAX_QUOTA_LEASES};
use tollgate_core::{Nanos, Outcome, Timestamp, TokenBucket};
use tollgate_store::{IdentifiedLimit, Op, QuotaCheck, StoreError, StoreErrorKind, StoreKey};

use super::bytes::Blob;
use super::observed_state::ReplyReader;
use super::script_call::ScriptCall;
use super::{algorithm, code};
use crate::key_name::{KeyHashSecret, KeyName};
use crate::script::ScriptKind;

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
        limit: &IdentifiedLimit,
        request: &LeaseRequest<'_>,
        now: Option<Timestamp>,
    ) -> Result<Self, StoreError> {
        Self::for_named_lease(KeyName::new(secret, key, None), limit, request, now)
    }

    /// The same for a key with a known name.
    pub(crate) fn for_named_lease(
        key_name: KeyName,
        limit: &IdentifiedLimit,
        request: &LeaseRequest<'_>,
        now: Option<Timestamp>,
    ) -> Result<Self, StoreError> {
        let bucket = leasable_bucket(&limit.limit).ok_or_else(unsupported)?;
        let mut call = Self::empty(1, now);
        call.kind = ScriptKind::QuotaLease;
        call.keys.push(&key_name.leased_bucket_name(limit.id));
        call.args.push(blob(bucket, request).as_bytes());
        for report in request.reports {
            call.args.push(report_blob(bucket, report).as_bytes());
        }
        Ok(call)
    }
}

impl ScriptCall {
    /// The call that spends on a leased bucket without leases; `None` if that script does not decide such a check. Its
    /// reply is decoded like that of any other spend, unless [`has_leases`] says that it decided nothing. `now` is for
    /// tests that move the time.
    #[must_use]
    pub fn for_unleased_spend(
        secret: KeyHashSecret,
        check: &QuotaCheck<'_>,
        now: Option<Timestamp>,
    ) -> Option<Self> {
        Self::for_named_unleased_spend(KeyName::new(secret, &check.key, None), check, now)
    }

    /// The same for a key with a known name.
    pub(crate) fn for_named_unleased_spend(
        key_name: KeyName,
        check: &QuotaCheck<'_>,
        now: Option<Timestamp>,
    ) -> Option<Self> {
        let quota = check.limit.limit.quota();
        let is_spend = matches!(check.op, Op::Spend(1..));
        let is_bucket = algorithm::script(quota) == ScriptKind::Buckets;
        leasable_bucket(&check.limit.limit).filter(|_| is_spend && is_bucket)?;
        let mut blob = algorithm::encode(quota, check.op)?;
        // A cost above the burst has another code.
        if *blob.operation_mut() != code::SPEND {
            return None;
        }
        let mut call = Self::empty(1, now);
        call.kind = ScriptKind::SpendUnleased;
        call.keys.push(&key_name.leased_bucket_name(check.limit.id));
        call.args.push(blob.as_bytes());
        Some(call)
    }
}

/// Whether a spend on a leased bucket was not decided, because the bucket has leases.
#[must_use]
pub fn has_leases(reply: &[i64]) -> bool {
    reply == [1]
}

fn burst(bucket: &TokenBucket) -> u64 {
    bucket.limit() / bucket.block().max(1)
}

fn blob(bucket: &TokenBucket, request: &LeaseRequest<'_>) -> Blob {
    let block = bucket.block().max(1);
    let spend = request.direct_cost.div_ceil(block);
    let operation = match spend {
        0 => 0,
        blocks if blocks > burst(bucket) => 2,
        _ => 1,
    };
    let max_leases = u32::try_from(MAX_QUOTA_LEASES).unwrap_or(u32::MAX);
    let blob = Blob::default()
        .pair(bucket.interval().as_nanos())
        .pair(burst(bucket))
        .pair(bucket.ceiling().as_nanos())
        .small(max_leases)
        .byte(operation)
        .pair(spend);
    let (min, max, duration, id) = request.lease.map_or((0, 0, Nanos::ZERO, 0), |lease| {
        let min = lease.min_units.div_ceil(block).max(1);
        (min, lease.max_units / block, lease.duration, lease.id.0)
    });
    blob.byte(request.lease.is_some().into())
        .id(id)
        .pair(min)
        .pair(max)
        .pair(duration.as_nanos())
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
    request: &LeaseRequest<'_>,
    reply: &[i64],
) -> Result<(LeaseGrant, u64), StoreError> {
    let bucket = leasable_bucket(limit).ok_or_else(unsupported)?;
    let mut reader = ReplyReader(reply.iter());
    let parsed = parse(bucket, request, &mut reader).filter(|_| reader.int().is_none());
    let invalid_reply = || {
        StoreError::new(
            StoreErrorKind::InvalidReply,
            "the reply does not match the lease request",
        )
    };
    parsed.ok_or_else(invalid_reply)
}

fn parse(
    bucket: &TokenBucket,
    request: &LeaseRequest<'_>,
    reader: &mut ReplyReader<'_>,
) -> Option<(LeaseGrant, u64)> {
    let now = Timestamp::from_nanos(reader.pair()?);
    let corrupt = reader.count()?;
    let decided = reader.int()?;
    let wait = Nanos::from_nanos(reader.pair()?);
    let spend = match decided {
        0 => Outcome::Allow,
        1 if request.direct_cost > 0 && !wait.is_zero() => Outcome::Deny { retry_after: wait },
        2 if request.direct_cost > 0 => Outcome::Never,
        _ => return None,
    };
    let max = request
        .lease
        .map_or(0, |lease| lease.max_units / bucket.block().max(1));
    let leased = reader.pair().filter(|blocks| *blocks <= max)?;
    let retry_after = Nanos::from_nanos(reader.pair()?);
    let (tat, out, fresh_at) = (reader.pair()?, reader.pair()?, reader.pair()?);
    let requested = request.lease.filter(|_| spend.is_admitted());
    if leased > 0 && requested.is_none() {
        return None;
    }
    let grant = LeaseGrant {
        direct_outcome: spend,
        units: leased.saturating_mul(bucket.block()),
        duration: requested.map_or(Nanos::ZERO, |lease| lease.duration),
        retry_after,
        status: quota_lease::status_from_parts(bucket, tat, out, fresh_at, now),
    };
    Some((grant, corrupt))
}

fn unsupported() -> StoreError {
    StoreError::new(
        StoreErrorKind::BadRequest,
        "the limit's algorithm does not support leases",
    )
}
