//! gRPC's answers to refused calls: the status, pushback, and `google.rpc.RetryInfo` among the status details.
//!
//! Must not know: HTTP statuses.

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use tollgate_core::Nanos;

use super::structured_field::Malformed;
use super::vendors::text;
use crate::rate_limit_info::{RateLimitInfo, RefusalReason};

/// gRPC sends base64 without padding and accepts both.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

const RETRY_INFO: &[u8] = b"type.googleapis.com/google.rpc.RetryInfo";
const QUOTA_FAILURE: &[u8] = b"type.googleapis.com/google.rpc.QuotaFailure";
/// The most fields of a message that are read.
const MAX_FIELDS: usize = 64;

/// `grpc-status`: RESOURCE_EXHAUSTED is a limit, UNAVAILABLE too little capacity.
pub(super) fn status(value: &[u8], info: &mut RateLimitInfo) -> Result<(), Malformed> {
    match text(value)?.parse::<u8>() {
        Ok(8) => info.reason = info.reason.or(Some(RefusalReason::Rate)),
        Ok(14) => info.reason = info.reason.or(Some(RefusalReason::Overloaded)),
        Ok(0..=16) => {}
        _ => return Err(Malformed),
    }
    Ok(())
}

/// `grpc-retry-pushback-ms`: a wait, or a negative number that forbids a retry.
pub(super) fn pushback(value: &[u8], info: &mut RateLimitInfo) -> Result<(), Malformed> {
    match text(value)?.parse::<i64>() {
        Ok(millis) if millis < 0 => info.may_retry = Some(false),
        Ok(millis) => {
            let wait = Nanos::from_millis(millis.unsigned_abs());
            info.retry_after = info.retry_after.max(Some(wait));
        }
        Err(_) => return Err(Malformed),
    }
    Ok(())
}

/// `grpc-status-details-bin`: a `google.rpc.Status` with details.
pub(super) fn details(value: &[u8], info: &mut RateLimitInfo) -> Result<(), Malformed> {
    let bytes = match BASE64.decode(text(value)?) {
        Ok(bytes) => bytes,
        Err(_) => return Err(Malformed),
    };
    for_each_field(&bytes, |number, field| {
        if number != 3 {
            return Ok(());
        }
        let (mut type_url, mut message): (&[u8], &[u8]) = (&[], &[]);
        for_each_field(field.bytes(), |number, field| {
            match number {
                1 => type_url = field.bytes(),
                2 => message = field.bytes(),
                _ => {}
            }
            Ok(())
        })?;
        if type_url == RETRY_INFO {
            let wait = retry_delay(message)?;
            info.retry_after = info.retry_after.max(Some(wait));
        } else if type_url == QUOTA_FAILURE {
            info.reason = Some(RefusalReason::Rate);
        }
        Ok(())
    })
}

/// The delay of a `RetryInfo`. A negative one is no delay.
fn retry_delay(message: &[u8]) -> Result<Nanos, Malformed> {
    let mut delay = Nanos::ZERO;
    for_each_field(message, |number, field| {
        if number == 1 {
            let (mut seconds, mut nanos) = (0, 0);
            for_each_field(field.bytes(), |number, field| {
                match number {
                    1 => seconds = field.varint(),
                    2 => nanos = field.varint(),
                    _ => {}
                }
                Ok(())
            })?;
            // Negative numbers have the highest bit, and are far above what a Duration may have.
            let is_positive = seconds <= 315_576_000_000 && nanos <= 999_999_999;
            if is_positive {
                let seconds = Nanos::from_secs(seconds.min(10_000_000_000));
                delay = seconds.saturating_add(Nanos::from_nanos(nanos));
            }
        }
        Ok(())
    })?;
    Ok(delay)
}

/// The value of a protobuf field.
#[derive(Clone, Copy)]
enum FieldValue<'a> {
    Varint(u64),
    Bytes(&'a [u8]),
}

impl<'a> FieldValue<'a> {
    const fn bytes(self) -> &'a [u8] {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Varint(_) => &[],
        }
    }

    const fn varint(self) -> u64 {
        match self {
            Self::Varint(number) => number,
            Self::Bytes(_) => 0,
        }
    }
}

fn for_each_field<'a>(
    mut message: &'a [u8],
    mut visit: impl FnMut(u64, FieldValue<'a>) -> Result<(), Malformed>,
) -> Result<(), Malformed> {
    for _ in 0..MAX_FIELDS {
        if message.is_empty() {
            return Ok(());
        }
        let tag = varint(&mut message)?;
        let value = match tag & 7 {
            0 => FieldValue::Varint(varint(&mut message)?),
            1 => FieldValue::Bytes(take(&mut message, 8)?),
            2 => {
                let length = varint(&mut message)?;
                FieldValue::Bytes(take(&mut message, length)?)
            }
            5 => FieldValue::Bytes(take(&mut message, 4)?),
            _ => return Err(Malformed),
        };
        visit(tag >> 3, value)?;
    }
    Err(Malformed)
}

fn take<'a>(message: &mut &'a [u8], length: u64) -> Result<&'a [u8], Malformed> {
    let length = usize::try_from(length).map_err(|_too_long| Malformed)?;
    let (taken, rest) = message.split_at_checked(length).ok_or(Malformed)?;
    *message = rest;
    Ok(taken)
}

fn varint(message: &mut &[u8]) -> Result<u64, Malformed> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = message.split_first().ok_or(Malformed)?;
        *message = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(number);
        }
    }
    Err(Malformed)
}
