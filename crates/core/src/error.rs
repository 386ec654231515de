//! Why a quota cannot be built: the field, its value, the reason and the nearest valid value.

use core::fmt;

/// A quota that cannot be built. The text names the field, its value, the reason and the nearest valid value.
///
/// ```
/// use tollgate_core::{Rate, TokenBucket};
///
/// let error = TokenBucket::builder(Rate::per_year(1)).burst(200).build().unwrap_err();
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
    /// Why it is not valid.
    pub reason: InvalidReason,
    /// The nearest value that the same field accepts, if there is one. Another field may still be invalid then. For a rate that is too
    /// fine, it is the nearer of the two rates that the adjacent whole intervals express exactly; a rate within the tolerance of 0.1 %
    /// may lie nearer.
    pub nearest: Option<u64>,
}

/// Why a value is not valid.
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
    /// Refilling would take longer than a state can express.
    RefillTooLong,
    /// A limit of zero denies everything, so no other field may be set.
    LimitIsZero,
    /// It is less than one block.
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
