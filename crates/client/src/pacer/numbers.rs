//! Spans and counts as numbers to calculate a pace with, and back.
//!
//! Must not know: what is calculated.

use tollgate_core::Nanos;

/// A span as seconds.
#[expect(
    clippy::cast_precision_loss,
    reason = "a pace needs no more than 52 bits"
)]
pub(super) fn seconds(span: Nanos) -> f64 {
    span.as_nanos() as f64 / 1e9
}

/// Seconds as a span, at most a day.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "clamped to a positive number that fits"
)]
pub(super) fn nanos(seconds: f64) -> Nanos {
    Nanos::from_nanos((seconds.clamp(0.0, 86_400.0) * 1e9) as u64)
}

/// A count as a number to calculate with.
#[expect(
    clippy::cast_precision_loss,
    reason = "a pace needs no more than 52 bits"
)]
pub(super) const fn from_count(count: u64) -> f64 {
    count as f64
}

/// A small number as a count.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "clamped to a positive number that fits"
)]
pub(super) fn to_count(number: f64) -> u32 {
    number.clamp(0.0, 1_000.0) as u32
}

/// A quota as a count.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "clamped to a positive number that fits"
)]
pub(super) fn to_whole(number: f64) -> u64 {
    number.clamp(0.0, 9e15) as u64
}
