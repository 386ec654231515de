//! Why a quota cannot be built: which field, which value, what is wrong, and what would be right.

use core::fmt;

/// A quota that cannot be built. The text names the field, its value, the reason and the nearest valid value.
///
/// ```
/// use tollgate_core::{Rate, TokenBucket};
///
/// let error = TokenBucket::at(Rate::per_year(1)).burst(200).build().unwrap_err();
/// assert_eq!(error.field, "burst");
/// assert_eq!(error.nearest, Some(146));
/// assert_eq!(
///     error.to_string(),
///     "burst: 200 is not valid: it would take longer than 2^62 ns (146 years) to refill; \
///      the nearest valid value is 146",
/// );
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidQuota {
    /// The field as it is named in builders and policy files.
    pub field: &'static str,
    /// The value that was given.
    pub value: u64,
    /// What is wrong with it.
    pub reason: InvalidReason,
    /// The nearest value that the same field would accept, where there is one. For a rate that is too fine it is the
    /// nearer of the two that whole intervals beside the asked one express, not the last one within the tolerance of
    /// 0.1 %. Another field may still be wrong then.
    pub nearest: Option<u64>,
}

/// What is wrong with a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InvalidReason {
    /// It must be at least one.
    Zero,
    /// It is above what this field can hold.
    TooLarge,
    /// It is below what this field needs.
    TooSmall,
    /// Whole nanoseconds cannot express the rate within 0.1 %.
    RateTooFine,
    /// Refilling would take longer than state can express.
    RefillTooLong,
    /// A limit of zero denies everything, so nothing else may be asked of it.
    LimitIsZero,
    /// It must be a whole number of blocks, or fewer units than one block would be charged as one.
    BelowOneBlock,
}

impl InvalidReason {
    const fn text(self) -> &'static str {
        match self {
            Self::Zero => "it must be at least 1",
            Self::TooLarge => "it is too large",
            Self::TooSmall => "it is too small",
            Self::RateTooFine => {
                "whole nanoseconds cannot express this rate within 0.1 %: charge in larger blocks, or change it"
            }
            Self::RefillTooLong => "it would take longer than 2^62 ns (146 years) to refill",
            Self::LimitIsZero => "a limit of zero denies everything, so this must be 0 or left out",
            Self::BelowOneBlock => "it is less than one block",
        }
    }
}

impl fmt::Display for InvalidQuota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {} is not valid: {}",
            self.field,
            self.value,
            self.reason.text()
        )?;
        match self.nearest {
            Some(nearest) => write!(f, "; the nearest valid value is {nearest}"),
            None => Ok(()),
        }
    }
}

impl core::error::Error for InvalidQuota {}
